/* run.h - one worker's run, from its first step to its summary. */
#ifndef TRAINER_RUN_H
#define TRAINER_RUN_H

#include "group.h"
#include "settings.h"

typedef struct run_result {
    int interrupted; /* a checkpoint was written and the run stopped when it was asked to */
    int diverged;    /* the replicas' weights came to differ */
    int agreed;      /* every rank knows of the failure, so rank 0 alone need tell it */
} run_result;

/* Every rank calls it with the same settings; all three are borrowed. */
tw_status run_worker(const train_settings *settings, const task *work, tw_comm *comm, run_result *result);

/* The same as a member of a group whose workers come and go, to the end of the run, or until it leaves. `settings` are
 * of such a run: changing. */
tw_status run_member(const train_settings *settings, const task *work, group *g, run_result *result);

/* The same of a pipeline with workers that stand by. */
tw_status run_lineup(const train_settings *settings, const task *work, group *g, run_result *result);

#endif
