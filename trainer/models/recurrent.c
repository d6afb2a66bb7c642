/* recurrent.c - a stack of LSTM layers. */
#include "recurrent.h"

#include "buffer.h"

#include <stdlib.h>

typedef struct layer {
    nn_lstm *lstm;
    nn_buffer y;
} layer;

struct recurrent {
    const nn_table *table;
    layer *layers;
    size_t count, hidden, width;
    recurrent_batch batch; /* of the last forward */
};

static tw_status recurrent_fill(const recurrent_options *options, nn_table *table, recurrent *stack)
{
    nn_lstm_options lstm = {.name = "rnn",
                            .shape = {options->inputs, options->hidden, options->bidirectional},
                            .range = options->range,
                            .forget_bias = options->forget_bias,
                            .engine = options->engine};
    stack->layers = calloc(options->layers, sizeof *stack->layers);
    if (!stack->layers) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu LSTM layers", options->layers);
    for (; stack->count < options->layers; stack->count++) {
        lstm.index = stack->count;
        TW_TRY(nn_lstm_create(&lstm, table, &stack->layers[stack->count].lstm));
        TW_TRY(nn_table_end_unit(table, 0));
        lstm.shape.inputs = stack->width;
    }
    return TW_OK;
}

tw_status recurrent_create(const recurrent_options *options, nn_table *table, recurrent **stack)
{
    recurrent *made = calloc(1, sizeof *made);
    if (!made) return tw_fail(TW_ERROR_MEMORY, "no memory for LSTM layers");
    made->table = table;
    made->hidden = options->hidden;
    made->width = options->hidden * (options->bidirectional ? 2 : 1);
    tw_status status = recurrent_fill(options, table, made);
    if (status == TW_OK)
        *stack = made;
    else
        recurrent_destroy(made);
    return status;
}

void recurrent_destroy(recurrent *stack)
{
    if (!stack) return;
    for (size_t i = 0; i < stack->count; i++) {
        nn_lstm_destroy(stack->layers[i].lstm);
        nn_buffer_free(&stack->layers[i].y);
    }
    free(stack->layers);
    free(stack);
}

size_t recurrent_width(const recurrent *stack)
{
    return stack->width;
}

static size_t recurrent_outputs(const recurrent *stack)
{
    return stack->batch.steps * stack->batch.batch * stack->width;
}

static void recurrent_drop(const recurrent *stack, size_t index, float *values)
{
    nn_dropout(&stack->batch.noise, index + 1, stack->batch.keep, values, recurrent_outputs(stack));
}

static tw_status forward_layer(recurrent *stack, const float *values, size_t index, const float *x)
{
    const recurrent_batch *b = &stack->batch;
    layer *l = &stack->layers[index];
    TW_TRY(nn_buffer_reserve(&l->y, recurrent_outputs(stack)));
    nn_lstm_batch batch = {.steps = b->steps, .batch = b->batch, .lengths = b->lengths, .x = x, .y = l->y.values};
    if (b->state) batch.state = b->state + index * 2 * b->batch * stack->hidden;
    TW_TRY(nn_table_use(stack->table, nn_lstm_parameters(l->lstm), PAGER_FORWARD));
    TW_TRY(nn_lstm_forward(l->lstm, values, &batch));
    recurrent_drop(stack, index, l->y.values);
    return TW_OK;
}

tw_status recurrent_forward(recurrent *stack, const float *values, const recurrent_batch *batch, const float **y)
{
    stack->batch = *batch;
    *y = batch->x;
    for (size_t i = 0; i < stack->count; i++) {
        TW_TRY(forward_layer(stack, values, i, *y));
        *y = stack->layers[i].y.values;
    }
    return TW_OK;
}

tw_status recurrent_backward(recurrent *stack, const float *values, const recurrent_gradients *gradients)
{
    for (size_t i = stack->count; i-- > 0;) {
        nn_lstm *lstm = stack->layers[i].lstm;
        recurrent_drop(stack, i, gradients->y);
        TW_TRY(nn_table_use(stack->table, nn_lstm_parameters(lstm), PAGER_BACKWARD));
        TW_TRY(nn_lstm_backward(lstm, values, gradients->y, gradients->parameters, i ? gradients->y : gradients->x));
        TW_TRY(nn_table_announce(stack->table, nn_lstm_parameters(lstm), gradients->parameters, gradients->ready,
                                 gradients->context));
    }
    return TW_OK;
}
