/* projection.c - where an affine function's tensors stand. */
#include "projection.h"

#include "affine.h"

tw_status projection_declare_tied(const projection_options *options, size_t weight, nn_table *table, projection *p)
{
    const nn_declaration bias = {options->name, "bias", 1, {options->outputs}, NN_INITIAL_UNIFORM, options->bias_range};
    *p = (projection){options->inputs, options->outputs, weight, table->elements, {table->count, table->count + 1},
                      options->engine};
    return nn_table_declare(table, &bias);
}

tw_status projection_declare(const projection_options *options, nn_table *table, projection *p)
{
    const nn_declaration weight = {options->name,      "weight",      2, {options->outputs, options->inputs},
                                   NN_INITIAL_UNIFORM, options->range};
    size_t offset = table->elements;
    TW_TRY(nn_table_declare(table, &weight));
    TW_TRY(projection_declare_tied(options, offset, table, p));
    p->parameters.first--;
    return TW_OK;
}

static nn_affine_shape shape_of(const projection *p, size_t rows)
{
    return (nn_affine_shape){rows, p->inputs, p->outputs};
}

tw_status projection_forward(const projection *p, const float *values, size_t rows, const float *x, float *y)
{
    const nn_affine_shape shape = shape_of(p, rows);
    return nn_affine_forward(p->engine, &shape, values + p->weight, values + p->bias, x, y);
}

tw_status projection_backward_parameters(const projection *p, size_t rows, const float *x, const float *y_gradient,
                                         float *gradients)
{
    const nn_affine_shape shape = shape_of(p, rows);
    return nn_affine_backward_parameters(p->engine, &shape, x, y_gradient, gradients + p->weight, gradients + p->bias);
}

tw_status projection_backward_source(const projection *p, const float *values, size_t rows, const float *y_gradient,
                                     float *x_gradient)
{
    const nn_affine_shape shape = shape_of(p, rows);
    return nn_affine_backward_source(p->engine, &shape, values + p->weight, y_gradient, x_gradient);
}
