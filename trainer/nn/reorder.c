/* reorder.c - the same images in another layout. */
#include "layer.h"

typedef struct reorder {
    nn_layer layer;
    nn_op *forward, *backward;
} reorder;

static tw_status reorder_forward(nn_layer *layer, int training)
{
    (void)training;
    return nn_op_run(((reorder *)layer)->forward);
}

static tw_status reorder_backward(nn_layer *layer)
{
    return nn_op_run(((reorder *)layer)->backward);
}

static const nn_layer_ops ops = {"reorder", reorder_forward, reorder_backward};

tw_status nn_change_layout(nn_net *net, nn_memory *like)
{
    const nn_tensor *src = net->current;
    nn_tensor *dst;
    nn_layer *layer;
    if (nn_memory_same_layout(src->data, like)) return TW_OK;
    TW_TRY(nn_net_tensor(net, like, (size_t[]){src->channels, src->height, src->width}, &dst));
    TW_TRY(nn_net_append(net, sizeof(reorder), &ops, dst, &layer));
    reorder *r = (reorder *)layer;
    TW_TRY(nn_op_reorder(src->data, dst->data, &r->forward));
    return src->diff ? nn_op_reorder(dst->diff, src->diff, &r->backward) : TW_OK;
}

tw_status nn_flatten(nn_net *net)
{
    const nn_tensor *src = net->current;
    nn_memory *plain;
    TW_TRY(nn_memory_plain(net->engine, 4, (size_t[]){net->images, src->channels, src->height, src->width}, &plain));
    return nn_change_layout(net, plain);
}
