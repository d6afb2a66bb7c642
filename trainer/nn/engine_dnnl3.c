/* engine_dnnl3.c - what oneDNN 3.x does its own way: layouts are opaque, and a primitive descriptor is made at once. */
#include "engine_dnnl.h"

dnnl_status_t api_describe(int dims, const dnnl_dims_t size, dnnl_data_type_t type, dnnl_format_tag_t tag,
                           api_layout *layout)
{
    return dnnl_memory_desc_create_with_tag(layout, dims, size, type, tag);
}

void api_forget(api_layout layout)
{
    if (layout) dnnl_memory_desc_destroy(layout);
}

static int engine_dnnl3_number(api_const_layout layout, dnnl_query_t what)
{
    int value = 0;
    dnnl_memory_desc_query(layout, what, &value);
    return value;
}

/* NULL if the layout has no such part. */
static const dnnl_dim_t *sizes(api_const_layout layout, dnnl_query_t what)
{
    const dnnl_dims_t *values = NULL;
    return dnnl_memory_desc_query(layout, what, &values) == dnnl_success && values ? *values : NULL;
}

api_layout_parts api_take_apart(api_const_layout l)
{
    return (api_layout_parts){.dims = engine_dnnl3_number(l, dnnl_query_ndims_s32),
                              .size = sizes(l, dnnl_query_dims),
                              .padded_size = sizes(l, dnnl_query_padded_dims),
                              .strides = sizes(l, dnnl_query_strides),
                              .block_count = engine_dnnl3_number(l, dnnl_query_inner_nblks_s32),
                              .blocks = sizes(l, dnnl_query_inner_blks),
                              .blocked_dims = sizes(l, dnnl_query_inner_idxs)};
}

dnnl_status_t api_append_relu(dnnl_post_ops_t after)
{
    return dnnl_post_ops_append_eltwise(after, dnnl_eltwise_relu, 0.0f, 0.0f);
}

dnnl_status_t api_append_sum(dnnl_post_ops_t after, float scale)
{
    return dnnl_post_ops_append_sum(after, scale, 0, dnnl_data_type_undef);
}

/* The gradient of a batch normalisation does not depend on the shift. 2.x demanded it all the same, 3.x refuses it. */
int api_takes(const nn_op *op, int argument)
{
    dnnl_prop_kind_t kind = dnnl_prop_kind_undef;
    dnnl_primitive_desc_query(op->descriptor, dnnl_query_prop_kind, 0, &kind);
    return argument != DNNL_ARG_SHIFT || kind != dnnl_backward;
}

static const dnnl_dims_t dense = {0}; /* no dilation */

dnnl_status_t api_convolution_forward(const nn_engine *e, const api_convolution *c, dnnl_primitive_desc_t *descriptor)
{
    return dnnl_convolution_forward_primitive_desc_create(descriptor, e->engine, dnnl_forward_training,
                                                          dnnl_convolution_direct, c->src, c->weights, c->bias, c->dst,
                                                          c->strides, dense, c->padding, c->padding, c->attributes);
}

dnnl_status_t api_convolution_backward_data(const nn_op *forward, const api_convolution *c,
                                            dnnl_primitive_desc_t *descriptor)
{
    const nn_engine *e = forward->engine;
    return dnnl_convolution_backward_data_primitive_desc_create(descriptor, e->engine, dnnl_convolution_direct, c->src,
                                                                c->weights, c->dst, c->strides, dense, c->padding,
                                                                c->padding, forward->descriptor, e->plain);
}

dnnl_status_t api_convolution_backward_weights(const nn_op *forward, const api_convolution *c,
                                               dnnl_primitive_desc_t *descriptor)
{
    const nn_engine *e = forward->engine;
    return dnnl_convolution_backward_weights_primitive_desc_create(
        descriptor, e->engine, dnnl_convolution_direct, c->src, c->weights, c->bias, c->dst, c->strides, dense,
        c->padding, c->padding, forward->descriptor, e->plain);
}

dnnl_status_t api_batch_norm_forward(const nn_engine *e, const api_batch_norm *b, dnnl_prop_kind_t kind,
                                     dnnl_primitive_desc_t *descriptor)
{
    return dnnl_batch_normalization_forward_primitive_desc_create(descriptor, e->engine, kind, b->data, b->data,
                                                                  b->epsilon, b->flags, e->plain);
}

dnnl_status_t api_batch_norm_backward(const nn_op *forward, const api_batch_norm *b, dnnl_primitive_desc_t *descriptor)
{
    const nn_engine *e = forward->engine;
    return dnnl_batch_normalization_backward_primitive_desc_create(descriptor, e->engine, dnnl_backward, b->data,
                                                                   b->data, b->data, b->epsilon, b->flags,
                                                                   forward->descriptor, e->plain);
}

dnnl_status_t api_pooling_forward(const nn_engine *e, const api_pooling *p, dnnl_primitive_desc_t *descriptor)
{
    return dnnl_pooling_forward_primitive_desc_create(descriptor, e->engine, dnnl_forward_training, p->algorithm,
                                                      p->src, p->dst, p->strides, p->kernel, dense, p->padding,
                                                      p->padding, e->plain);
}

dnnl_status_t api_pooling_backward(const nn_op *forward, const api_pooling *p, dnnl_primitive_desc_t *descriptor)
{
    const nn_engine *e = forward->engine;
    return dnnl_pooling_backward_primitive_desc_create(descriptor, e->engine, p->algorithm, p->src, p->dst, p->strides,
                                                       p->kernel, dense, p->padding, p->padding, forward->descriptor,
                                                       e->plain);
}

dnnl_status_t api_matmul(const nn_engine *e, api_const_layout a, api_const_layout b, api_const_layout c,
                         dnnl_primitive_attr_t attributes, dnnl_primitive_desc_t *descriptor)
{
    return dnnl_matmul_primitive_desc_create(descriptor, e->engine, a, b, NULL, c, attributes);
}
