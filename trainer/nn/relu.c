/* relu.c - max(0, x), in place: no layer before it needs its own result for its gradient. */
#include "elementwise.h"
#include "layer.h"

static tw_status relu_forward(nn_layer *layer, int training)
{
    (void)training;
    relu(nn_memory_data(layer->dst->data), nn_memory_floats(layer->dst->data));
    return TW_OK;
}

static tw_status relu_backward(nn_layer *layer)
{
    const nn_tensor *t = layer->dst;
    if (t->diff) relu_gradient(nn_memory_data(t->diff), nn_memory_data(t->data), nn_memory_floats(t->data));
    return TW_OK;
}

static const nn_layer_ops ops = {"relu", relu_forward, relu_backward};
/* After an op that has applied it already. */
static const nn_layer_ops applied_ops = {"relu", NULL, relu_backward};

tw_status nn_relu(nn_net *net)
{
    nn_layer *layer;
    if (!net->current->diff) return tw_fail(TW_ERROR_ORDER, "a ReLU cannot be the first layer: it works in place");
    return nn_net_append(net, sizeof *layer, &ops, net->current, &layer);
}

tw_status nn_relu_applied(nn_net *net)
{
    nn_layer *layer;
    return nn_net_append(net, sizeof *layer, &applied_ops, net->current, &layer);
}
