/* best.h - which step's weights a run is summed up with: those that did best on the validation set. */
#ifndef TRAINER_BEST_H
#define TRAINER_BEST_H

#include "folder.h"
#include "worker.h"

/* Takes the figures of a validation set for the best where they are: by the first of the task's metrics, and where that
 * is the same, by the loss. Of equals the earlier stays. All ranks have the same figures. */
void best_observe(worker *w, const evaluation *seen);

/* In the model file of a checkpoint: the best up to its step. A file without it has none. */
tw_status best_put(const best_checkpoint *best, tw_state *state);
/* TW_ERROR_FORMAT when it cannot be one of a checkpoint of step `last`. */
tw_status best_get(const tw_state *state, uint64_t last, best_checkpoint *best);

/* Drops a best whose checkpoint is not in the run's folder, or will not stay there: a run that goes back, or goes on in
 * another folder, chooses among its own. For rank 0. */
void best_check(worker *w);

/* Among fewer workers an epoch has more steps, so the best may be of a step that this run has not taken yet. As this
 * run counts it is of `step`. Its checkpoint is renamed with the next that is written, before those of later steps are
 * given up. */
void best_convert(worker *w, uint64_t step);
tw_status best_rename(worker *w);

/* Gives the learners the best weights and statistics where the last ones are not the best and the run's folder has
 * them: w->judged then tells their step. Every rank calls it, at the end of the run. */
tw_status best_take(worker *w);

#endif
