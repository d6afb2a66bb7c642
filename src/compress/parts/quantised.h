/* quantised.h - the common half of every scheme that sends each element in a few bits: the residual, one section of
 * known length a tensor, and the sum of everybody's sections, block by block in the first-level cache. */
#ifndef TW_QUANTISED_H
#define TW_QUANTISED_H

#include "gather.h"
#include "kernels.h"

typedef struct tw_quantised tw_quantised;

/* What the scheme does for it. */
typedef struct tw_quantised_ops {
    size_t block; /* elements that `add` and tw_quantised_each_block take at a time: sections can be cut there */
    /* Bytes of the section of n elements. */
    size_t (*bytes)(const tw_scheme *scheme, size_t n);
    /* Writes tensor i's section, from this rank's share of the mean and the residual. */
    void (*encode)(tw_quantised *quantised, size_t tensor, unsigned char *section);
    /* What is wrong with a section of n elements that somebody sent, or NULL; *largest, which must be finite, is at
     * least the magnitude of any element in it. */
    const char *(*check)(const tw_scheme *scheme, const unsigned char *section, size_t n, float *largest);
    /* sum += elements first .. first + count - 1 of a section of n; first is a multiple of the block. */
    void (*add)(const tw_scheme *scheme, const unsigned char *section, size_t n, size_t first, size_t count,
                float *sum);
} tw_quantised_ops;

/* The head of such a scheme's struct. */
struct tw_quantised {
    tw_scheme scheme; /* first, as in every scheme's struct */
    const tw_quantised_ops *ops;
    float *residual;                 /* with feedback, of the compressed tensors, one after the other; else NULL */
    size_t *offset;                  /* of each tensor in it */
    unsigned char **own;             /* each tensor's section, in this rank's packet of the last step that had one */
    const unsigned char **delivered; /* a tensor's section, one a rank */
    tw_gather gather;
};

/* The most elements that a block may have. Larger ones are slower: memory would idle while a block is encoded. */
enum { TW_QUANTISED_BLOCK = 1024 };

/* Of a scheme whose struct begins with a tw_quantised; for its ops->create. */
tw_status tw_quantised_create(tw_scheme *scheme, const tw_quantised_ops *ops, int feedback);

#define TW_OPTION_SEED(type)                                                                                           \
    {                                                                                                                  \
        "seed", TW_OPTION_INTEGER, offsetof(type, seed), "1", 0, 2147483647, NULL,                                     \
            "of the random rounding; ranks, tensors and steps draw differently in any case"                            \
    }

/* Tensor i's residual. */
float *tw_quantised_residual(const tw_quantised *quantised, size_t tensor);

/* A block to encode: `count` values * scale, of which the first has the number `first` in a tensor of n. */
typedef struct tw_quantised_block {
    const float *values;
    float scale;
    size_t n, first, count;
    tw_noise noise; /* its first is that of the values */
} tw_quantised_block;

/* Writes the block's part of the section. */
typedef void (*tw_encode_block)(const tw_scheme *scheme, const tw_quantised_block *block, unsigned char *section);

/* Calls `encode` block by block, on scale * gradient or, with feedback, on the sum of it and the residual, from which
 * then goes what the section says. The key of the noise is made of the seed, the rank, the tensor and the step. */
void tw_quantised_each_block(tw_quantised *quantised, size_t tensor, unsigned char *section, int64_t seed,
                             tw_encode_block encode);

/* Reads and writes an fp32 at a place of any alignment. */
float tw_quantised_get_float(const unsigned char *src);
void tw_quantised_put_float(unsigned char *dst, float value);

/* The scheme's ops->next, revert, walk, plan and destroy. */
tw_status tw_quantised_next(tw_scheme *scheme, tw_round *round);
/* Puts what was sent back into the residual, if there is one. */
void tw_quantised_revert(tw_scheme *scheme);
/* The residual as "residual/NAME", and what the leftovers remember. */
tw_status tw_quantised_walk(tw_scheme *scheme, tw_walk *walk);
/* "qsgd: 4.06 bits an element" */
void tw_quantised_plan(const tw_scheme *scheme, size_t tensor, char *text, size_t capacity);
void tw_quantised_destroy(tw_scheme *scheme);

#endif
