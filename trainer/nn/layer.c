/* layer.c - what layers do to the chain that they are appended to. */
#include "layer.h"

#include <stdlib.h>

/* ---- tables ---- */

static tw_status place_last(nn_net *net, const nn_table *table, nn_region region, nn_memory **memory)
{
    const tw_tensor *tensor = &table->tensors[table->count - 1];
    TW_TRY(nn_memory_plain(net->engine, tensor->dims, tensor->shape, memory));
    nn_memory_place(*memory, region, table->offsets[table->count - 1] * sizeof(float));
    return TW_OK;
}

tw_status nn_net_declare_parameter(nn_net *net, const nn_declaration *declaration, nn_memory **value,
                                   nn_memory **gradient)
{
    TW_TRY(nn_table_declare(&net->parameters, declaration));
    TW_TRY(place_last(net, &net->parameters, NN_PARAMETERS, value));
    return place_last(net, &net->parameters, NN_GRADIENTS, gradient);
}

tw_status nn_net_declare_buffer(nn_net *net, const nn_declaration *declaration, nn_memory **value)
{
    TW_TRY(nn_table_declare(&net->buffers, declaration));
    return place_last(net, &net->buffers, NN_BUFFERS, value);
}

/* ---- building ---- */

nn_region nn_net_free_slot(const nn_net *net)
{
    nn_region slot = NN_DIFF0;
    while (slot == net->join_slot || (net->current && slot == net->current->slot)) slot++;
    return slot;
}

tw_status nn_net_add(nn_net *net, nn_memory *data, const size_t image[3], nn_tensor **tensor)
{
    nn_tensor *t = calloc(1, sizeof *t);
    if (!t) return tw_fail(TW_ERROR_MEMORY, "no memory for a tensor");
    *t = (nn_tensor){.next = net->tensors,
                     .channels = image[0],
                     .height = image[1],
                     .width = image[2],
                     .data = data,
                     .slot = nn_net_free_slot(net)};
    net->tensors = t;
    *tensor = t;
    return TW_OK;
}

tw_status nn_net_tensor(nn_net *net, nn_memory *data, const size_t image[3], nn_tensor **tensor)
{
    TW_TRY(nn_net_add(net, data, image, tensor));
    nn_memory_append(data, NN_ACTIVATIONS);
    return nn_memory_like(data, &(*tensor)->diff);
}

tw_status nn_net_alias(nn_net *net, const nn_tensor *of, nn_region slot)
{
    nn_tensor *t = NULL;
    TW_TRY(nn_net_add(net, of->data, (size_t[]){of->channels, of->height, of->width}, &t));
    t->slot = slot;
    net->current = t;
    return of->diff ? nn_memory_like(of->data, &t->diff) : TW_OK;
}

static size_t parameters_so_far(const nn_net *net)
{
    return net->layer_count ? net->layers[net->layer_count - 1]->parameters.end : 0;
}

tw_status nn_net_append(nn_net *net, size_t size, const nn_layer_ops *ops, nn_tensor *dst, nn_layer **layer)
{
    nn_layer **larger = realloc(net->layers, (net->layer_count + 1) * sizeof *larger);
    if (larger) net->layers = larger;
    if (!larger || !(*layer = calloc(1, size))) return tw_fail(TW_ERROR_MEMORY, "no memory for a %s layer", ops->name);
    **layer = (nn_layer){.ops = ops,
                         .src = net->current,
                         .dst = dst,
                         .parameters = {parameters_so_far(net), net->parameters.count},
                         .buffers = net->buffers.count,
                         .inside = net->fork && net->fork != *layer};
    net->layers[net->layer_count++] = *layer;
    net->current = dst;
    return nn_table_end_unit(&net->parameters, 0);
}
