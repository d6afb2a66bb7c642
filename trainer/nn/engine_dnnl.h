/* engine_dnnl.h - what the files that speak to oneDNN share. No layer includes it.
 *
 * Engines, memories, and what an op is made of do not depend on oneDNN's version: engine_dnnl.c, engine_dnnl_memory.c,
 * engine_dnnl_ops.c, engine_dnnl_product.c. They call the functions api_*, which hide what does: engine_dnnl2.c or
 * engine_dnnl3.c, of which one is compiled. */
#ifndef NN_ENGINE_DNNL_H
#define NN_ENGINE_DNNL_H

#include "buffer.h"
#include "engine.h"
#include "engine_room.h"

#include <oneapi/dnnl/dnnl.h>

/* Layouts are passed by reference. A memory or an op owns those it is asked for, api_describe's caller the others. */
#if DNNL_VERSION_MAJOR == 2
typedef dnnl_memory_desc_t *api_layout;
typedef const dnnl_memory_desc_t *api_const_layout;
#elif DNNL_VERSION_MAJOR == 3
typedef dnnl_memory_desc_t api_layout;
typedef const_dnnl_memory_desc_t api_const_layout;
#else
#error "engine_dnnl*.c speak the APIs of oneDNN 2.x and 3.x"
#endif

struct nn_memory {
    nn_engine *engine;
    nn_memory *next;
    dnnl_memory_t handle;
    api_const_layout layout; /* the handle's */
    nn_region region;        /* NN_REGIONS: not placed */
    size_t offset;
};

struct nn_op {
    nn_engine *engine;
    nn_op *next;
    dnnl_primitive_desc_t descriptor;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arguments[NN_ARGUMENTS + 1]; /* and the scratchpad */
    int count;
    size_t temporary_bytes;
};

/* A product of matrices of one shape. */
typedef struct engine_product engine_product;

struct nn_engine {
    nn_precision precision;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t plain, relu; /* attributes without and with a ReLU after the op */
    nn_memory *memories;
    nn_op *ops;
    size_t bytes[NN_REGIONS];
    void *bound[NN_REGIONS];
    engine_product *products; /* the last used first */
    nn_buffer workspace;      /* of a product */
};

/* oneDNN's status as ours; `what` names what was wanted. */
tw_status engine_check(dnnl_status_t status, const char *what);
/* Describes an array; api_forget the layout. */
tw_status engine_describe(size_t dims, const size_t *shape, dnnl_data_type_t type, dnnl_format_tag_t tag,
                          api_layout *layout);
/* The layout an op wants for an argument (DNNL_ARG_...); it lives as long as the descriptor. */
api_const_layout engine_wanted_layout(const_dnnl_primitive_desc_t descriptor, int argument);
/* oneDNN's name for what it has chosen: "brg:avx512_core_bf16". */
const char *engine_implementation(const_dnnl_primitive_desc_t descriptor);
/* Whether that computes in bf16 with the processor's instructions. NULL: no. */
int engine_is_native(const_dnnl_primitive_desc_t descriptor);
/* Whether a product does: see nn_find_bf16. */
tw_status engine_find_bf16(const nn_engine *e, int *native, char *implementation, size_t capacity);
void engine_forget_products(nn_engine *e);
/* Makes the op of a descriptor, if `described` says that there is one, and takes it over, whatever happens. */
tw_status engine_make_op(nn_engine *e, dnnl_status_t described, dnnl_primitive_desc_t descriptor, const char *what,
                         nn_op **op);

/* ---- what depends on the version ---- */

/* A layout's parts. The strides and blocks of one that is not blocked (in oneDNN's sense) are NULL. */
typedef struct api_layout_parts {
    int dims, block_count;
    const dnnl_dim_t *size, *padded_size, *strides, *blocks, *blocked_dims;
} api_layout_parts;

dnnl_status_t api_describe(int dims, const dnnl_dims_t size, dnnl_data_type_t type, dnnl_format_tag_t tag,
                           api_layout *layout);
void api_forget(api_layout layout);
api_layout_parts api_take_apart(api_const_layout layout);
dnnl_status_t api_append_relu(dnnl_post_ops_t after);
/* Adds what was in dst, times `scale`. */
dnnl_status_t api_append_sum(dnnl_post_ops_t after, float scale);
/* Whether an op that is offered an argument (DNNL_ARG_...) must get it, or must not. */
int api_takes(const nn_op *op, int argument);

typedef struct api_convolution {
    api_layout src, weights, bias, dst; /* bias may be NULL */
    dnnl_dims_t strides, padding;
    dnnl_primitive_attr_t attributes; /* of the forward pass */
} api_convolution;

typedef struct api_batch_norm {
    api_const_layout data;
    float epsilon;
    unsigned flags;
} api_batch_norm;

typedef struct api_pooling {
    dnnl_alg_kind_t algorithm;
    api_const_layout src, dst;
    dnnl_dims_t kernel, strides, padding;
} api_pooling;

/* Primitive descriptors. `forward` is the op whose gradient is wanted. */
dnnl_status_t api_convolution_forward(const nn_engine *e, const api_convolution *c, dnnl_primitive_desc_t *descriptor);
dnnl_status_t api_convolution_backward_data(const nn_op *forward, const api_convolution *c,
                                            dnnl_primitive_desc_t *descriptor);
dnnl_status_t api_convolution_backward_weights(const nn_op *forward, const api_convolution *c,
                                               dnnl_primitive_desc_t *descriptor);
dnnl_status_t api_batch_norm_forward(const nn_engine *e, const api_batch_norm *b, dnnl_prop_kind_t kind,
                                     dnnl_primitive_desc_t *descriptor);
dnnl_status_t api_batch_norm_backward(const nn_op *forward, const api_batch_norm *b, dnnl_primitive_desc_t *descriptor);
dnnl_status_t api_pooling_forward(const nn_engine *e, const api_pooling *p, dnnl_primitive_desc_t *descriptor);
dnnl_status_t api_pooling_backward(const nn_op *forward, const api_pooling *p, dnnl_primitive_desc_t *descriptor);
dnnl_status_t api_matmul(const nn_engine *e, api_const_layout a, api_const_layout b, api_const_layout c,
                         dnnl_primitive_attr_t attributes, dnnl_primitive_desc_t *descriptor);

#endif
