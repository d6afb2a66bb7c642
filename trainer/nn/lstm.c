/* lstm.c - over a whole sequence where that is possible, step by step where it is not: of the six matrix products, only
 * the two with the recurrent weights wait for the step before. */
#include "lstm.h"

#include "affine.h"
#include "buffer.h"
#include "lstm_gates.h"
#include "product.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* States have one more place than there are steps, for the one before the first. Going forward, step t reads the state
 * at place t and leaves its own at t + 1; in reverse it reads at t + 1 and leaves at t. So the states that were read,
 * and those that were left, are each one contiguous matrix of (steps * batch) rows. */
typedef struct direction {
    int reverse;
    size_t input_weight, hidden_weight, bias; /* in the flat array */
    nn_buffer gates;                          /* (steps, batch, 4H): sums, then gates, then their gradients */
    nn_buffer outputs, cells;                 /* (steps + 1, batch, H) */
    nn_factor forward, backward;              /* the hidden weights, for either way */
} direction;

struct nn_lstm {
    nn_lstm_shape shape;
    nn_engine *engine;
    nn_range parameters;
    size_t directions;
    direction direction[2];
    nn_lstm_batch batch; /* of the last forward */
    nn_buffer running;   /* gradients that go from step to step: of the output and of the cell, (2, batch, H) */
};

/* ---- making ---- */

static tw_status lstm_declare(const nn_lstm_options *options, const char *kind, size_t columns, int reverse,
                              nn_table *table, size_t *offset)
{
    const size_t rows = 4 * options->shape.hidden;
    char name[64];
    snprintf(name, sizeof name, "%s_l%zu%s", kind, options->index, reverse ? "_reverse" : "");
    nn_declaration d = {.layer = options->name,
                        .name = name,
                        .dims = columns ? 2 : 1,
                        .shape = {rows, columns ? columns : 1},
                        .initial = NN_INITIAL_UNIFORM,
                        .scale = options->range};
    if (!columns && options->forget_bias != 0.0f) {
        d.initial = NN_INITIAL_FORGET;
        d.scale = options->forget_bias;
    }
    *offset = table->elements;
    return nn_table_declare(table, &d);
}

static tw_status declare_direction(const nn_lstm_options *options, int reverse, nn_table *table, direction *d)
{
    d->reverse = reverse;
    TW_TRY(lstm_declare(options, "weight_ih", options->shape.inputs, reverse, table, &d->input_weight));
    TW_TRY(lstm_declare(options, "weight_hh", options->shape.hidden, reverse, table, &d->hidden_weight));
    return lstm_declare(options, "bias_ih", 0, reverse, table, &d->bias);
}

tw_status nn_lstm_create(const nn_lstm_options *options, nn_table *table, nn_lstm **lstm)
{
    nn_lstm *made = calloc(1, sizeof *made);
    if (!made) return tw_fail(TW_ERROR_MEMORY, "no memory for an LSTM layer");
    made->shape = options->shape;
    made->engine = options->engine;
    made->directions = options->shape.bidirectional ? 2 : 1;
    made->parameters.first = table->count;
    tw_status status = TW_OK;
    for (size_t i = 0; i < made->directions && status == TW_OK; i++)
        status = declare_direction(options, i == 1, table, &made->direction[i]);
    made->parameters.end = table->count;
    if (status == TW_OK)
        *lstm = made;
    else
        nn_lstm_destroy(made);
    return status;
}

void nn_lstm_destroy(nn_lstm *lstm)
{
    if (!lstm) return;
    for (size_t i = 0; i < lstm->directions; i++) {
        direction *d = &lstm->direction[i];
        nn_buffer_free(&d->gates);
        nn_buffer_free(&d->outputs);
        nn_buffer_free(&d->cells);
        nn_factor_free(&d->forward);
        nn_factor_free(&d->backward);
    }
    nn_buffer_free(&lstm->running);
    free(lstm);
}

nn_range nn_lstm_parameters(const nn_lstm *lstm)
{
    return lstm->parameters;
}

/* ---- places ---- */

static size_t state_floats(const nn_lstm *lstm)
{
    return lstm->batch.batch * lstm->shape.hidden;
}

static float *before(const nn_lstm *lstm, const direction *d, const nn_buffer *states, size_t step)
{
    return states->values + (step + (d->reverse ? 1 : 0)) * state_floats(lstm);
}

static float *after(const nn_lstm *lstm, const direction *d, const nn_buffer *states, size_t step)
{
    return states->values + (step + (d->reverse ? 0 : 1)) * state_floats(lstm);
}

static float *gates_at(const nn_lstm *lstm, const direction *d, size_t step)
{
    return d->gates.values + step * 4 * state_floats(lstm);
}

/* The i-th step that a direction takes. */
static size_t step_at(const nn_lstm *lstm, int reverse, size_t i)
{
    return reverse ? lstm->batch.steps - 1 - i : i;
}

static int is_beyond_end(const nn_lstm *lstm, size_t step, size_t sequence)
{
    return lstm->batch.lengths && step >= lstm->batch.lengths[sequence];
}

static nn_cell cell_at(const nn_lstm *lstm, const direction *d, size_t step, size_t sequence)
{
    const size_t hidden = lstm->shape.hidden, row = sequence * hidden;
    return (nn_cell){.gates = gates_at(lstm, d, step) + 4 * row,
                     .cell_before = before(lstm, d, &d->cells, step) + row,
                     .cell = after(lstm, d, &d->cells, step) + row,
                     .hidden = hidden};
}

static size_t rows_of(const nn_lstm *lstm)
{
    return lstm->batch.steps * lstm->batch.batch;
}

/* From the inputs to the gates' sums. */
static nn_affine inputs_of(const nn_lstm *lstm, const direction *d)
{
    return (nn_affine){.inputs = lstm->shape.inputs,
                       .outputs = 4 * lstm->shape.hidden,
                       .weight = d->input_weight,
                       .bias = d->bias,
                       .engine = lstm->engine};
}

/* Of the layer's output, what belongs to a direction, for one sequence at one step. */
static size_t output_place(const nn_lstm *lstm, const direction *d, size_t step, size_t sequence)
{
    size_t row = step * lstm->batch.batch + sequence;
    return (row * lstm->directions + (d->reverse ? 1 : 0)) * lstm->shape.hidden;
}

/* ---- forward ---- */

static tw_status lstm_reserve(nn_lstm *lstm, direction *d)
{
    const size_t steps = lstm->batch.steps;
    TW_TRY(nn_buffer_reserve(&d->gates, steps * 4 * state_floats(lstm)));
    TW_TRY(nn_buffer_reserve(&d->outputs, (steps + 1) * state_floats(lstm)));
    TW_TRY(nn_buffer_reserve(&d->cells, (steps + 1) * state_floats(lstm)));
    return nn_buffer_reserve(&lstm->running, 2 * state_floats(lstm));
}

static void lstm_begin(nn_lstm *lstm, direction *d)
{
    const size_t first = step_at(lstm, d->reverse, 0), bytes = state_floats(lstm) * sizeof(float);
    float *output = before(lstm, d, &d->outputs, first), *cell = before(lstm, d, &d->cells, first);
    if (lstm->batch.state) {
        memcpy(output, lstm->batch.state, bytes);
        memcpy(cell, lstm->batch.state + state_floats(lstm), bytes);
    } else {
        memset(output, 0, bytes);
        memset(cell, 0, bytes);
    }
}

static void lstm_end(nn_lstm *lstm, direction *d)
{
    const size_t last = step_at(lstm, d->reverse, lstm->batch.steps - 1), bytes = state_floats(lstm) * sizeof(float);
    if (!lstm->batch.state) return;
    memcpy(lstm->batch.state, after(lstm, d, &d->outputs, last), bytes);
    memcpy(lstm->batch.state + state_floats(lstm), after(lstm, d, &d->cells, last), bytes);
}

/* Beyond its end a sequence has no state: going in reverse, it enters its last step with zeros. */
static void forward_cell(nn_lstm *lstm, direction *d, size_t step, size_t sequence)
{
    nn_cell cell = cell_at(lstm, d, step, sequence);
    float *output = after(lstm, d, &d->outputs, step) + sequence * cell.hidden;
    float *y = lstm->batch.y + output_place(lstm, d, step, sequence);
    if (is_beyond_end(lstm, step, sequence)) {
        memset(cell.cell, 0, cell.hidden * sizeof *cell.cell);
        memset(output, 0, cell.hidden * sizeof *output);
        memset(y, 0, cell.hidden * sizeof *y);
    } else {
        nn_cell_forward(&cell, output, y);
    }
}

static tw_status forward_direction(nn_lstm *lstm, const float *values, direction *d)
{
    const size_t hidden = lstm->shape.hidden, batch = lstm->batch.batch;
    const nn_affine inputs = inputs_of(lstm, d);
    const nn_product recurrent = {.transpose_b = 1, .m = batch, .n = 4 * hidden, .k = hidden, .beta = 1.0f};
    TW_TRY(lstm_reserve(lstm, d));
    TW_TRY(nn_factor_prepare(lstm->engine, &recurrent, values + d->hidden_weight, &d->forward));
    lstm_begin(lstm, d);
    TW_TRY(nn_affine_forward(&inputs, values, rows_of(lstm), lstm->batch.x, d->gates.values));
    for (size_t i = 0; i < lstm->batch.steps; i++) {
        size_t step = step_at(lstm, d->reverse, i);
        TW_TRY(nn_factor_multiply(&d->forward, before(lstm, d, &d->outputs, step), gates_at(lstm, d, step)));
        for (size_t s = 0; s < batch; s++) forward_cell(lstm, d, step, s);
    }
    lstm_end(lstm, d);
    return TW_OK;
}

static tw_status lstm_check(const nn_lstm *lstm, const nn_lstm_batch *batch)
{
    if (batch->steps == 0 || batch->batch == 0)
        return tw_fail(TW_ERROR_ARGUMENT, "an LSTM needs at least one step of one sequence, not %zu of %zu",
                       batch->steps, batch->batch);
    if (batch->state && (lstm->directions == 2 || batch->lengths))
        return tw_fail(TW_ERROR_ARGUMENT, "an LSTM carries its state over in one direction and full lengths only");
    for (size_t s = 0; batch->lengths && s < batch->batch; s++)
        if (batch->lengths[s] > batch->steps)
            return tw_fail(TW_ERROR_ARGUMENT, "sequence %zu has length %zu in a batch of %zu steps", s,
                           batch->lengths[s], batch->steps);
    return TW_OK;
}

tw_status nn_lstm_forward(nn_lstm *lstm, const float *values, const nn_lstm_batch *batch)
{
    TW_TRY(lstm_check(lstm, batch));
    lstm->batch = *batch;
    for (size_t i = 0; i < lstm->directions; i++) TW_TRY(forward_direction(lstm, values, &lstm->direction[i]));
    return TW_OK;
}

/* ---- backward ---- */

static void backward_cell(nn_lstm *lstm, direction *d, const float *y_gradient, size_t step, size_t sequence)
{
    nn_cell cell = cell_at(lstm, d, step, sequence);
    float *from_after = lstm->running.values + sequence * cell.hidden;
    float *cell_gradient = from_after + state_floats(lstm);
    if (is_beyond_end(lstm, step, sequence))
        memset(cell.gates, 0, 4 * cell.hidden * sizeof *cell.gates);
    else
        nn_cell_backward(&cell, y_gradient + output_place(lstm, d, step, sequence), from_after, cell_gradient);
}

/* From the outputs' gradient to that of the gates' sums, the last step that was taken first. */
static tw_status backward_steps(nn_lstm *lstm, const float *values, direction *d, const float *y_gradient)
{
    const size_t hidden = lstm->shape.hidden, batch = lstm->batch.batch;
    const nn_product recurrent = {.m = batch, .n = hidden, .k = 4 * hidden};
    TW_TRY(nn_factor_prepare(lstm->engine, &recurrent, values + d->hidden_weight, &d->backward));
    memset(lstm->running.values, 0, 2 * state_floats(lstm) * sizeof(float));
    for (size_t i = lstm->batch.steps; i-- > 0;) {
        size_t step = step_at(lstm, d->reverse, i);
        for (size_t s = 0; s < batch; s++) backward_cell(lstm, d, y_gradient, step, s);
        TW_TRY(nn_factor_multiply(&d->backward, gates_at(lstm, d, step), lstm->running.values));
    }
    return TW_OK;
}

static tw_status backward_parameters(nn_lstm *lstm, direction *d, float *gradients)
{
    const size_t rows = rows_of(lstm);
    const nn_affine inputs = inputs_of(lstm, d);
    const nn_product recurrent = {.transpose_a = 1, .m = inputs.outputs, .n = lstm->shape.hidden, .k = rows};
    TW_TRY(nn_affine_backward_parameters(&inputs, rows, lstm->batch.x, d->gates.values, gradients));
    return nn_multiply(lstm->engine, &recurrent, d->gates.values, before(lstm, d, &d->outputs, 0),
                       gradients + d->hidden_weight);
}

tw_status nn_lstm_backward(nn_lstm *lstm, const float *values, const float *y_gradient, float *gradients,
                           float *x_gradient)
{
    nn_product source = {.m = rows_of(lstm), .n = lstm->shape.inputs, .k = 4 * lstm->shape.hidden};
    for (size_t i = 0; i < lstm->directions; i++) {
        TW_TRY(backward_steps(lstm, values, &lstm->direction[i], y_gradient));
        TW_TRY(backward_parameters(lstm, &lstm->direction[i], gradients));
    }
    for (size_t i = 0; x_gradient && i < lstm->directions; i++, source.beta = 1.0f)
        TW_TRY(nn_multiply(lstm->engine, &source, lstm->direction[i].gates.values,
                           values + lstm->direction[i].input_weight, x_gradient));
    return TW_OK;
}
