/* carry.h - what a worker takes from one generation of a group to the next, in memory: what its file of a checkpoint
 * would hold, and its weights. Who is new, or behind, takes the donor's. */
#ifndef TRAINER_CARRY_H
#define TRAINER_CARRY_H

#include "worker.h"
#include <thinwire/thinwire_members.h>

/* What is the same on all workers, beside what the exchange shares. */
typedef struct carry_moment {
    uint64_t step, steps_per_epoch;
    double best_loss, falls; /* of the schedule */
    best_checkpoint best;
    base_weights base;
    char run[RUN_NAME];
    int unseen;
} carry_moment;

/* Begin with {0}. */
typedef struct carry {
    tw_state *own;
    carry_moment moment;
    uint64_t rounds, taken; /* as the worker's */
} carry;

/* Where the worker is now, in place of what was there. With a comm that has failed, too. `cut`: a look at the weights
 * was cut off, and is still due. */
tw_status carry_pack(worker *w, int cut, carry *c);
/* Into a worker that was just created in that place: a collective of its comm, before worker_begin. TW_ERROR_PACKET
 * when what the donor gives cannot be. */
tw_status carry_take(worker *w, const tw_generation *place, const carry *c);
/* A collective, the last of a generation that does not break off, before each packs: what the exchange of those that
 * leave holds back goes to others, whole: it is a share of the mean, whatever the number of workers. */
tw_status carry_hand_over(worker *w, int leaves);
void carry_release(carry *c);

#endif
