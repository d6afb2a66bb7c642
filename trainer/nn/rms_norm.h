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

/* Heads that stand side by side at the beginning of each of some rows, which are `stride` values apart: one norm for
 * all, and each head is normalised by itself. */
typedef struct nn_rms_heads {
    size_t rows, heads, stride;
} nn_rms_heads;

/* `scales` (rows, heads). What stands behind the heads is left alone. */
void nn_rms_norm_forward_heads(const nn_rms_norm *norm, const float *values, const nn_rms_heads *what, const float *x,
                               float *y, float *scales);
/* Writes the gradient of the weight, as above. `gradient`, laid out as x, is that of y and BECOMES that of x. */
void nn_rms_norm_backward_heads(const nn_rms_norm *norm, const float *values, const nn_rms_heads *what, const float *x,
                                const float *scales, float *gradients, float *gradient);

#endif
