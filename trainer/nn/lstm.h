/* lstm.h - a layer of long short-term memory (Hochreiter and Schmidhuber 1997; forget gates of Gers et al. 2000), in
 * one direction or in both.
 *
 *     i, f, o = sigmoid(W x + U h_before + b),  g = tanh(W x + U h_before + b)
 *     c = f c_before + i g,  h = o tanh(c)
 *
 * Tensors are named and shaped as in PyTorch's nn.LSTM, gates in the order i, f, g, o: weight_ih_l0 (4H, I),
 * weight_hh_l0 (4H, H), bias_ih_l0 (4H), then the same with "_reverse" for the second direction. PyTorch adds a second
 * bias, bias_hh_l0, which is redundant: what is exported has zeros there.
 *
 * Sequences stand side by side: row-major (steps, batch, features). Those of a batch may differ in length; beyond a
 * sequence's end the layer gives zeros and takes no gradient, and the reverse direction begins at that end. */
#ifndef NN_LSTM_H
#define NN_LSTM_H

#include "engine.h"
#include "table.h"

typedef struct nn_lstm nn_lstm;

typedef struct nn_lstm_shape {
    size_t inputs, hidden;
    int bidirectional; /* each direction has `hidden` cells; the outputs stand side by side, forward first */
} nn_lstm_shape;

typedef struct nn_lstm_options {
    const char *name; /* what stands before the dot in the tensors' names */
    size_t index;     /* the number behind _l */
    nn_lstm_shape shape;
    float range;       /* weights begin uniformly between -range and range */
    float forget_bias; /* 0: biases too; otherwise this for the forget gate, 0 for the others */
    nn_engine *engine; /* computes the products, in its precision; lives as long as the layer */
} nn_lstm_options;

/* Declares the tensors in `table`. The layer keeps its activations: forward and backward take turns. */
tw_status nn_lstm_create(const nn_lstm_options *options, nn_table *table, nn_lstm **lstm);
void nn_lstm_destroy(nn_lstm *lstm);
/* Its tensors in the table. */
nn_range nn_lstm_parameters(const nn_lstm *lstm);

typedef struct nn_lstm_batch {
    size_t steps, batch;
    const size_t *lengths; /* (batch), at most `steps`; NULL: all are `steps` long */
    const float *x; /* (steps, batch, inputs); finite numbers beyond a sequence's end, too. Stays until backward */
    float *y;       /* (steps, batch, hidden), or twice hidden; may be written over after forward */
    float *state;   /* h, then c, each (batch, hidden): the state before the first step, replaced by the one after
                     * the last. NULL: zero before. One direction and full lengths only. */
} nn_lstm_batch;

/* `values`: the flat array of the table's tensors. */
tw_status nn_lstm_forward(nn_lstm *lstm, const float *values, const nn_lstm_batch *batch);
/* For the last forward, whose x and lengths are still there. y_gradient as y; the gradients of the layer's tensors are
 * written into the flat array `gradients`. x_gradient, as x, may be NULL; it may be x's own array, or that of
 * y_gradient where both have one shape. No gradient passes through `state`: back-propagation is truncated there. */
tw_status nn_lstm_backward(nn_lstm *lstm, const float *values, const float *y_gradient, float *gradients,
                           float *x_gradient);

#endif
