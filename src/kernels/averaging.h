/* averaging.h - how far weights are from others, and how gossip moves them towards those of its partners. A part of the
 * table in kernels.h; its rules hold. */
#ifndef TW_KERNELS_AVERAGING_H
#define TW_KERNELS_AVERAGING_H

#include <stddef.h>

/* An averaging under way: c = share * ((theirs[0] - sent) + (theirs[1] - sent) + ...), the terms in order. */
typedef struct tw_average {
    const float *const *theirs;
    size_t partners; /* 1 or more */
    const float *sent;
    float share;
    double squares[16]; /* of c so far: sums over i mod 16. Starts as zeros; tw_kernels_fold ends it */
} tw_average;

typedef struct tw_averaging_rows {
    /* dst = a - b; 1 if every |dst| is at most `most`, which NaN is not. dst may be a or b. past_cache: for speed
     * alone, dst is larger than a cache, and is written past it. */
    int (*difference)(float *dst, const float *a, const float *b, size_t n, float most, int past_cache);
    /* dst += c, or with add = 0 dst = c, for the elements from `first` on, a multiple of 16, in all of these arrays;
     * and adds to the squares. An array may come in pieces, all but the last a multiple of 16 long. With add = 0, dst
     * may be theirs[0]. */
    void (*draw)(tw_average *average, float *dst, size_t first, size_t n, int add);
} tw_averaging_rows;

/* The reference. */
extern const tw_averaging_rows tw_averaging_scalar;

#endif
