/* bench_workload.h - the training steps that `thinwire bench train` times: networks on made-up data. */
#ifndef TRAINER_BENCH_WORKLOAD_H
#define TRAINER_BENCH_WORKLOAD_H

#include "precision.h"

#include <stddef.h>
#include <thinwire/thinwire.h>

typedef struct workload_options {
    const char *model;
    size_t batch;          /* images or sequences a step; 0: the usual */
    size_t size, channels; /* of an image */
    nn_precision precision;
} workload_options;

typedef struct workload workload;

/* Forward and backward; gradients are written. */
typedef tw_status (*workload_step)(workload *w);

/* Begins with what all kinds have. */
struct workload {
    workload_step step;
    void (*destroy)(workload *w);
    const char *items;  /* "images" */
    size_t batch, size; /* as run; size: pixels of a side, or steps of a sequence */
    double items_per_step;
    float *parameters, *gradients;
    size_t parameter_count;
};

/* An image network; "lm-small" and so on, a whole language model over 10,000 words; "lstm-2x650" and "bilstm-2x256",
 * LSTM layers alone. */
tw_status workload_create(const workload_options *options, workload **w);

#endif
