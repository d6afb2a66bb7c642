/* lowrank.h - products of a large matrix with a few vectors (PowerSGD). A part of the table in kernels.h; its rules
 * hold. */
#ifndef TW_KERNELS_LOWRANK_H
#define TW_KERNELS_LOWRANK_H

#include <stddef.h>

/* Of vectors of n floats: `rows` at dst, each dst_stride behind the one before, and `count` at x, each `stride` behind
 * it. x_k in row r has the coefficient c[r * c_row + k * c_step]. */
typedef struct tw_combinations {
    float *dst;
    size_t dst_stride, rows;
    const float *x;
    size_t stride, count;
    const float *c;
    size_t c_row, c_step;
    size_t n;
    const float *added; /* unless NULL, a vector for each row, as they lie at dst, that is added last, times factor */
    float factor;
    int from_zero;  /* rows begin as zeros, and not as what they hold */
    int x_is_large; /* for speed alone: x is part of the large matrix, of which more will come behind it */
    int past_cache; /* for speed alone: dst is larger than a cache, and is written past it where the level can */
} tw_combinations;

typedef struct tw_lowrank_rows {
    /* Each row += c_0*x_0 + c_1*x_1 + ... + factor*added, one by one in that order. */
    void (*add_combinations)(const tw_combinations *sums);
    /* products[k] = the inner product of y and x_k, of `count` vectors that are `stride` apart: sixteen partial sums
     * over i mod 16, then folded by halves (8, 4, 2, 1). */
    void (*inner_products)(float *products, const float *y, const float *x, size_t stride, size_t count, size_t n);
} tw_lowrank_rows;

/* The reference. */
extern const tw_lowrank_rows tw_lowrank_scalar;

/* Ends an inner product: adds the products of x and y to the sixteen partial sums, x[0]*y[0] to the first, and folds.
 */
float tw_finish_inner_product(float partial[16], const float *x, const float *y, size_t n);

#endif
