/* projection.h - a linear layer with bias over the rows of a sequence: tensors "<name>.weight" (outputs, inputs) and
 * "<name>.bias". */
#ifndef MODEL_PROJECTION_H
#define MODEL_PROJECTION_H

#include "engine.h"
#include "table.h"

typedef struct projection {
    size_t inputs, outputs;
    size_t weight, bias; /* in the flat array */
    nn_range parameters; /* its own tensors in the table */
    nn_engine *engine;
} projection;

/* Weights begin uniformly between -range and range, biases between -bias_range and bias_range. */
typedef struct projection_options {
    const char *name;
    size_t inputs, outputs;
    float range, bias_range;
    nn_engine *engine; /* computes the products; lives as long as the layer */
} projection_options;

tw_status projection_declare(const projection_options *options, nn_table *table, projection *p);
/* One whose weight is another tensor of that shape, at offset `weight`: only the bias is declared. */
tw_status projection_declare_tied(const projection_options *options, size_t weight, nn_table *table, projection *p);

/* y (rows, outputs) of x (rows, inputs). */
tw_status projection_forward(const projection *p, const float *values, size_t rows, const float *x, float *y);
/* Writes the gradients of weight and bias into the flat array. */
tw_status projection_backward_parameters(const projection *p, size_t rows, const float *x, const float *y_gradient,
                                         float *gradients);
tw_status projection_backward_source(const projection *p, const float *values, size_t rows, const float *y_gradient,
                                     float *x_gradient);

#endif
