/* quantised.h - the common half of every scheme that sends each element in a few bits: the residual, sections of known
 * length, and the sum of everybody's sections, block by block in the first-level cache.
 *
 * Up to four ranks hand each other one packet, with a section a tensor. More go by way of scatter.h, which is fewer
 * bytes: what is encoded then is each piece of a tensor, and the sums of this rank's pieces anew. With feedback, what
 * that second rounding loses has a residual of its own, added to the next step's sums. */
#ifndef TW_QUANTISED_H
#define TW_QUANTISED_H

#include "gather.h"
#include "kernels.h"
#include "sums.h"

typedef struct tw_quantised tw_quantised;

/* What becomes one section: n elements of a tensor, this rank's share of them or everybody's sum. */
typedef struct tw_quantised_part {
    size_t tensor, n;
    size_t index;        /* among all parts of a step: below tw_quantised_parts */
    const float *values; /* times scale, and with feedback added to the residual, is what is to be encoded */
    float *unseen;       /* the same, of a gradient that nobody has looked at; else NULL */
    float scale;
    float *residual;
    uint64_t stream; /* of the noise, and the number that its first element has in it */
    size_t first;
    float *before; /* of a sum that is open: where encode notes what it has, once it is closed, for revert; else NULL */
} tw_quantised_part;

/* A block to encode: `count` values * scale, of which the first has the number `first` in a section of n. */
typedef struct tw_quantised_block {
    const float *values;
    float scale;
    size_t n, first, count;
    tw_noise noise; /* its first is that of the values */
    tw_quantised *quantised;
    const tw_quantised_part *unseen; /* their part, if nobody has looked at them; else NULL */
} tw_quantised_block;

/* What the scheme does for it. */
typedef struct tw_quantised_ops {
    size_t block; /* elements that `add` and `encode_block` take at a time: sections can be cut there */
    /* Bytes of the section of n elements. One of zero bytes says zero of each. */
    size_t (*bytes)(const tw_scheme *scheme, size_t n);
    /* Writes a block's part of the section, for tw_quantised_encode_blocks. It encodes no value before it has asked
     * tw_quantised_peak for its peak. */
    void (*encode_block)(const tw_scheme *scheme, const tw_quantised_block *block, unsigned char *section);
    /* Writes a part's section, and leaves in the residual what it does not say. Of a scheme that has a close it also
     * closes sums, and notes them in the part's `before`. */
    void (*encode)(tw_quantised *quantised, const tw_quantised_part *part, unsigned char *section);
    /* (optional) Closes in a part's residual what the scheme leaves open until it is encoded again. */
    void (*close)(tw_quantised *quantised, const tw_quantised_part *part);
    /* What is wrong with a section of n elements that somebody sent, or NULL; *largest, which must be finite, is at
     * least the magnitude of any element in it. */
    const char *(*check)(const tw_scheme *scheme, const unsigned char *section, size_t n, float *largest);
    /* Adds elements first .. first + to->n - 1 of a section of n, at most a block; first is a multiple of it. */
    void (*add)(const tw_scheme *scheme, const unsigned char *section, size_t n, size_t first, const tw_addition *to);
    /* (optional) Adds to the sum of all ranks' sections of a piece, which are in `delivered`, what a rank leaves out
     * that has no gradient for it. Such a scheme takes no wide road, on which nobody sees sections. */
    void (*fill)(const tw_quantised *quantised, const tw_piece *piece, float *sum);
} tw_quantised_ops;

/* The head of such a scheme's struct. */
struct tw_quantised {
    tw_scheme scheme; /* first, as in every scheme's struct */
    const tw_quantised_ops *ops;
    int exchange;                    /* an option: a tw_quantised_exchange */
    int64_t seed;                    /* an option of those that round at random */
    int feedback;                    /* an option: there is a residual */
    float *residual;                 /* with feedback, of the compressed tensors, one after the other; else NULL */
    size_t *offset;                  /* of each tensor in it */
    tw_sums sums;                    /* the same of this rank's pieces */
    unsigned char **own;             /* each part's section, in this rank's packets of the last step that had one */
    const unsigned char **delivered; /* a tensor's section, one a rank */
    tw_gather gather;
};

/* How sections come together: the choices of the option, in this order. AUTO gathers among four at most. */
typedef enum tw_quantised_exchange { TW_EXCHANGE_AUTO, TW_EXCHANGE_GATHER, TW_EXCHANGE_SCATTER } tw_quantised_exchange;

#define TW_OPTION_EXCHANGE                                                                                             \
    TW_OPTION(                                                                                                         \
        "exchange", TW_OPTION_CHOICE, offsetof(tw_quantised, exchange), "auto", 0, 0, "auto|gather|scatter",           \
        "gather: to all ranks; scatter: in pieces, which are summed and encoded anew; auto: gather up to 4 ranks")

/* The most elements that a block may have. Larger ones are slower: memory would idle while a block is encoded. */
enum { TW_QUANTISED_BLOCK = 1024 };

/* Of a scheme whose struct begins with a tw_quantised; for its ops->create. */
tw_status tw_quantised_create(tw_scheme *scheme, const tw_quantised_ops *ops);

#define TW_OPTION_SEED                                                                                                 \
    TW_OPTION("seed", TW_OPTION_INTEGER, offsetof(tw_quantised, seed), "1", 0, 2147483647, NULL,                       \
              "of the random rounding; ranks, tensors and steps draw differently in any case")

/* Calls encode_block block by block, on scale * values or, with feedback, on the sum of it and the residual, from which
 * then goes what the section says. The key of the noise is made of the seed, the rank, the tensor, the step and whether
 * it is a share or a sum. */
void tw_quantised_encode_blocks(tw_quantised *quantised, const tw_quantised_part *part, unsigned char *section);

/* The largest magnitude of values at .. at + count - 1 of a block, `at` a multiple of TW_GROUP. It also tells whether
 * they must be looked at, and if so they are: what is not sound in them becomes zero first. */
float tw_quantised_peak(const tw_quantised_block *block, size_t at, size_t count);

/* What a scheme's only pass does with each block of a part, before anything else: elements first .. first + count - 1,
 * `first` a multiple of TW_GROUP. What is not sound in them becomes zero (sound.h). */
void tw_quantised_look(tw_quantised *quantised, const tw_quantised_part *part, size_t first, size_t count);

/* The number of parts; and of those that this rank encodes, each of its shares, each of the sums. */
size_t tw_quantised_parts(const tw_quantised *quantised);
typedef void (*tw_quantised_visit)(tw_quantised *quantised, const tw_quantised_part *part);
void tw_quantised_each_share(tw_quantised *quantised, tw_quantised_visit visit);
void tw_quantised_each_sum(tw_quantised *quantised, tw_quantised_visit visit);

/* The layout of a section of schemes that send a byte an element: first a byte for each TW_QUANTISED_BLOCK of them, the
 * exponent of a float, 0 for a block of zeros; then the elements. */
size_t tw_bytewise_head(size_t n);
size_t tw_bytewise_bytes(const tw_scheme *scheme, size_t n);
/* The float that has this exponent. */
float tw_power_of_two(int exponent);

/* Reads and writes an fp32 at a place of any alignment. */
float tw_quantised_get_float(const unsigned char *src);
void tw_quantised_put_float(unsigned char *dst, float value);

/* The scheme's ops->next, revert, walk, plan and destroy; all of them at once. */
tw_status tw_quantised_next(tw_scheme *scheme, tw_round *round);
/* Puts what was sent back into the residual, if there is one; that of the sums is as it was before the step. */
void tw_quantised_revert(tw_scheme *scheme);
/* For a revert of the scheme's own: that of the leftovers, and of the sums; 1 if the step had come to any. */
int tw_quantised_revert_sums(tw_quantised *quantised);
/* The residual as "residual/NAME", that of the sums as "section/NAME", and what the leftovers remember. */
tw_status tw_quantised_walk(tw_scheme *scheme, tw_walk *walk);
/* "qsgd: 4.06 bits an element, in pieces: that is less" */
void tw_quantised_plan(const tw_scheme *scheme, size_t tensor, char *text, size_t capacity);
void tw_quantised_destroy(tw_scheme *scheme);
#define TW_QUANTISED_STEPS                                                                                             \
    .next = tw_quantised_next, .revert = tw_quantised_revert, .walk = tw_quantised_walk, .plan = tw_quantised_plan,    \
    .destroy = tw_quantised_destroy

#endif
