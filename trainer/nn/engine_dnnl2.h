/* engine_dnnl2.h - what the two files that speak oneDNN 2.x share. No layer includes it. */
#ifndef NN_ENGINE_DNNL2_H
#define NN_ENGINE_DNNL2_H

#include "engine.h"

#include <oneapi/dnnl/dnnl.h>

#if DNNL_VERSION_MAJOR != 2
#error "engine_dnnl2*.c speak the API of oneDNN 2.x"
#endif

struct nn_memory {
    nn_engine *engine;
    nn_memory *next;
    dnnl_memory_desc_t layout;
    dnnl_memory_t handle;
    nn_region region; /* NN_REGIONS: not placed */
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

struct nn_engine {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t plain, relu; /* attributes without and with a ReLU after the op */
    nn_memory *memories;
    nn_op *ops;
    size_t bytes[NN_REGIONS];
    void *bound[NN_REGIONS];
};

/* oneDNN's status as ours; `what` names what was wanted. */
tw_status dnnl2_check(dnnl_status_t status, const char *what);
tw_status dnnl2_describe(size_t dims, const size_t *shape, dnnl_format_tag_t tag, dnnl_memory_desc_t *layout);
/* `forward` is the op whose gradient this one is, or NULL. */
tw_status dnnl2_make_op(nn_engine *e, const_dnnl_op_desc_t operation, dnnl_primitive_attr_t attributes,
                        const nn_op *forward, const char *what, nn_op **op);

#endif
