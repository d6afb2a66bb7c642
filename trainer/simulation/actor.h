/* actor.h - what plays a rank of the world: a trainee, which is a whole worker of `thinwire train`, or a phantom, which
 * exchanges gradients of no model. */
#ifndef TRAINER_ACTOR_H
#define TRAINER_ACTOR_H

#include "experiment.h"

/* What the end of a run shows of one rank. */
typedef struct actor_end {
    size_t parameters;
    double distance; /* L2, of its weights from the consensus */
    double loss, metric;
    const char *metric_name; /* NULL: nothing was evaluated */
    uint32_t checksum;       /* of the weights, where the rank has all of them */
} actor_end;

struct actor_kind {
    /* All are collectives but for step, by an asynchronous scheme. destroy takes what create left, failed or not. */
    tw_status (*create)(const sim_setup *setup, tw_comm *comm, void **self);
    const char *(*spec)(void *self);   /* of --sync, as it suits the run */
    uint64_t (*steps)(void *self);     /* a rank's share */
    uint64_t (*gradients)(void *self); /* of a step, that count with this rank */
    uint64_t (*sent)(void *self);      /* bytes so far */
    tw_status (*begin)(void *self);
    /* Takes the step of that number, counted from 0; `loss` is the batch's mean. */
    tw_status (*step)(void *self, uint64_t number, double *loss);
    tw_status (*end)(void *self, actor_end *end);
    void (*destroy)(void *self);
    int alike; /* to its refusals the number of workers matters by per_host alone */
};

/* That its comm has counted. */
uint64_t actor_sent(const tw_comm *comm);
/* L2, between two sets of weights. */
double actor_distance(const float *a, const float *b, size_t count);

#endif
