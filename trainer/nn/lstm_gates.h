/* lstm_gates.h - what happens in one cell of an LSTM between the matrix products, over the rows of a batch. */
#ifndef NN_LSTM_GATES_H
#define NN_LSTM_GATES_H

#include <stddef.h>

/* One sequence at one step: arrays of `hidden` values, but for the gates' i, f, g and o, one after the other. */
typedef struct nn_cell {
    float *gates;
    const float *cell_before;
    float *cell;
    size_t hidden;
} nn_cell;

/* gates: the four sums, which become sigmoid (i, f, o) and tanh (g) of them. Writes cell = f cell_before + i g and,
 * to both places, o tanh(cell). */
void nn_cell_forward(const nn_cell *c, float *output, float *copy);

/* gates: what forward left, which become the loss's gradient with respect to the sums. That with respect to the output
 * is from_above + from_after (the next layer's and the next step's share); cell_gradient is that of cell, and becomes
 * that of cell_before. */
void nn_cell_backward(const nn_cell *c, const float *from_above, const float *from_after, float *cell_gradient);

#endif
