/* rotary.h - positions as angles (Su et al. 2021): value i of a head's first half and value i of its second half turn
 * together, by position * base^(-2 i / width), as in Llama. What two rows have in common then depends on how far apart
 * they are. */
#ifndef NN_ROTARY_H
#define NN_ROTARY_H

#include "buffer.h"

#define NN_ROTARY_BASE 10000.0 /* the usual one */

/* Angles of a network that was trained on texts of `original` positions, and then on longer ones: as Llama 3.1 has them
 * (Grattafiori et al. 2024; the rule is that of Meta's published model). What turns more than `high` times over an
 * original text keeps its speed. What turns fewer than `low` times is `factor` times slower, and in between the two are
 * mixed by the number of turns. With {factor, 0, 1, 0} all are slower: linear scaling (Chen et al. 2023). */
typedef struct nn_rotary_scaling {
    double factor; /* 1 and more; 0: there is none */
    double low, high, original;
} nn_rotary_scaling;

/* All zero, but for the first three: one that knows no position yet. */
typedef struct nn_rotary {
    size_t width; /* of a head; even */
    double base;
    nn_rotary_scaling scaling;
    nn_buffer waves; /* of each position the cosines, then the sines: (positions, width) */
    size_t positions;
} nn_rotary;

/* Makes it know the positions 0 .. positions - 1. */
tw_status nn_rotary_prepare(nn_rotary *r, size_t positions);
void nn_rotary_free(nn_rotary *r);

/* Rows in the order (steps, batch), each `stride` values after the one before; `heads` heads begin at each. */
typedef struct nn_turned {
    size_t first; /* the position of step 0; those up to first + steps - 1 are prepared */
    size_t steps, batch, heads, stride;
} nn_turned;

/* In place: forward by the angles of the positions; back by the same, which takes gradients the other way. */
void nn_rotary_forward(const nn_rotary *r, const nn_turned *what, float *rows);
void nn_rotary_back(const nn_rotary *r, const nn_turned *what, float *rows);

#endif
