/* recurrent.h - LSTM layers one above the other, with dropout on what each gives: the inside of the language model and
 * of the acoustic model. Dropout is never between steps (Zaremba et al. 2014). */
#ifndef MODEL_RECURRENT_H
#define MODEL_RECURRENT_H

#include "dropout.h"
#include "lstm.h"

typedef struct recurrent recurrent;

typedef struct recurrent_options {
    size_t layers, inputs, hidden; /* hidden: cells in each direction */
    int bidirectional;
    float range, forget_bias; /* as in nn_lstm_options */
    nn_engine *engine;        /* likewise */
} recurrent_options;

/* Declares the tensors "rnn.*", named as those of PyTorch's nn.LSTM of as many layers, in `table`, which lives as long.
 */
tw_status recurrent_create(const recurrent_options *options, nn_table *table, recurrent **stack);
void recurrent_destroy(recurrent *stack);
/* Features of an output: `hidden`, or twice hidden. */
size_t recurrent_width(const recurrent *stack);

typedef struct recurrent_batch {
    size_t steps, batch;
    const size_t *lengths; /* as in nn_lstm_batch */
    const float *x;        /* (steps, batch, inputs); stays until backward */
    float *state;          /* (layers, h and c, batch, hidden), carried over; or NULL */
    float keep;            /* probability; 1: no dropout */
    nn_noise noise;        /* layer i drops at place i + 1 */
} recurrent_batch;

/* *y: (steps, batch, width), the stack's, until its next forward. */
tw_status recurrent_forward(recurrent *stack, const float *values, const recurrent_batch *batch, const float **y);

typedef struct recurrent_gradients {
    float *y;          /* as y; overwritten */
    float *x;          /* as x, or NULL */
    float *parameters; /* the table's flat array */
    nn_gradient_ready ready;
    void *context;
} recurrent_gradients;

/* For the last forward, whose batch is still valid. */
tw_status recurrent_backward(recurrent *stack, const float *values, const recurrent_gradients *gradients);

#endif
