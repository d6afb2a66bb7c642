/* pace.h - how long a simulated worker computes, since the world's clock does not see it compute. */
#ifndef TRAINER_PACE_H
#define TRAINER_PACE_H

#include "slowdown.h"
#include <stddef.h>

typedef enum pace_form { PACE_LOGNORMAL, PACE_EXPONENTIAL } pace_form;

/* Of all workers. */
typedef struct pace_model {
    double step_seconds;  /* that a forward and backward pass takes on average, on a worker that nobody slows */
    double other_seconds; /* of a step beside it: loading the batch, the optimiser */
    double jitter;        /* standard deviation of a pass over its mean */
    pace_form form;       /* its distribution; exponential: above a least time of (1 - jitter) of the mean */
    uint64_t seed;
    const char *slow, *pause; /* see slowdown_parse */
} pace_model;

/* Of one of them. */
typedef struct pace {
    const pace_model *model;
    slowdown slowdown;
    int rank;
    size_t tensors, ready; /* whose gradients are complete in this pass */
    uint64_t passes;
    double seconds; /* of this pass */
} pace;

/* TW_ERROR_ARGUMENT, the same on every rank, for what slowdown_parse refuses and for a pass that is too long. */
tw_status pace_begin(const pace_model *model, int rank, int size, uint64_t steps, size_t tensors, pace *p);

/* Called as each tensor's gradient becomes ready, lets the world's time pass (tw_phantom_pass). A `pace` is the
 * context, so that a worker can be given this function. */
void pace_gradient_ready(void *p);
/* The same of a part of micro-batch `batch`, in a stage of a pipeline. */
void pace_part_passed(void *p, uint64_t batch, double part);
/* A pause after step `step`, counted from 1, if there is one. */
void pace_pause(const pace *p, uint64_t step);
/* What a step takes beside the pass. */
void pace_other(const pace *p);

#endif
