/* affine.h - y = x W' + b over rows, with x (rows, inputs) and W (outputs, inputs). */
#ifndef NN_AFFINE_H
#define NN_AFFINE_H

#include "engine.h"

#include <stddef.h>

typedef struct nn_affine_shape {
    size_t rows, inputs, outputs;
} nn_affine_shape;

tw_status nn_affine_forward(nn_engine *engine, const nn_affine_shape *shape, const float *weight, const float *bias,
                            const float *x, float *y);
/* Gradients of weight and bias are written, not added. */
tw_status nn_affine_backward_parameters(nn_engine *engine, const nn_affine_shape *shape, const float *x,
                                        const float *y_gradient, float *weight_gradient, float *bias_gradient);
tw_status nn_affine_backward_source(nn_engine *engine, const nn_affine_shape *shape, const float *weight,
                                    const float *y_gradient, float *x_gradient);

/* sum = the sum of `count` rows of `columns` values, from the first to the last. */
void nn_sum_rows(const float *rows, size_t count, size_t columns, float *sum);

#endif
