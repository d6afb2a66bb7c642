/* linear.c - y = x W' + b, with x (images, inputs) and W (outputs, inputs). */
#include "layer.h"

#include <string.h>

typedef struct linear {
    nn_layer layer;
    nn_memory *weight, *weight_gradient, *bias, *bias_gradient;
    size_t images, inputs, outputs;
} linear;

static tw_status forward(nn_layer *layer, int training)
{
    const linear *l = (linear *)layer;
    const float *bias = nn_memory_data(l->bias);
    float *y = nn_memory_data(layer->dst->data);
    (void)training;
    for (size_t i = 0; i < l->images; i++) memcpy(y + i * l->outputs, bias, l->outputs * sizeof *y);
    nn_product product = {.transpose_b = 1, .m = l->images, .n = l->outputs, .k = l->inputs, .beta = 1.0f};
    return nn_multiply(&product, nn_memory_data(layer->src->data), nn_memory_data(l->weight), y);
}

static void sum_rows(const float *rows, size_t count, size_t columns, float *sum)
{
    memset(sum, 0, columns * sizeof *sum);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < columns; j++) sum[j] += rows[i * columns + j];
}

static tw_status backward(nn_layer *layer)
{
    const linear *l = (linear *)layer;
    const float *dy = nn_memory_data(layer->dst->diff);
    nn_product weight = {.transpose_a = 1, .m = l->outputs, .n = l->inputs, .k = l->images};
    nn_product source = {.m = l->images, .n = l->inputs, .k = l->outputs};
    sum_rows(dy, l->images, l->outputs, nn_memory_data(l->bias_gradient));
    TW_TRY(nn_multiply(&weight, dy, nn_memory_data(layer->src->data), nn_memory_data(l->weight_gradient)));
    if (!layer->src->diff) return TW_OK;
    return nn_multiply(&source, dy, nn_memory_data(l->weight), nn_memory_data(layer->src->diff));
}

static const nn_layer_ops ops = {"linear", forward, backward};

tw_status nn_linear(nn_net *net, const char *name, size_t outputs, nn_initial initial)
{
    nn_memory *data;
    nn_tensor *dst;
    nn_layer *layer;
    linear l = {.images = net->images, .outputs = outputs};
    TW_TRY(nn_flatten(net));
    l.inputs = net->current->channels * net->current->height * net->current->width;
    nn_declaration weight = {name, "weight", 2, {outputs, l.inputs}, initial};
    nn_declaration bias = {name, "bias", 1, {outputs}, NN_INITIAL_ZERO};
    TW_TRY(nn_net_declare_parameter(net, &weight, &l.weight, &l.weight_gradient));
    TW_TRY(nn_net_declare_parameter(net, &bias, &l.bias, &l.bias_gradient));
    TW_TRY(nn_memory_plain(net->engine, 4, (size_t[]){net->images, outputs, 1, 1}, &data));
    TW_TRY(nn_net_tensor(net, data, (size_t[]){outputs, 1, 1}, &dst));
    TW_TRY(nn_net_append(net, sizeof l, &ops, dst, &layer));
    l.layer = *layer;
    *(linear *)layer = l;
    return TW_OK;
}
