/* engine_dnnl2_ops.c - the ops of engine.h on oneDNN 2.x. Each is made the same way: an operation descriptor with `any`
 * where the layout is free, then a primitive descriptor, which chooses. */
#include "engine_dnnl2.h"

static tw_status describe_image(const size_t shape[4], dnnl_format_tag_t tag, dnnl_memory_desc_t *layout)
{
    return dnnl2_describe(4, shape, tag, layout);
}

/* ---- convolution ---- */

typedef struct convolution_layouts {
    dnnl_memory_desc_t src, weights, bias, dst; /* free */
    dnnl_dims_t strides, padding;
} convolution_layouts;

static tw_status describe_convolution(const nn_convolution_shape *s, convolution_layouts *l)
{
    size_t height = (s->height + 2 * s->padding - s->kernel) / s->stride + 1;
    size_t width = (s->width + 2 * s->padding - s->kernel) / s->stride + 1;
    *l = (convolution_layouts){0};
    for (int i = 0; i < 2; i++) {
        l->strides[i] = (dnnl_dim_t)s->stride;
        l->padding[i] = (dnnl_dim_t)s->padding;
    }
    TW_TRY(describe_image((size_t[]){s->images, s->channels, s->height, s->width}, dnnl_format_tag_any, &l->src));
    TW_TRY(describe_image((size_t[]){s->filters, s->channels, s->kernel, s->kernel}, dnnl_format_tag_any, &l->weights));
    TW_TRY(describe_image((size_t[]){s->images, s->filters, height, width}, dnnl_format_tag_any, &l->dst));
    return s->bias ? dnnl2_describe(1, &s->filters, dnnl_a, &l->bias) : TW_OK;
}

tw_status nn_op_convolution_forward(nn_engine *e, const nn_convolution_shape *shape, nn_op **op)
{
    convolution_layouts l;
    dnnl_convolution_desc_t operation;
    TW_TRY(describe_convolution(shape, &l));
    TW_TRY(dnnl2_check(dnnl_convolution_forward_desc_init(&operation, dnnl_forward_training, dnnl_convolution_direct,
                                                          &l.src, &l.weights, shape->bias ? &l.bias : NULL, &l.dst,
                                                          l.strides, l.padding, l.padding),
                       "a convolution"));
    return dnnl2_make_op(e, &operation, shape->relu ? e->relu : e->plain, NULL, "a convolution", op);
}

tw_status nn_op_convolution_backward_data(const nn_convolution_shape *shape, const nn_op *forward, nn_op **op)
{
    nn_engine *e = forward->engine;
    convolution_layouts l;
    dnnl_convolution_desc_t operation;
    TW_TRY(describe_convolution(shape, &l));
    TW_TRY(dnnl2_check(dnnl_convolution_backward_data_desc_init(&operation, dnnl_convolution_direct, &l.src, &l.weights,
                                                                &l.dst, l.strides, l.padding, l.padding),
                       "a convolution's gradient"));
    return dnnl2_make_op(e, &operation, e->plain, forward, "a convolution's gradient", op);
}

tw_status nn_op_convolution_backward_weights(const nn_convolution_shape *shape, const nn_op *forward, nn_op **op)
{
    nn_engine *e = forward->engine;
    convolution_layouts l;
    dnnl_convolution_desc_t operation;
    TW_TRY(describe_convolution(shape, &l));
    TW_TRY(dnnl2_check(dnnl_convolution_backward_weights_desc_init(&operation, dnnl_convolution_direct, &l.src,
                                                                   &l.weights, shape->bias ? &l.bias : NULL, &l.dst,
                                                                   l.strides, l.padding, l.padding),
                       "a convolution's weight gradient"));
    return dnnl2_make_op(e, &operation, e->plain, forward, "a convolution's weight gradient", op);
}

/* ---- batch normalisation ---- */

static unsigned batch_norm_flags(const nn_batch_norm_shape *shape)
{
    return dnnl_use_scale | dnnl_use_shift | (shape->relu ? dnnl_fuse_norm_relu : 0u);
}

tw_status nn_op_batch_norm_forward(const nn_batch_norm_shape *shape, nn_statistics statistics, const nn_memory *data,
                                   nn_op **op)
{
    int given = statistics == NN_STATISTICS_GIVEN;
    unsigned flags = batch_norm_flags(shape) | (given ? dnnl_use_global_stats : 0u);
    dnnl_batch_normalization_desc_t operation;
    TW_TRY(dnnl2_check(
        dnnl_batch_normalization_forward_desc_init(&operation, given ? dnnl_forward_inference : dnnl_forward_training,
                                                   &data->layout, shape->epsilon, flags),
        "a batch normalisation"));
    return dnnl2_make_op(data->engine, &operation, data->engine->plain, NULL, "a batch normalisation", op);
}

tw_status nn_op_batch_norm_backward(const nn_batch_norm_shape *shape, const nn_op *forward, const nn_memory *data,
                                    nn_op **op)
{
    dnnl_batch_normalization_desc_t operation;
    TW_TRY(
        dnnl2_check(dnnl_batch_normalization_backward_desc_init(&operation, dnnl_backward, &data->layout, &data->layout,
                                                                shape->epsilon, batch_norm_flags(shape)),
                    "a batch normalisation's gradient"));
    return dnnl2_make_op(data->engine, &operation, data->engine->plain, forward, "a batch normalisation's gradient",
                         op);
}

/* ---- pooling ---- */

typedef struct pooling_window {
    dnnl_dims_t kernel, strides, padding;
    dnnl_alg_kind_t algorithm;
} pooling_window;

static pooling_window describe_pooling(const nn_pooling_shape *shape)
{
    dnnl_dim_t stride = (dnnl_dim_t)shape->stride;
    return (pooling_window){.kernel = {(dnnl_dim_t)shape->kernel[0], (dnnl_dim_t)shape->kernel[1]},
                            .strides = {stride, stride},
                            .algorithm = shape->average ? dnnl_pooling_avg : dnnl_pooling_max};
}

tw_status nn_op_pooling_forward(const nn_pooling_shape *shape, const nn_memory *src, nn_op **op)
{
    const dnnl_dim_t *size = src->layout.dims;
    pooling_window w = describe_pooling(shape);
    size_t pooled[4] = {(size_t)size[0], (size_t)size[1]};
    for (int i = 0; i < 2; i++) pooled[2 + i] = ((size_t)size[2 + i] - shape->kernel[i]) / shape->stride + 1;
    dnnl_memory_desc_t dst;
    dnnl_pooling_desc_t operation;
    TW_TRY(describe_image(pooled, dnnl_format_tag_any, &dst));
    TW_TRY(dnnl2_check(dnnl_pooling_forward_desc_init(&operation, dnnl_forward_training, w.algorithm, &src->layout,
                                                      &dst, w.strides, w.kernel, w.padding, w.padding),
                       "a pooling"));
    return dnnl2_make_op(src->engine, &operation, src->engine->plain, NULL, "a pooling", op);
}

tw_status nn_op_pooling_backward(const nn_pooling_shape *shape, const nn_op *forward, const nn_memory *src,
                                 const nn_memory *dst, nn_op **op)
{
    pooling_window w = describe_pooling(shape);
    dnnl_pooling_desc_t operation;
    TW_TRY(dnnl2_check(dnnl_pooling_backward_desc_init(&operation, w.algorithm, &src->layout, &dst->layout, w.strides,
                                                       w.kernel, w.padding, w.padding),
                       "a pooling's gradient"));
    return dnnl2_make_op(src->engine, &operation, src->engine->plain, forward, "a pooling's gradient", op);
}

/* ---- product ---- */

tw_status nn_multiply(const nn_product *p, const float *a, const float *b, float *c)
{
    dnnl_dim_t m = (dnnl_dim_t)p->m, n = (dnnl_dim_t)p->n, k = (dnnl_dim_t)p->k;
    return dnnl2_check(dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', m, n, k, 1.0f, a,
                                  p->transpose_a ? m : k, b, p->transpose_b ? k : n, p->beta, c, n),
                       "a matrix product");
}
