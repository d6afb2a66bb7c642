/* pooling.c - maximum over small windows, mean over whole planes. */
#include "layer.h"

typedef struct pooling {
    nn_layer layer;
    nn_op *forward, *backward;
} pooling;

static tw_status pooling_forward(nn_layer *layer, int training)
{
    (void)training;
    return nn_op_run(((pooling *)layer)->forward);
}

static tw_status pooling_backward(nn_layer *layer)
{
    return nn_op_run(((pooling *)layer)->backward);
}

static const nn_layer_ops ops = {"pooling", pooling_forward, pooling_backward};

static tw_status pooling_connect(pooling *p, const nn_pooling_shape *shape)
{
    const nn_tensor *src = p->layer.src, *dst = p->layer.dst;
    nn_memory *workspace;
    nn_op_set(p->forward, NN_SRC, src->data);
    nn_op_set(p->forward, NN_DST, dst->data);
    TW_TRY(nn_memory_for(p->forward, NN_WORKSPACE, &workspace));
    if (workspace) nn_memory_append(workspace, NN_ACTIVATIONS);
    nn_op_set(p->forward, NN_WORKSPACE, workspace);
    if (!src->diff) return TW_OK;
    TW_TRY(nn_op_pooling_backward(shape, p->forward, src->data, dst->data, &p->backward));
    nn_op_set(p->backward, NN_DIFF_DST, dst->diff);
    nn_op_set(p->backward, NN_DIFF_SRC, src->diff);
    nn_op_set(p->backward, NN_WORKSPACE, workspace);
    return TW_OK;
}

static tw_status pool(nn_net *net, const nn_pooling_shape *shape)
{
    const nn_tensor *src = net->current;
    nn_op *op;
    nn_memory *data;
    nn_tensor *dst;
    nn_layer *layer;
    size_t rows = src->height + 2 * shape->padding, columns = src->width + 2 * shape->padding;
    if (rows < shape->kernel[0] || columns < shape->kernel[1])
        return tw_fail(TW_ERROR_ARGUMENT, "images of %zu x %zu are too small to pool over %zu x %zu", src->height,
                       src->width, shape->kernel[0], shape->kernel[1]);
    size_t height = (rows - shape->kernel[0]) / shape->stride + 1;
    size_t width = (columns - shape->kernel[1]) / shape->stride + 1;
    TW_TRY(nn_op_pooling_forward(shape, src->data, &op));
    TW_TRY(nn_memory_for(op, NN_DST, &data));
    TW_TRY(nn_net_tensor(net, data, (size_t[]){src->channels, height, width}, &dst));
    TW_TRY(nn_net_append(net, sizeof(pooling), &ops, dst, &layer));
    ((pooling *)layer)->forward = op;
    return pooling_connect((pooling *)layer, shape);
}

tw_status nn_max_pool(nn_net *net, const nn_window *w)
{
    if (w->size == 0 || w->stride == 0 || w->padding >= w->size)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "size and stride of a pooling window are 1 or more, and its padding is less "
                       "than its size, not %zu, %zu and %zu",
                       w->size, w->stride, w->padding);
    return pool(net, &(nn_pooling_shape){.kernel = {w->size, w->size}, .stride = w->stride, .padding = w->padding});
}

tw_status nn_global_average_pool(nn_net *net)
{
    const nn_tensor *src = net->current;
    return pool(net, &(nn_pooling_shape){.kernel = {src->height, src->width}, .stride = 1, .average = 1});
}
