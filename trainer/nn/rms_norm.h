/* rms_norm.h - y = x / root mean square of the row * weight (Zhang and Sennrich 2019): a layer norm without mean and
 * bias. */
#ifndef NN_RMS_NORM_H
#define NN_RMS_NORM_H

#include "table.h"

/* What is added to the mean square, as a rule. */
#define NN_RMS_EPSILON 1e-5f

typedef struct nn_rms_norm {
    size_t width;
    float epsilon;
    size_t weight; /* where it begins in the flat array */
    nn_range parameters;
} nn_rms_norm;

/* Declares "<name>.weight". */
tw_status nn_rms_norm_declare(const char *name, size_t width, float epsilon, nn_table *table, nn_rms_norm *norm);

/* `scales` (rows): 1 / root mean square of each row, for backward. y may not be x. */
void nn_rms_norm_forward(const nn_rms_norm *norm, const float *values, size_t rows, const float *x, float *y,
                         float *scales);
/* Writes the gradient of the weight, unless `gradients` is NULL, and ADDS that of x to x_gradient, for a norm stands at
 * the beginning of a branch. */
void nn_rms_norm_backward(const nn_rms_norm *norm, const float *values, size_t rows, const float *x,
                          const float *scales, const float *y_gradient, float *gradients, float *x_gradient);

#endif
