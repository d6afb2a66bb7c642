/* affine.h - y = x W' + b over rows, with x (rows, inputs) and W (outputs, inputs). W and b stand in a flat array. */
#ifndef NN_AFFINE_H
#define NN_AFFINE_H

#include "engine.h"
#include "lora.h"
#include "table.h"

#include <stddef.h>

typedef struct nn_affine {
    size_t inputs, outputs;
    size_t weight, bias; /* where they begin in the flat array */
    nn_range parameters; /* the tensors of a table that were declared for it; none where others declared them */
    nn_engine *engine;   /* computes the products; lives as long as the layer */
    int plain;           /* y = x W': there is no bias */
    nn_lora_pairs lora;  /* what it adds to y besides */
} nn_affine;

/* Weights begin uniformly between -range and range, biases between -bias_range and bias_range. */
typedef struct nn_affine_options {
    const char *name;
    size_t inputs, outputs;
    float range, bias_range;
    nn_engine *engine;
} nn_affine_options;

/* Declares the tensors "<name>.weight" and "<name>.bias". */
tw_status nn_affine_declare(const nn_affine_options *options, nn_table *table, nn_affine *a);
/* One whose weight is another tensor of that shape, at offset `weight`: only the bias is declared. */
tw_status nn_affine_declare_tied(const nn_affine_options *options, size_t weight, nn_table *table, nn_affine *a);
/* Plain: "<name>.weight" alone. */
tw_status nn_affine_declare_plain(const nn_affine_options *options, nn_table *table, nn_affine *a);

/* y (rows, outputs) of x (rows, inputs). */
tw_status nn_affine_forward(const nn_affine *a, const float *values, size_t rows, const float *x, float *y);
/* Writes, and does not add, the gradients of weight and bias into the flat array, unless that is NULL: they do not
 * learn. Those of adapters are written where these are. */
tw_status nn_affine_backward_parameters(const nn_affine *a, size_t rows, const float *x, const float *y_gradient,
                                        float *gradients);
tw_status nn_affine_backward_source(const nn_affine *a, const float *values, size_t rows, const float *y_gradient,
                                    float *x_gradient);

/* sum = the sum of `count` rows of `columns` values, from the first to the last. */
void nn_sum_rows(const float *rows, size_t count, size_t columns, float *sum);

#endif
