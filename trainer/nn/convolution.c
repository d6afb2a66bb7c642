/* convolution.c - 2-D convolution. Weights are stored as (filters, channels, kernel, kernel) and brought into the
 * layouts of the three passes at each step: they are small beside the images. */
#include "layer.h"

/* An op between changes of layout of what it reads and of what it writes, where they are needed. */
typedef struct pass {
    nn_op *loads[3];
    size_t load_count;
    nn_op *op;
    nn_op *store;
} pass;

typedef struct convolution {
    nn_layer layer;
    pass forward, backward_data, backward_weights;
} convolution;

static tw_status convolution_run(const pass *p)
{
    for (size_t i = 0; i < p->load_count; i++) TW_TRY(nn_op_run(p->loads[i]));
    TW_TRY(nn_op_run(p->op));
    return nn_op_run(p->store);
}

static tw_status convolution_forward(nn_layer *layer, int training)
{
    (void)training;
    return convolution_run(&((convolution *)layer)->forward);
}

static tw_status convolution_backward(nn_layer *layer)
{
    const convolution *c = (convolution *)layer;
    TW_TRY(convolution_run(&c->backward_data));
    return convolution_run(&c->backward_weights);
}

static const nn_layer_ops ops = {"convolution", convolution_forward, convolution_backward};

static tw_status reads(pass *p, nn_argument argument, const nn_memory *memory)
{
    nn_memory *temporary;
    if (!nn_op_wants_other_layout(p->op, argument, memory)) {
        nn_op_set(p->op, argument, memory);
        return TW_OK;
    }
    TW_TRY(nn_op_set_temporary(p->op, argument, &temporary));
    return nn_op_reorder(memory, temporary, &p->loads[p->load_count++]);
}

static tw_status writes(pass *p, nn_argument argument, const nn_memory *memory)
{
    nn_memory *temporary;
    if (!nn_op_wants_other_layout(p->op, argument, memory)) {
        nn_op_set(p->op, argument, memory);
        return TW_OK;
    }
    TW_TRY(nn_op_set_temporary(p->op, argument, &temporary));
    return nn_op_reorder(temporary, memory, &p->store);
}

typedef struct convolution_parameters {
    nn_memory *weight, *weight_gradient, *bias, *bias_gradient;
} convolution_parameters;

static tw_status convolution_declare(nn_net *net, const char *name, const nn_convolution_shape *s,
                                     convolution_parameters *p)
{
    nn_declaration weight = {name, "weight", 4, {s->filters, s->channels, s->kernel, s->kernel}, NN_INITIAL_HE};
    nn_declaration bias = {name, "bias", 1, {s->filters}, NN_INITIAL_ZERO};
    *p = (convolution_parameters){0};
    TW_TRY(nn_net_declare_parameter(net, &weight, &p->weight, &p->weight_gradient));
    return s->bias ? nn_net_declare_parameter(net, &bias, &p->bias, &p->bias_gradient) : TW_OK;
}

static tw_status build_forward(convolution *c, const convolution_parameters *parameters)
{
    pass *p = &c->forward;
    nn_op_set(p->op, NN_BIAS, parameters->bias);
    TW_TRY(reads(p, NN_SRC, c->layer.src->data));
    TW_TRY(reads(p, NN_WEIGHTS, parameters->weight));
    return writes(p, NN_DST, c->layer.dst->data);
}

static tw_status build_backward_data(convolution *c, const nn_convolution_shape *shape,
                                     const convolution_parameters *parameters)
{
    pass *p = &c->backward_data;
    if (!c->layer.src->diff) return TW_OK;
    TW_TRY(nn_op_convolution_backward_data(shape, c->forward.op, &p->op));
    TW_TRY(reads(p, NN_DIFF_DST, c->layer.dst->diff));
    TW_TRY(reads(p, NN_WEIGHTS, parameters->weight));
    return writes(p, NN_DIFF_SRC, c->layer.src->diff);
}

static tw_status build_backward_weights(convolution *c, const nn_convolution_shape *shape,
                                        const convolution_parameters *parameters)
{
    pass *p = &c->backward_weights;
    TW_TRY(nn_op_convolution_backward_weights(shape, c->forward.op, &p->op));
    nn_op_set(p->op, NN_DIFF_BIAS, parameters->bias_gradient);
    TW_TRY(reads(p, NN_SRC, c->layer.src->data));
    TW_TRY(reads(p, NN_DIFF_DST, c->layer.dst->diff));
    return writes(p, NN_DIFF_WEIGHTS, parameters->weight_gradient);
}

static tw_status convolution_append(nn_net *net, const nn_convolution_shape *shape, const nn_op *op, nn_layer **layer)
{
    size_t height = (shape->height + 2 * shape->padding - shape->kernel) / shape->stride + 1;
    size_t width = (shape->width + 2 * shape->padding - shape->kernel) / shape->stride + 1;
    nn_memory *data;
    nn_tensor *dst;
    TW_TRY(nn_memory_for(op, NN_DST, &data));
    TW_TRY(nn_net_tensor(net, data, (size_t[]){shape->filters, height, width}, &dst));
    return nn_net_append(net, sizeof(convolution), &ops, dst, layer);
}

static tw_status convolution_build(nn_net *net, const char *name, const nn_convolution_shape *shape)
{
    convolution_parameters parameters;
    nn_layer *layer;
    nn_op *op;
    TW_TRY(nn_op_convolution_forward(net->engine, shape, &op));
    TW_TRY(convolution_declare(net, name, shape, &parameters));
    TW_TRY(convolution_append(net, shape, op, &layer));
    convolution *c = (convolution *)layer;
    c->forward.op = op;
    TW_TRY(build_forward(c, &parameters));
    TW_TRY(build_backward_data(c, shape, &parameters));
    return build_backward_weights(c, shape, &parameters);
}

tw_status nn_convolution(nn_net *net, const char *name, const nn_convolution_options *o)
{
    const nn_tensor *src = net->current;
    nn_convolution_shape shape = {.images = net->images,
                                  .channels = src->channels,
                                  .height = src->height,
                                  .width = src->width,
                                  .filters = o->filters,
                                  .kernel = o->kernel,
                                  .stride = o->stride,
                                  .padding = o->padding,
                                  .bias = o->bias,
                                  .relu = o->relu};
    if (o->filters == 0 || o->kernel == 0 || o->stride == 0)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "%s: filters, kernel and stride of a convolution are 1 or more, not %zu, %zu "
                       "and %zu",
                       name, o->filters, o->kernel, o->stride);
    if (src->height + 2 * o->padding < o->kernel || src->width + 2 * o->padding < o->kernel)
        return tw_fail(TW_ERROR_ARGUMENT, "%s: a kernel of %zu does not fit into images of %zu x %zu", name, o->kernel,
                       src->height, src->width);
    TW_TRY(convolution_build(net, name, &shape));
    return o->relu ? nn_relu_applied(net) : TW_OK;
}
