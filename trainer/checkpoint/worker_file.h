/* worker_file.h - what stands in a worker's file of a checkpoint, for those who read one. */
#ifndef TRAINER_WORKER_FILE_H
#define TRAINER_WORKER_FILE_H

#include "stamp.h"

/* Before the names of what the scheme remembers. */
#define WORKER_FILE_SCHEME "scheme."

/* The running sums of the epoch, so that a resumed epoch's figures are the uninterrupted one's. */
enum { EPOCH_LOSS, EPOCH_ITEMS, EPOCH_PARTS, EPOCH_SKIPPED = EPOCH_PARTS + TASK_PARTS, EPOCH_COUNT };

tw_status worker_file_put_sums(tw_state *state, const totals *sums, const double epoch[EPOCH_COUNT]);
tw_status worker_file_get_sums(const tw_state *state, totals *sums, double epoch[EPOCH_COUNT]);
/* How the epoch stands goes into the worker. */
void worker_file_resume_epoch(worker *w, const double epoch[EPOCH_COUNT]);

#endif
