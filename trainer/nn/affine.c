/* affine.c - three matrix products and the sums that the bias needs. */
#include "affine.h"

#include "product.h"

#include <string.h>

tw_status nn_affine_declare_tied(const nn_affine_options *options, size_t weight, nn_table *table, nn_affine *a)
{
    const nn_declaration bias = {options->name, "bias", 1, {options->outputs}, NN_INITIAL_UNIFORM, options->bias_range};
    *a = (nn_affine){.inputs = options->inputs,
                     .outputs = options->outputs,
                     .weight = weight,
                     .bias = table->elements,
                     .parameters = {table->count, table->count + 1},
                     .engine = options->engine};
    return nn_table_declare(table, &bias);
}

static tw_status declare_weight(const nn_affine_options *options, nn_table *table)
{
    const nn_declaration weight = {options->name,      "weight",      2, {options->outputs, options->inputs},
                                   NN_INITIAL_UNIFORM, options->range};
    return nn_table_declare(table, &weight);
}

tw_status nn_affine_declare_plain(const nn_affine_options *options, nn_table *table, nn_affine *a)
{
    *a = (nn_affine){.inputs = options->inputs,
                     .outputs = options->outputs,
                     .weight = table->elements,
                     .parameters = {table->count, table->count + 1},
                     .engine = options->engine,
                     .plain = 1};
    return declare_weight(options, table);
}

tw_status nn_affine_declare(const nn_affine_options *options, nn_table *table, nn_affine *a)
{
    size_t offset = table->elements;
    TW_TRY(declare_weight(options, table));
    TW_TRY(nn_affine_declare_tied(options, offset, table, a));
    a->parameters.first--;
    return TW_OK;
}

static nn_lora_rows rows_of(const nn_affine *a, size_t rows)
{
    return (nn_lora_rows){rows, a->inputs, a->outputs};
}

tw_status nn_affine_forward(const nn_affine *a, const float *values, size_t rows, const float *x, float *y)
{
    nn_product product = {.transpose_b = 1, .m = rows, .n = a->outputs, .k = a->inputs, .beta = a->plain ? 0.0f : 1.0f};
    for (size_t i = 0; i < rows && !a->plain; i++) memcpy(y + i * a->outputs, values + a->bias, a->outputs * sizeof *y);
    TW_TRY(nn_multiply(a->engine, &product, x, values + a->weight, y));
    const nn_lora_rows size = rows_of(a, rows);
    return nn_lora_forward(&a->lora, &size, x, y);
}

void nn_sum_rows(const float *rows, size_t count, size_t columns, float *sum)
{
    memset(sum, 0, columns * sizeof *sum);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < columns; j++) sum[j] += rows[i * columns + j];
}

tw_status nn_affine_backward_parameters(const nn_affine *a, size_t rows, const float *x, const float *y_gradient,
                                        float *gradients)
{
    nn_product product = {.transpose_a = 1, .m = a->outputs, .n = a->inputs, .k = rows};
    const nn_lora_rows size = rows_of(a, rows);
    if (gradients && !a->plain) nn_sum_rows(y_gradient, rows, a->outputs, gradients + a->bias);
    if (gradients) TW_TRY(nn_multiply(a->engine, &product, y_gradient, x, gradients + a->weight));
    return nn_lora_backward_parameters(&a->lora, &size, x, y_gradient);
}

tw_status nn_affine_backward_source(const nn_affine *a, const float *values, size_t rows, const float *y_gradient,
                                    float *x_gradient)
{
    nn_product product = {.m = rows, .n = a->inputs, .k = a->outputs};
    const nn_lora_rows size = rows_of(a, rows);
    TW_TRY(nn_multiply(a->engine, &product, y_gradient, values + a->weight, x_gradient));
    return nn_lora_backward_source(&a->lora, &size, y_gradient, x_gradient);
}
