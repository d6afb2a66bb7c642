/* product.h - products of matrices, in the engine's precision.
 *
 * Matrices are f32, row-major, without gaps where nothing else is said. An engine of NN_BF16 keeps what it has prepared
 * for the shapes it has seen, since they come again. It stays with fp32 where rounding the operands would take longer
 * than it saves. */
#ifndef NN_PRODUCT_H
#define NN_PRODUCT_H

#include "buffer.h"
#include "engine.h"

/* C(m, n) = A(m, k) B(k, n) + beta C; a flag says that A or B is stored transposed. */
typedef struct nn_product {
    int transpose_a, transpose_b;
    size_t m, n, k;
    float beta;
} nn_product;

tw_status nn_multiply(nn_engine *engine, const nn_product *product, const float *a, const float *b, float *c);

/* The same of parts of matrices, in fp32: C = alpha A B + beta C, where the rows of A, B and C, as they are stored,
 * begin a, b and c values after one another. */
typedef struct nn_strides {
    size_t a, b, c;
} nn_strides;
tw_status nn_multiply_parts(const nn_product *product, float alpha, const nn_strides *strides, const float *a,
                            const float *b, float *c);

/* B of many products with other A and C, brought once into the form that is fastest: for few rows, what that takes is
 * as long as the product. All zero: an empty one. */
typedef struct nn_factor {
    nn_engine *engine;
    nn_product product;
    const float *values; /* as product.transpose_b says; NULL: `own` holds what oneDNN likes best */
    nn_buffer own;
} nn_factor;

/* May be repeated, with another product too. `b` stays as it is until the last nn_factor_multiply. */
tw_status nn_factor_prepare(nn_engine *engine, const nn_product *product, const float *b, nn_factor *factor);
tw_status nn_factor_multiply(const nn_factor *factor, const float *a, float *c);
void nn_factor_free(nn_factor *factor);

#endif
