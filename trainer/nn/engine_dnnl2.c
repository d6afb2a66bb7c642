/* engine_dnnl2.c - what oneDNN 2.x does its own way: layouts are plain structures, and a primitive descriptor is made
 * from an operation descriptor. */
#include "engine_dnnl.h"

#include <stdlib.h>

dnnl_status_t api_describe(int dims, const dnnl_dims_t size, dnnl_data_type_t type, dnnl_format_tag_t tag,
                           api_layout *layout)
{
    api_layout l = calloc(1, sizeof *l);
    if (!l) return dnnl_out_of_memory;
    dnnl_status_t status = dnnl_memory_desc_init_by_tag(l, dims, size, type, tag);
    if (status == dnnl_success)
        *layout = l;
    else
        free(l);
    return status;
}

void api_forget(api_layout layout)
{
    free(layout);
}

api_layout_parts api_take_apart(api_const_layout l)
{
    api_layout_parts parts = {.dims = l->ndims, .size = l->dims, .padded_size = l->padded_dims};
    if (l->format_kind == dnnl_blocked) {
        const dnnl_blocking_desc_t *blocking = &l->format_desc.blocking;
        parts.strides = blocking->strides;
        parts.block_count = blocking->inner_nblks;
        parts.blocks = blocking->inner_blks;
        parts.blocked_dims = blocking->inner_idxs;
    }
    return parts;
}

dnnl_status_t api_append_relu(dnnl_post_ops_t after)
{
    return dnnl_post_ops_append_eltwise(after, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
}

dnnl_status_t api_append_sum(dnnl_post_ops_t after, float scale)
{
    return dnnl_post_ops_append_sum(after, scale);
}

int api_takes(const nn_op *op, int argument)
{
    (void)op, (void)argument;
    return 1;
}

static dnnl_status_t choose_backward(const nn_op *forward, const_dnnl_op_desc_t operation,
                                     dnnl_primitive_desc_t *descriptor)
{
    const nn_engine *e = forward->engine;
    return dnnl_primitive_desc_create(descriptor, operation, e->plain, e->engine, forward->descriptor);
}

dnnl_status_t api_convolution_forward(const nn_engine *e, const api_convolution *c, dnnl_primitive_desc_t *descriptor)
{
    dnnl_convolution_desc_t operation;
    dnnl_status_t status =
        dnnl_convolution_forward_desc_init(&operation, dnnl_forward_training, dnnl_convolution_direct, c->src,
                                           c->weights, c->bias, c->dst, c->strides, c->padding, c->padding);
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(descriptor, &operation, c->attributes, e->engine, NULL);
}

dnnl_status_t api_convolution_backward_data(const nn_op *forward, const api_convolution *c,
                                            dnnl_primitive_desc_t *descriptor)
{
    dnnl_convolution_desc_t operation;
    dnnl_status_t status = dnnl_convolution_backward_data_desc_init(
        &operation, dnnl_convolution_direct, c->src, c->weights, c->dst, c->strides, c->padding, c->padding);
    return status == dnnl_success ? choose_backward(forward, &operation, descriptor) : status;
}

dnnl_status_t api_convolution_backward_weights(const nn_op *forward, const api_convolution *c,
                                               dnnl_primitive_desc_t *descriptor)
{
    dnnl_convolution_desc_t operation;
    dnnl_status_t status = dnnl_convolution_backward_weights_desc_init(
        &operation, dnnl_convolution_direct, c->src, c->weights, c->bias, c->dst, c->strides, c->padding, c->padding);
    return status == dnnl_success ? choose_backward(forward, &operation, descriptor) : status;
}

dnnl_status_t api_batch_norm_forward(const nn_engine *e, const api_batch_norm *b, dnnl_prop_kind_t kind,
                                     dnnl_primitive_desc_t *descriptor)
{
    dnnl_batch_normalization_desc_t operation;
    dnnl_status_t status = dnnl_batch_normalization_forward_desc_init(&operation, kind, b->data, b->epsilon, b->flags);
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(descriptor, &operation, e->plain, e->engine, NULL);
}

dnnl_status_t api_batch_norm_backward(const nn_op *forward, const api_batch_norm *b, dnnl_primitive_desc_t *descriptor)
{
    dnnl_batch_normalization_desc_t operation;
    dnnl_status_t status =
        dnnl_batch_normalization_backward_desc_init(&operation, dnnl_backward, b->data, b->data, b->epsilon, b->flags);
    return status == dnnl_success ? choose_backward(forward, &operation, descriptor) : status;
}

dnnl_status_t api_pooling_forward(const nn_engine *e, const api_pooling *p, dnnl_primitive_desc_t *descriptor)
{
    dnnl_pooling_desc_t operation;
    dnnl_status_t status = dnnl_pooling_forward_desc_init(&operation, dnnl_forward_training, p->algorithm, p->src,
                                                          p->dst, p->strides, p->kernel, p->padding, p->padding);
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(descriptor, &operation, e->plain, e->engine, NULL);
}

dnnl_status_t api_pooling_backward(const nn_op *forward, const api_pooling *p, dnnl_primitive_desc_t *descriptor)
{
    dnnl_pooling_desc_t operation;
    dnnl_status_t status = dnnl_pooling_backward_desc_init(&operation, p->algorithm, p->src, p->dst, p->strides,
                                                           p->kernel, p->padding, p->padding);
    return status == dnnl_success ? choose_backward(forward, &operation, descriptor) : status;
}

dnnl_status_t api_matmul(const nn_engine *e, api_const_layout a, api_const_layout b, api_const_layout c,
                         dnnl_primitive_attr_t attributes, dnnl_primitive_desc_t *descriptor)
{
    dnnl_matmul_desc_t operation;
    dnnl_status_t status = dnnl_matmul_desc_init(&operation, a, b, NULL, c);
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(descriptor, &operation, attributes, e->engine, NULL);
}
