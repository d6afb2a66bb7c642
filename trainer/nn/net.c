/* net.c - the chain: its beginning and its end, placing, running. */
#include "cut.h"

#include <stdlib.h>

/* ---- tables ---- */

const nn_table *nn_net_parameters(const nn_net *net)
{
    return &net->parameters;
}

const nn_table *nn_net_buffers(const nn_net *net)
{
    return &net->buffers;
}

/* ---- building ---- */

static tw_status open_net(nn_net *net, const nn_input *input, nn_precision precision)
{
    size_t shape[4] = {input->images, input->channels, input->height, input->width};
    nn_memory *images;
    TW_TRY(nn_engine_create(precision, &net->engine));
    TW_TRY(nn_memory_plain(net->engine, 4, shape, &images));
    nn_memory_place(images, NN_INPUT, 0);
    net->images = input->images;
    net->join_slot = NN_REGIONS;
    return nn_net_add(net, images, shape + 1, &net->current);
}

tw_status nn_net_create(const nn_input *input, nn_precision precision, nn_net **net)
{
    if (!input->images || !input->channels || !input->height || !input->width)
        return tw_fail(TW_ERROR_ARGUMENT, "a net needs at least one image of at least one pixel");
    nn_engine_enter();
    nn_net *made = calloc(1, sizeof *made);
    if (!made) return tw_fail(TW_ERROR_MEMORY, "no memory for a net");
    tw_status status = open_net(made, input, precision);
    if (status == TW_OK)
        *net = made;
    else
        nn_net_destroy(made);
    return status;
}

void nn_net_destroy(nn_net *net)
{
    if (!net) return;
    for (size_t i = 0; i < net->layer_count; i++) free(net->layers[i]);
    free(net->layers);
    while (net->tensors) {
        nn_tensor *next = net->tensors->next;
        free(net->tensors);
        net->tensors = next;
    }
    nn_table_free(&net->parameters);
    nn_table_free(&net->buffers);
    nn_cut_free(net);
    nn_engine_destroy(net->engine);
    free(net);
}

size_t nn_net_outputs(const nn_net *net)
{
    return net->current->channels * net->current->height * net->current->width;
}

tw_status nn_net_finish(nn_net *net)
{
    if (net->fork) return tw_fail(TW_ERROR_ORDER, "a residual branch was forked and not joined");
    TW_TRY(nn_flatten(net));
    for (nn_tensor *t = net->tensors; t; t = t->next)
        if (t->diff) nn_memory_append(t->diff, t->slot);
    return nn_cut_list(net);
}

/* ---- running ---- */

tw_status nn_net_page(nn_net *net, pager *by, float *values, float *gradients)
{
    return nn_table_page(&net->parameters, by, values, gradients);
}

void nn_net_page_like(nn_net *net, const nn_net *other)
{
    net->parameters.pager = other->parameters.pager;
}

size_t nn_net_arena_bytes(const nn_net *net)
{
    size_t bytes = 0;
    for (nn_region region = NN_ACTIVATIONS; region < NN_REGIONS; region++)
        bytes += nn_aligned(nn_engine_bytes(net->engine, region));
    return bytes;
}

tw_status nn_net_bind(nn_net *net, const nn_arrays *arrays)
{
    char *bytes = arrays->arena;
    TW_TRY(nn_engine_bind(net->engine, NN_PARAMETERS, arrays->parameters));
    TW_TRY(nn_engine_bind(net->engine, NN_GRADIENTS, arrays->gradients));
    TW_TRY(nn_engine_bind(net->engine, NN_BUFFERS, arrays->buffers));
    for (nn_region region = NN_ACTIVATIONS; region < NN_REGIONS; region++) {
        TW_TRY(nn_engine_bind(net->engine, region, bytes));
        bytes += nn_aligned(nn_engine_bytes(net->engine, region));
    }
    return TW_OK;
}

tw_status nn_net_forward(nn_net *net, const float *images, int training)
{
    nn_engine_enter();
    TW_TRY(nn_engine_bind(net->engine, NN_INPUT, (void *)images));
    TW_TRY(nn_cut_receive(net));
    for (size_t i = net->cut.first; i < net->cut.end; i++) {
        nn_layer *layer = net->layers[i];
        TW_TRY(nn_table_use(&net->parameters, layer->parameters, PAGER_FORWARD));
        if (layer->ops->forward) TW_TRY(layer->ops->forward(layer, training));
    }
    return TW_OK;
}

float *nn_net_output(const nn_net *net)
{
    return nn_memory_data(net->current->data);
}

float *nn_net_output_gradient(const nn_net *net)
{
    return nn_memory_data(net->current->diff);
}

tw_status nn_net_backward(nn_net *net, nn_gradient_ready ready, void *context)
{
    float *gradients = nn_engine_bound(net->engine, NN_GRADIENTS);
    nn_engine_enter();
    for (size_t i = net->cut.end; i-- > net->cut.first;) {
        nn_layer *layer = net->layers[i];
        TW_TRY(nn_table_use(&net->parameters, layer->parameters, PAGER_BACKWARD));
        if (layer->ops->backward) TW_TRY(layer->ops->backward(layer));
        TW_TRY(nn_table_announce(&net->parameters, layer->parameters, gradients, ready, context));
    }
    return nn_cut_send_back(net);
}
