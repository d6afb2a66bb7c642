/* The reference of lowrank.h. */
#include "lowrank.h"

static void add_combination(float *dst, const float *x, size_t stride, size_t count, const float *c, size_t n)
{
    for (size_t k = 0; k < count; k++)
        for (size_t i = 0; i < n; i++) dst[i] += c[k] * x[k * stride + i];
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
    .add_combination = add_combination,
    .inner_products = inner_products,
};
