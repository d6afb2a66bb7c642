/* engine_dnnl_ops.c - the ops of engine.h. Each is made the same way: a description with `any` where the layout is
 * free, then a primitive descriptor, which chooses. */
#include "engine_dnnl.h"

/* ---- convolution ---- */

/* In bf16, what a pass reads is rounded and what it writes is not. */
typedef struct convolution_types {
    dnnl_data_type_t src, weights, dst;
} convolution_types;

/* One of the three passes. */
typedef struct convolution_pass {
    const char *what;
    convolution_types bf16_types;
    dnnl_status_t (*describe)(const nn_engine *e, const nn_op *forward, const api_convolution *c,
                              dnnl_primitive_desc_t *descriptor);
} convolution_pass;

static dnnl_status_t describe_forward(const nn_engine *e, const nn_op *forward, const api_convolution *c,
                                      dnnl_primitive_desc_t *descriptor)
{
    (void)forward;
    return api_convolution_forward(e, c, descriptor);
}

static dnnl_status_t describe_backward_data(const nn_engine *e, const nn_op *forward, const api_convolution *c,
                                            dnnl_primitive_desc_t *descriptor)
{
    (void)e;
    return api_convolution_backward_data(forward, c, descriptor);
}

static dnnl_status_t describe_backward_weights(const nn_engine *e, const nn_op *forward, const api_convolution *c,
                                               dnnl_primitive_desc_t *descriptor)
{
    (void)e;
    return api_convolution_backward_weights(forward, c, descriptor);
}

static const convolution_pass forward_pass = {"a convolution", {dnnl_bf16, dnnl_bf16, dnnl_f32}, describe_forward};
static const convolution_pass backward_data_pass = {
    "a convolution's gradient", {dnnl_f32, dnnl_bf16, dnnl_bf16}, describe_backward_data};
static const convolution_pass backward_weights_pass = {
    "a convolution's weight gradient", {dnnl_bf16, dnnl_f32, dnnl_bf16}, describe_backward_weights};

static tw_status describe_convolution(const nn_convolution_shape *s, const convolution_types *types, api_convolution *c)
{
    size_t height = (s->height + 2 * s->padding - s->kernel) / s->stride + 1;
    size_t width = (s->width + 2 * s->padding - s->kernel) / s->stride + 1;
    size_t src[] = {s->images, s->channels, s->height, s->width};
    size_t weights[] = {s->filters, s->channels, s->kernel, s->kernel};
    size_t dst[] = {s->images, s->filters, height, width};
    for (int i = 0; i < 2; i++) {
        c->strides[i] = (dnnl_dim_t)s->stride;
        c->padding[i] = (dnnl_dim_t)s->padding;
    }
    TW_TRY(engine_describe(4, src, types->src, dnnl_format_tag_any, &c->src));
    TW_TRY(engine_describe(4, weights, types->weights, dnnl_format_tag_any, &c->weights));
    TW_TRY(engine_describe(4, dst, types->dst, dnnl_format_tag_any, &c->dst));
    return s->bias ? engine_describe(1, &s->filters, dnnl_f32, dnnl_a, &c->bias) : TW_OK;
}

static void forget_convolution(const api_convolution *c)
{
    api_forget(c->src);
    api_forget(c->weights);
    api_forget(c->bias);
    api_forget(c->dst);
}

/* The descriptor of a pass; NULL if it is to be in bf16 and the processor has no instructions for that. */
static tw_status describe_in(nn_engine *e, const nn_convolution_shape *shape, const nn_op *forward,
                             const convolution_pass *pass, nn_precision precision, dnnl_primitive_desc_t *descriptor)
{
    static const convolution_types fp32_types = {dnnl_f32, dnnl_f32, dnnl_f32};
    const int in_bf16 = precision == NN_BF16;
    api_convolution c = {.attributes = shape->relu ? e->relu : e->plain};
    TW_TRY(engine_room());
    *descriptor = NULL;
    tw_status status = describe_convolution(shape, in_bf16 ? &pass->bf16_types : &fp32_types, &c);
    if (status == TW_OK) {
        dnnl_status_t described = pass->describe(e, forward, &c, descriptor);
        if (!in_bf16) status = engine_check(described, pass->what);
    }
    forget_convolution(&c);
    if (in_bf16 && *descriptor && !engine_is_native(*descriptor)) {
        dnnl_primitive_desc_destroy(*descriptor);
        *descriptor = NULL;
    }
    return status;
}

static tw_status make_convolution(nn_engine *e, const nn_convolution_shape *shape, const nn_op *forward,
                                  const convolution_pass *pass, nn_op **op)
{
    dnnl_primitive_desc_t descriptor = NULL;
    if (e->precision == NN_BF16) TW_TRY(describe_in(e, shape, forward, pass, NN_BF16, &descriptor));
    if (!descriptor) TW_TRY(describe_in(e, shape, forward, pass, NN_FP32, &descriptor));
    return engine_make_op(e, dnnl_success, descriptor, pass->what, op);
}

tw_status nn_op_convolution_forward(nn_engine *e, const nn_convolution_shape *shape, nn_op **op)
{
    return make_convolution(e, shape, NULL, &forward_pass, op);
}

tw_status nn_op_convolution_backward_data(const nn_convolution_shape *shape, const nn_op *forward, nn_op **op)
{
    return make_convolution(forward->engine, shape, forward, &backward_data_pass, op);
}

tw_status nn_op_convolution_backward_weights(const nn_convolution_shape *shape, const nn_op *forward, nn_op **op)
{
    return make_convolution(forward->engine, shape, forward, &backward_weights_pass, op);
}

/* ---- batch normalisation ---- */

static api_batch_norm describe_batch_norm(const nn_batch_norm_shape *shape, const nn_memory *data)
{
    unsigned flags = dnnl_use_scale | dnnl_use_shift | (shape->relu ? dnnl_fuse_norm_relu : 0u);
    return (api_batch_norm){.data = data->layout, .epsilon = shape->epsilon, .flags = flags};
}

tw_status nn_op_batch_norm_forward(const nn_batch_norm_shape *shape, nn_statistics statistics, const nn_memory *data,
                                   nn_op **op)
{
    int given = statistics == NN_STATISTICS_GIVEN;
    api_batch_norm b = describe_batch_norm(shape, data);
    if (given) b.flags |= dnnl_use_global_stats;
    dnnl_primitive_desc_t descriptor = NULL;
    TW_TRY(engine_room());
    dnnl_status_t described =
        api_batch_norm_forward(data->engine, &b, given ? dnnl_forward_inference : dnnl_forward_training, &descriptor);
    return engine_make_op(data->engine, described, descriptor, "a batch normalisation", op);
}

tw_status nn_op_batch_norm_backward(const nn_batch_norm_shape *shape, const nn_op *forward, const nn_memory *data,
                                    nn_op **op)
{
    api_batch_norm b = describe_batch_norm(shape, data);
    dnnl_primitive_desc_t descriptor = NULL;
    TW_TRY(engine_room());
    dnnl_status_t described = api_batch_norm_backward(forward, &b, &descriptor);
    return engine_make_op(forward->engine, described, descriptor, "a batch normalisation's gradient", op);
}

/* ---- pooling ---- */

static api_pooling describe_pooling(const nn_pooling_shape *shape, const nn_memory *src, api_const_layout dst)
{
    dnnl_dim_t stride = (dnnl_dim_t)shape->stride, padding = (dnnl_dim_t)shape->padding;
    return (api_pooling){.algorithm = shape->average ? dnnl_pooling_avg_exclude_padding : dnnl_pooling_max,
                         .src = src->layout,
                         .dst = dst,
                         .kernel = {(dnnl_dim_t)shape->kernel[0], (dnnl_dim_t)shape->kernel[1]},
                         .strides = {stride, stride},
                         .padding = {padding, padding}};
}

tw_status nn_op_pooling_forward(const nn_pooling_shape *shape, const nn_memory *src, nn_op **op)
{
    const dnnl_dim_t *size = api_take_apart(src->layout).size;
    size_t pooled[4] = {(size_t)size[0], (size_t)size[1]};
    for (int i = 0; i < 2; i++)
        pooled[2 + i] = ((size_t)size[2 + i] + 2 * shape->padding - shape->kernel[i]) / shape->stride + 1;
    api_layout dst;
    TW_TRY(engine_describe(4, pooled, dnnl_f32, dnnl_format_tag_any, &dst));
    api_pooling p = describe_pooling(shape, src, dst);
    dnnl_primitive_desc_t descriptor = NULL;
    TW_TRY(engine_room());
    dnnl_status_t described = api_pooling_forward(src->engine, &p, &descriptor);
    api_forget(dst);
    return engine_make_op(src->engine, described, descriptor, "a pooling", op);
}

tw_status nn_op_pooling_backward(const nn_pooling_shape *shape, const nn_op *forward, const nn_memory *src,
                                 const nn_memory *dst, nn_op **op)
{
    api_pooling p = describe_pooling(shape, src, dst->layout);
    dnnl_primitive_desc_t descriptor = NULL;
    TW_TRY(engine_room());
    dnnl_status_t described = api_pooling_backward(forward, &p, &descriptor);
    return engine_make_op(forward->engine, described, descriptor, "a pooling's gradient", op);
}
