/* layer_norm.h - y = (x - mean) / deviation * weight + bias, with mean and deviation of each row (Ba et al. 2016). */
#ifndef NN_LAYER_NORM_H
#define NN_LAYER_NORM_H

#include "table.h"

typedef struct nn_layer_norm {
    size_t width;
    size_t weight, bias; /* where they begin in the flat array */
    nn_range parameters;
} nn_layer_norm;

/* Declares "<name>.weight" and "<name>.bias". */
tw_status nn_layer_norm_declare(const char *name, size_t width, nn_table *table, nn_layer_norm *norm);

/* `moments` (rows, 2): mean and 1 / deviation of each row, for backward. y may not be x. */
void nn_layer_norm_forward(const nn_layer_norm *norm, const float *values, size_t rows, const float *x, float *y,
                           float *moments);
/* Writes the gradients of weight and bias, and ADDS that of x to x_gradient, for a norm stands at the beginning of a
 * branch. */
void nn_layer_norm_backward(const nn_layer_norm *norm, const float *values, size_t rows, const float *x,
                            const float *moments, const float *y_gradient, float *gradients, float *x_gradient);

#endif
