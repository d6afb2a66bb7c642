/* optimiser.h - stochastic gradient descent over a flat array of parameters. */
#ifndef TRAINER_OPTIMISER_H
#define TRAINER_OPTIMISER_H

#include <thinwire/thinwire.h>

typedef struct optimiser optimiser;

typedef struct optimiser_settings {
    float momentum; /* 0 .. 1 */
    int nesterov;
    float weight_decay; /* lambda; tensors of one dimension (biases, norms) are never decayed */
    /* 1 when the reducer owns the momentum: what it returns is a direction to step in, already with momentum. It is
     * taken as it is, and the decay alone runs through this optimiser's buffer, the same on every replica. */
    int directed;
} optimiser_settings;

/* Tensor i's parameters follow tensor i-1's in the flat arrays. The table is borrowed. */
tw_status optimiser_create(const optimiser_settings *settings, const tw_tensor *tensors, size_t count, optimiser **out);
void optimiser_destroy(optimiser *o);

/* One step, PyTorch's form: force = gradient + lambda * w; buffer = momentum * buffer + force;
 * w -= rate * (nesterov ? force + momentum * buffer : buffer). Directed: force = lambda * w, and the direction is added
 * beside the buffer. */
void optimiser_step(optimiser *o, float rate, const float *gradients, float *parameters);

/* The same step, not taken: what would be added to the parameters stands in `gradients` afterwards. */
void optimiser_propose(optimiser *o, float rate, const float *parameters, float *gradients);

/* The momentum buffer, flat, `*count` floats: all the optimiser remembers. */
float *optimiser_buffer(optimiser *o, size_t *count);

#endif
