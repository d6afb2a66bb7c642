/* dropout.h - setting values to zero at random and scaling up the others (Srivastava et al. 2014).
 *
 * Which values go is a function of the key and of a value's place, not of a generator's state: the backward pass finds
 * the same ones again without keeping a mask, and so does a resumed run. */
#ifndef NN_DROPOUT_H
#define NN_DROPOUT_H

#include <stddef.h>
#include <stdint.h>

typedef struct nn_dropout_key {
    uint64_t seed, step;
    uint64_t place; /* in the model, below 256: which of its dropouts */
} nn_dropout_key;

/* Keeps each value with probability `keep` (above 0), divided by it. 1 and above change
 * nothing. Forward on values, backward on their gradients. */
void nn_dropout(const nn_dropout_key *key, float keep, float *values, size_t count);

#endif
