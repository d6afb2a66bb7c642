/* aligned.h - chosen elements, the same ones on every rank, summed in one all-reduce, in fp32 or in half precision. */
#ifndef TW_ALIGNED_H
#define TW_ALIGNED_H

#include "dense.h"

typedef struct tw_aligned {
    tw_dtype dtype; /* as they travel */
    float largest;  /* the most that a rank sends of one, so that no sum leaves the format */
    size_t count;
    void *values;
} tw_aligned;

/* `choice` is one of TW_DENSE_CHOICES, `size` the number of ranks. */
tw_status tw_aligned_create(tw_aligned *aligned, int choice, int size, size_t count);
void tw_aligned_destroy(tw_aligned *aligned);

/* Bytes of the values that travel. */
size_t tw_aligned_bytes(const tw_aligned *aligned);

/* Puts n values to travel from the place `at` on; changes them to what the others will see: cut to the largest that may
 * be sent, and rounded. */
void tw_aligned_put(tw_aligned *aligned, size_t at, float *value, size_t n);

/* Asks for the all-reduce. A rank whose gradient is not finite makes the sum so. */
void tw_aligned_start(tw_aligned *aligned, int finite, tw_round *round);

/* A tensor that a sum comes back to: `count` elements at `dst`, of which the n that ascend in `index` travelled. */
typedef struct tw_aligned_tensor {
    float *dst;
    size_t count, n;
    const uint32_t *index;
} tw_aligned_tensor;

/* After the round: the tensor becomes the sums from `at` on, times `scale`, between zeros. 0 if they are not finite. */
int tw_aligned_spread(const tw_aligned *aligned, size_t at, float scale, tw_aligned_tensor tensor);

#endif
