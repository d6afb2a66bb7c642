/* replan.h - a run of --sync auto whose line becomes another: it plans again, and goes on by what suits the line now.
 * The time of the run's own exchanges says how fast the line is (tw_watch). What is chosen is written into the run's
 * configuration before it is taken. A run that goes on repeats that at the same steps, and chooses nothing anew. */
#ifndef TRAINER_REPLAN_H
#define TRAINER_REPLAN_H

#include "inquiry.h"
#include "network.h"

typedef struct replan_choice {
    char sync[PLAN_SPEC], why[512];
} replan_choice;

typedef struct replan {
    tw_watch *watch;       /* NULL: nothing is watched */
    double bytes, seconds; /* of the way's exchanges when it was looked at last */
    double times;          /* as slow as it was when it was planned last */
    tw_world_options line; /* as it is taken to be */
    char link[NETWORK_TEXT];
    int plans;           /* made so far */
    uint64_t not_before; /* the step that the next is made at */
    /* What suits that line. On rank 0 alone, while the others wait. */
    tw_status (*choose)(worker *w, const tw_world_options *line, replan_choice *choice);
} replan;

/* Watches where the run has a line, chose its way by itself, and can leave that. A begun one has `choose` set. */
tw_status replan_begin(replan *r, const worker *w);
void replan_end(replan *r);
/* Before a step at which all meet: the run goes on by another way where that was written down for this step, or where
 * the line says so. A collective. */
tw_status replan_before_step(replan *r, worker *w);

#endif
