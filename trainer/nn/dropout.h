/* dropout.h - setting values to zero at random and scaling up the others (Srivastava et al. 2014).
 *
 * Which values go is a function of seed, step, place and a value's place, not of a generator's state: the backward pass
 * finds the same ones again without keeping a mask, and so does a resumed run. */
#ifndef NN_DROPOUT_H
#define NN_DROPOUT_H

#include <stddef.h>
#include <stdint.h>

/* What the masks of a training step are drawn from. A resumed run continues with its step. */
typedef struct nn_noise {
    uint64_t seed, step;
} nn_noise;

/* `place` tells the dropouts of a model apart; below 2^15. Keeps each value with probability `keep` (above 0), divided
 * by it. 1 and above change nothing. Forward on values, backward on their gradients. */
void nn_dropout(const nn_noise *noise, size_t place, float keep, float *values, size_t count);

#endif
