/* journal.h - everything rank 0 tells about a run: the banner and the progress, metrics.jsonl, TensorBoard's event
 * file, config.yaml and summary.json. */
#ifndef TRAINER_JOURNAL_H
#define TRAINER_JOURNAL_H

#include "exchange.h"
#include "jsonl.h"
#include "progress.h"
#include "run_lock.h"
#include "tensorboard.h"
#include "worker.h"

typedef struct journal {
    jsonl *metrics; /* NULL when the run keeps no folder */
    tensorboard *board;
    progress progress;
    round_figures rounds; /* as they were after the last step; zeros where there are none */
    run_lock *lock;
    int shares; /* this rank has no more than the configuration and a lock, on its own disk */
} journal;

/* Whether the run goes on from a checkpoint of the folder it keeps. */
int journal_continues(const train_settings *s);
/* Locks the run's folder where there is one already: before a checkpoint is looked for in it. */
tw_status journal_lock(journal *j, const worker *w);
/* Before a checkpoint: locks the folder anew if it was moved or removed. TW_ERROR_ARGUMENT when another run has its
 * place. */
tw_status journal_keep(journal *j, const worker *w);

/* Makes the run's folder and locks it, refuses one that holds another run's checkpoints, prints the banner and writes
 * the configuration. A journal of zeros is a silent one: what the other ranks have. */
tw_status journal_open(journal *j, const worker *w);
/* For the first rank on each disk but rank 0's: leaves the configuration there, so that the run can go on from there.
 */
tw_status journal_share(journal *j, const worker *w);
/* Where this worker has written the configuration, it is written anew, as its settings are now. */
tw_status journal_reconfigure(const worker *w);
void journal_close(journal *j);
tw_status journal_step(journal *j, const worker *w, double loss);
tw_status journal_epoch(journal *j, const worker *w, const evaluation *result);
/* `result`: of the split that the run is summed up with; `validation`: NULL where the task has none; `mean`: the totals
 * over the workers. */
tw_status journal_end(journal *j, const worker *w, const evaluation *result, const evaluation *validation,
                      const totals *mean);
void journal_interrupted(journal *j, const worker *w);

#endif
