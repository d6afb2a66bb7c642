/* depthwise.h - a convolution along time, every channel by itself, within each utterance: beyond its ends are zeros.
 *
 *     y[t][c] = bias[c] + sum over k of weight[c][k] x[t + k - kernel / 2][c] */
#ifndef NN_DEPTHWISE_H
#define NN_DEPTHWISE_H

#include "buffer.h"
#include "rows.h"
#include "table.h"

typedef struct nn_depthwise {
    size_t width, kernel; /* kernel: odd */
    size_t weight, bias;  /* where they begin in the flat array */
    nn_range parameters;
    nn_buffer turned; /* the weight and then its gradient as (kernel, width), which the loops like better */
} nn_depthwise;

/* Declares "<name>.weight" (width, 1, kernel) and "<name>.bias". */
tw_status nn_depthwise_declare(const char *name, size_t width, size_t kernel, nn_table *table, nn_depthwise *layer);
void nn_depthwise_free(nn_depthwise *layer);

tw_status nn_depthwise_forward(nn_depthwise *layer, const float *values, const nn_rows *rows, const float *x, float *y);
/* Writes all gradients. x_gradient is not y_gradient's array. */
tw_status nn_depthwise_backward(nn_depthwise *layer, const float *values, const nn_rows *rows, const float *x,
                                const float *y_gradient, float *gradients, float *x_gradient);

#endif
