/* affine.c - three matrix products and the sums that the bias needs. */
#include "affine.h"

#include "product.h"

#include <string.h>

tw_status nn_affine_forward(nn_engine *engine, const nn_affine_shape *shape, const float *weight, const float *bias,
                            const float *x, float *y)
{
    nn_product product = {.transpose_b = 1, .m = shape->rows, .n = shape->outputs, .k = shape->inputs, .beta = 1.0f};
    for (size_t i = 0; i < shape->rows; i++) memcpy(y + i * shape->outputs, bias, shape->outputs * sizeof *y);
    return nn_multiply(engine, &product, x, weight, y);
}

void nn_sum_rows(const float *rows, size_t count, size_t columns, float *sum)
{
    memset(sum, 0, columns * sizeof *sum);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < columns; j++) sum[j] += rows[i * columns + j];
}

tw_status nn_affine_backward_parameters(nn_engine *engine, const nn_affine_shape *shape, const float *x,
                                        const float *y_gradient, float *weight_gradient, float *bias_gradient)
{
    nn_product product = {.transpose_a = 1, .m = shape->outputs, .n = shape->inputs, .k = shape->rows};
    nn_sum_rows(y_gradient, shape->rows, shape->outputs, bias_gradient);
    return nn_multiply(engine, &product, y_gradient, x, weight_gradient);
}

tw_status nn_affine_backward_source(nn_engine *engine, const nn_affine_shape *shape, const float *weight,
                                    const float *y_gradient, float *x_gradient)
{
    nn_product product = {.m = shape->rows, .n = shape->inputs, .k = shape->outputs};
    return nn_multiply(engine, &product, y_gradient, weight, x_gradient);
}
