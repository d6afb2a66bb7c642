/* The reference of lowrank.h. */
#include "lowrank.h"

#include <string.h>

static void add_combinations(const tw_combinations *sums)
{
    for (size_t r = 0; r < sums->rows; r++) {
        float *dst = sums->dst + r * sums->dst_stride;
        if (sums->from_zero) memset(dst, 0, sums->n * sizeof *dst);
        for (size_t k = 0; k < sums->count; k++)
            for (size_t i = 0; i < sums->n; i++)
                dst[i] += sums->c[r * sums->c_row + k * sums->c_step] * sums->x[k * sums->stride + i];
        for (size_t i = 0; sums->added && i < sums->n; i++)
            dst[i] += sums->factor * sums->added[r * sums->dst_stride + i];
    }
}

float tw_finish_inner_product(float partial[16], const float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) partial[i % 16] += x[i] * y[i];
    for (int half = 8; half > 0; half /= 2)
        for (int k = 0; k < half; k++) partial[k] += partial[k + half];
    return partial[0];
}

static void inner_products(float *products, const float *y, const float *x, size_t stride, size_t count, size_t n)
{
    for (size_t k = 0; k < count; k++) {
        float partial[16] = {0};
        products[k] = tw_finish_inner_product(partial, y, x + k * stride, n);
    }
}

const tw_lowrank_rows tw_lowrank_scalar = {
    .add_combinations = add_combinations,
    .inner_products = inner_products,
};
