/* linear.c - an affine function of whole images, as a layer of a chain. */
#include "affine.h"
#include "layer.h"

typedef struct linear {
    nn_layer layer;
    nn_memory *weight, *weight_gradient; /* the bias follows in both flat arrays */
    nn_affine affine;
    size_t images;
} linear;

static tw_status linear_forward(nn_layer *layer, int training)
{
    const linear *l = (linear *)layer;
    (void)training;
    return nn_affine_forward(&l->affine, nn_memory_data(l->weight), l->images, nn_memory_data(layer->src->data),
                             nn_memory_data(layer->dst->data));
}

static tw_status linear_backward(nn_layer *layer)
{
    const linear *l = (linear *)layer;
    const float *dy = nn_memory_data(layer->dst->diff);
    TW_TRY(nn_affine_backward_parameters(&l->affine, l->images, nn_memory_data(layer->src->data), dy,
                                         nn_memory_data(l->weight_gradient)));
    if (!layer->src->diff) return TW_OK;
    return nn_affine_backward_source(&l->affine, nn_memory_data(l->weight), l->images, dy,
                                     nn_memory_data(layer->src->diff));
}

static const nn_layer_ops ops = {"linear", linear_forward, linear_backward};

tw_status nn_linear(nn_net *net, const char *name, size_t outputs, nn_initial initial)
{
    nn_memory *data;
    nn_tensor *dst;
    nn_layer *layer;
    if (outputs == 0) return tw_fail(TW_ERROR_ARGUMENT, "%s: a linear layer has 1 output or more, not 0", name);
    TW_TRY(nn_flatten(net));
    size_t inputs = nn_net_outputs(net);
    linear l = {
        .affine = {.inputs = inputs, .outputs = outputs, .bias = outputs * inputs, .engine = net->engine},
        .images = net->images,
    };
    nn_declaration weight = {name, "weight", 2, {outputs, inputs}, initial};
    nn_declaration bias = {name, "bias", 1, {outputs}, NN_INITIAL_ZERO};
    TW_TRY(nn_net_declare_parameter(net, &weight, &l.weight, &l.weight_gradient));
    TW_TRY(nn_table_declare(&net->parameters, &bias));
    TW_TRY(nn_memory_plain(net->engine, 4, (size_t[]){net->images, outputs, 1, 1}, &data));
    TW_TRY(nn_net_tensor(net, data, (size_t[]){outputs, 1, 1}, &dst));
    TW_TRY(nn_net_append(net, sizeof l, &ops, dst, &layer));
    l.layer = *layer;
    *(linear *)layer = l;
    return TW_OK;
}
