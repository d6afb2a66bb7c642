/* lowrank.h - products of a large matrix with a few vectors (PowerSGD). A part of the table in kernels.h; its rules
 * hold.
 *
 * x stands for `count` vectors of n floats each: vector k begins at x + k * stride. */
#ifndef TW_KERNELS_LOWRANK_H
#define TW_KERNELS_LOWRANK_H

#include <stddef.h>
#include <stdint.h>

typedef struct tw_lowrank_rows {
    /* dst += c[0]*x_0 + c[1]*x_1 + ..., added one by one in that order. dst is not among them. */
    void (*add_combination)(float *dst, const float *x, size_t stride, size_t count, const float *c, size_t n);
    /* products[k] = the inner product of y and x_k: sixteen partial sums over i mod 16, then folded by halves (8, 4, 2,
     * 1). */
    void (*inner_products)(float *products, const float *y, const float *x, size_t stride, size_t count, size_t n);
} tw_lowrank_rows;

/* The reference. */
extern const tw_lowrank_rows tw_lowrank_scalar;

/* Ends an inner product: adds the products of x and y to the sixteen partial sums, x[0]*y[0] to the first, and folds.
 */
float tw_finish_inner_product(float partial[16], const float *x, const float *y, size_t n);

#endif
