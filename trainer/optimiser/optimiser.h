/* optimiser.h - from gradients to steps, over a flat array of parameters: SGD, Adam and Muon. */
#ifndef TRAINER_OPTIMISER_H
#define TRAINER_OPTIMISER_H

#include <thinwire/thinwire.h>

typedef struct optimiser optimiser;

typedef enum optimiser_kind {
    OPTIMISER_SGD,
    OPTIMISER_ADAM,  /* Kingma and Ba, ICLR 2015 */
    OPTIMISER_ADAMW, /* Loshchilov and Hutter, ICLR 2019: weights decay beside Adam's step, not through its moments */
    OPTIMISER_MUON   /* muon.h; AdamW for what is not its own */
} optimiser_kind;

typedef struct optimiser_settings {
    float momentum; /* 0 .. 1; Adam's beta1 */
    int nesterov;
    float weight_decay; /* lambda; tensors of one dimension (biases, norms) are never decayed */
    /* 1 when the reducer owns the momentum: what it returns is a direction to step in, already with momentum. It is
     * taken as it is, and the decay alone runs through this optimiser's buffer, the same on every replica. */
    int directed;
    int adapted; /* and it is Adam's direction, of which the optimiser keeps no moments: AdamW alone takes it */
    optimiser_kind kind;
    float beta2;   /* Adam's, 0 .. 1, usually 0.999 */
    float epsilon; /* Adam's: what keeps its step finite where gradients vanish; 0: 1e-8 */
} optimiser_settings;

/* Whether these go together, and with the scheme of `sync`. TW_ERROR_ARGUMENT says why not, and what to write. */
tw_status optimiser_check(const optimiser_settings *settings, const char *sync);

/* Tensor i's parameters follow tensor i-1's in the flat arrays. The table is borrowed. */
tw_status optimiser_create(const optimiser_settings *settings, const tw_tensor *tensors, size_t count, optimiser **out);
void optimiser_destroy(optimiser *o);

/* In the steps to come the first so many tensors stand still: neither they nor what is remembered of them change. Their
 * gradients are zeros. */
void optimiser_hold(optimiser *o, size_t tensors);

/* One step, PyTorch's forms.
 * SGD: force = gradient + lambda * w; buffer = momentum * buffer + force;
 *     w -= rate * (nesterov ? force + momentum * buffer : buffer). Directed: force = lambda * w, and the direction is
 *     added beside the buffer.
 * Adam: m = beta1 * m + (1 - beta1) * force, v = beta2 * v + (1 - beta2) * force^2, both corrected for their start at
 *     zero; w -= rate * m / (sqrt(v) + epsilon). AdamW: force = gradient, and w -= rate * lambda * w beside it.
 * Muon, of a matrix: m likewise, not corrected; u = beta1 * m + (1 - beta1) * gradient;
 *     w -= rate * (0.2 * sqrt(longer side) * orthogonal(u) + lambda * w).
 * Only Muon's products can fail. */
tw_status optimiser_step(optimiser *o, float rate, const float *gradients, float *parameters);

/* The same in parts, in any order: a step begins, and reaches parameters begin .. end, a range at a time, with their
 * gradients. The rate is the step's until the next begins. Muon's matrices have to be whole in a range. */
void optimiser_begin(optimiser *o, float rate);
tw_status optimiser_step_range(optimiser *o, size_t begin, size_t end, const float *gradients, float *parameters);

/* The same step, not taken: what would be added to the parameters stands in `gradients` afterwards. */
tw_status optimiser_propose(optimiser *o, float rate, const float *parameters, float *gradients);

/* `later`: where parameters begin .. end are after so many steps of this rate, if gradients come that leave the moments
 * as they are. SGD without momentum has none to go by, nor has an optimiser before its first step, and Muon's matrices
 * stay: the parameters themselves. */
void optimiser_foresee(const optimiser *o, float rate, size_t steps, size_t begin, size_t end, const float *parameters,
                       float *later);

/* Part of what an optimiser remembers, as a table of tensors that stand one after the other in `values`. */
typedef struct optimiser_buffer {
    const char *prefix; /* before the tensors' names: "momentum.", and Adam's "second_moment." and, of one number, "" */
    const tw_tensor *tensors;
    size_t tensor_count;
    float *values;
    size_t count;
} optimiser_buffer;

enum { OPTIMISER_BUFFERS = 3 };

/* The arrays as long as the parameters are, of pages_take; and where from now on optimiser_buffers says that they
 * stand, for whom they are brought in and out of memory. Returns how many there are. */
size_t optimiser_arrays(optimiser *o, float *arrays[OPTIMISER_BUFFERS]);
void optimiser_show(optimiser *o, float *const *shown);

/* All of it. Returns how many there are. */
size_t optimiser_buffers(optimiser *o, optimiser_buffer buffers[OPTIMISER_BUFFERS]);

/* The same into and out of a state, under names that begin so. */
#define OPTIMISER_PREFIX "optimiser."
tw_status optimiser_save(optimiser *o, tw_state *state);
tw_status optimiser_load(optimiser *o, const tw_state *state);

#endif
