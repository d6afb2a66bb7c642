/* engine.h - the primitives the layers are made of, and the one door to oneDNN.
 *
 * Only the files behind this header know oneDNN's API (engine_dnnl*.c: versions 2.x and 3.x). An op is a primitive with
 * its arguments; a memory is an array in whatever layout the primitives like best. Memories are placed (a region and an
 * offset) while a net is built, and get their bytes later, all at once, from nn_engine_bind: so the layers of a net can
 * share scratch space, and nets of several batch sizes can share parameters.
 *
 * The engine owns its ops and memories. An engine belongs to one thread at a time. */
#ifndef NN_ENGINE_H
#define NN_ENGINE_H

#include "error.h"
#include "precision.h"

typedef struct nn_engine nn_engine;
typedef struct nn_memory nn_memory;
typedef struct nn_op nn_op;

/* Where bytes come from. In the regions from NN_DIFF0 on, memories lie over each other at offset 0. */
typedef enum nn_region {
    NN_PARAMETERS,  /* flat f32, the model's */
    NN_GRADIENTS,   /* flat f32, laid out as the parameters */
    NN_BUFFERS,     /* flat f32, the model's */
    NN_INPUT,       /* the caller's images */
    NN_ACTIVATIONS, /* what forward keeps for backward */
    NN_DIFF0,       /* gradients of activations: three slots are enough for a chain with shortcuts */
    NN_DIFF1,
    NN_DIFF2,
    NN_DIFF3,      /* for what a shortcut with layers of its own brings back, until the branch is done */
    NN_TEMPORARY,  /* an op's arguments in the layout it wants */
    NN_SCRATCHPAD, /* an op's own */
    NN_REGIONS
} nn_region;

typedef enum nn_argument {
    NN_SRC,
    NN_DST,
    NN_WEIGHTS,
    NN_BIAS,
    NN_MEAN,
    NN_VARIANCE,
    NN_SCALE,
    NN_SHIFT,
    NN_WORKSPACE,
    NN_DIFF_SRC,
    NN_DIFF_DST,
    NN_DIFF_WEIGHTS,
    NN_DIFF_BIAS,
    NN_DIFF_SCALE,
    NN_DIFF_SHIFT,
    NN_ARGUMENTS
} nn_argument;

/* Its products and convolutions compute in `precision`. TW_ERROR_UNSUPPORTED: the processor has no instructions for it.
 */
tw_status nn_engine_create(nn_precision precision, nn_engine **engine);
void nn_engine_destroy(nn_engine *engine);

/* Makes ops of this thread run on this thread alone, unless the user has set OMP_NUM_THREADS. OpenMP keeps the number
 * per thread, and workers that each start a team of threads would fight for the processor. */
void nn_engine_enter(void);

/* The version of the library behind the engine, "2.6.3". */
void nn_engine_version(char *text, size_t capacity);

/* Arrays begin at multiples of this many bytes, where thinwire chooses: a cache line, and the widest vector. */
static inline size_t nn_aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* The bytes the placed memories need in a region. */
size_t nn_engine_bytes(const nn_engine *engine, nn_region region);
/* Gives every memory of a region its place in `bytes`, 64-byte aligned where the region is not the caller's. */
tw_status nn_engine_bind(nn_engine *engine, nn_region region, void *bytes);
/* What was bound last. */
void *nn_engine_bound(const nn_engine *engine, nn_region region);

/* A row-major f32 array. */
tw_status nn_memory_plain(nn_engine *engine, size_t dims, const size_t *shape, nn_memory **memory);
/* An array of the same shape and layout as another. */
tw_status nn_memory_like(const nn_memory *other, nn_memory **memory);
/* An array in the layout an op wants for an argument; NULL if the op takes no such argument. */
tw_status nn_memory_for(const nn_op *op, nn_argument argument, nn_memory **memory);
void nn_memory_place(nn_memory *memory, nn_region region, size_t offset);
/* Places it behind all that is in the region, or, in an overlaid region, at its beginning. */
void nn_memory_append(nn_memory *memory, nn_region region);

int nn_memory_same_layout(const nn_memory *a, const nn_memory *b);
/* With the padding of the layout. */
size_t nn_memory_floats(const nn_memory *memory);
/* Valid once its region is bound. */
float *nn_memory_data(const nn_memory *memory);
/* For an image array (n, c, h, w) stored as (n, c/B, h, w, B): B. 0 for any other layout. */
size_t nn_memory_channel_block(const nn_memory *memory);

/* Attaches a memory; it must have the layout of nn_memory_for. */
void nn_op_set(nn_op *op, nn_argument argument, const nn_memory *memory);
/* Whether the op wants another layout for an argument than `memory` has. */
int nn_op_wants_other_layout(const nn_op *op, nn_argument argument, const nn_memory *memory);
/* Attaches a new array in the layout the op wants, alive until another op with temporaries is about to run. */
tw_status nn_op_set_temporary(nn_op *op, nn_argument argument, nn_memory **memory);
/* Runs to completion. NULL does nothing: an optional step that was not needed. */
tw_status nn_op_run(nn_op *op);

/* Copies src to dst, from layout to layout. Arguments are set. */
tw_status nn_op_reorder(const nn_memory *src, const nn_memory *dst, nn_op **op);

typedef struct nn_convolution_shape {
    size_t images, channels, height, width; /* of the source */
    size_t filters, kernel, stride, padding;
    int bias, relu;
} nn_convolution_shape;

/* The three passes of a convolution. Each chooses the layouts of all its images and of the weights (filters, channels,
 * kernel, kernel); usually, but not always, they agree. In bf16 they read rounded arrays; what they write is f32. */
tw_status nn_op_convolution_forward(nn_engine *engine, const nn_convolution_shape *shape, nn_op **op);
tw_status nn_op_convolution_backward_data(const nn_convolution_shape *shape, const nn_op *forward, nn_op **op);
tw_status nn_op_convolution_backward_weights(const nn_convolution_shape *shape, const nn_op *forward, nn_op **op);

typedef enum nn_statistics {
    NN_STATISTICS_OF_BATCH, /* writes mean and variance */
    NN_STATISTICS_GIVEN     /* reads them */
} nn_statistics;

typedef struct nn_batch_norm_shape {
    float epsilon;
    int relu; /* forward over the batch's statistics then shares a workspace with backward */
} nn_batch_norm_shape;

/* Batch normalisation with scale and shift, in `data`'s layout. `forward` is the op that saw the batch. */
tw_status nn_op_batch_norm_forward(const nn_batch_norm_shape *shape, nn_statistics statistics, const nn_memory *data,
                                   nn_op **op);
tw_status nn_op_batch_norm_backward(const nn_batch_norm_shape *shape, const nn_op *forward, const nn_memory *data,
                                    nn_op **op);

typedef struct nn_pooling_shape {
    size_t kernel[2], stride, padding; /* a remainder at the border is dropped; padding is never the maximum */
    int average;                       /* 0: maximum, which shares a workspace with backward */
} nn_pooling_shape;

/* forward chooses dst's layout. */
tw_status nn_op_pooling_forward(const nn_pooling_shape *shape, const nn_memory *src, nn_op **op);
tw_status nn_op_pooling_backward(const nn_pooling_shape *shape, const nn_op *forward, const nn_memory *src,
                                 const nn_memory *dst, nn_op **op);

#endif
