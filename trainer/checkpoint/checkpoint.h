/* checkpoint.h - saving a run, and continuing it bit for bit.
 *
 * model.safetensors, written by rank 0, and by the first rank on each other disk, holds what is the same on all
 * replicas: weights, the workers' mean running statistics, the optimiser's momentum and moments, the step, and as text
 * the settings a resumed run must share. worker-R.safetensors, written by rank R, holds what is its own: the scheme's
 * residuals and momentum, its running statistics, its totals; and as text which rank of which run it is of, and the
 * model file's checksum, so that files of different checkpoints, runs or ranks are not taken for one checkpoint. By
 * gossip the optimiser's are there too, and the step is the worker's own: those of an interrupted run may differ, and
 * the folder is named after rank 0's. A run can go on with more or fewer workers: see regroup.h; by gossip each begins
 * with the consensus. So it can where files are lost with the disk they were on: see checkpoint_files.h. */
#ifndef TRAINER_CHECKPOINT_H
#define TRAINER_CHECKPOINT_H

#include "folder.h"
#include "worker.h"

/* Writes a checkpoint of the step `w` stands at. Every rank calls it, between steps (by gossip, after
 * worker_end), and all learn whether it succeeded; if it did not, nothing older is lost. Does nothing when the run
 * keeps no folder. */
tw_status checkpoint_write(worker *w);

/* Puts `w`, just created, where the checkpoint was written: the one --resume names, or the newest in --out of which all
 * files are there. Every rank calls it. TW_ERROR_STATE and TW_ERROR_FORMAT name the file and what does not fit. */
tw_status checkpoint_resume(worker *w);

/* What is in a worker's file, for who keeps it in memory: carry.h. The second leaves what the optimiser and the
 * exchange have saved to others. */
tw_status checkpoint_pack_worker(worker *w, tw_state *state);
tw_status checkpoint_unpack_worker(worker *w, const tw_state *state);
/* The step of this run that comes as late in its epoch as that step of one with epochs of so many steps. A run whose
 * length is given in steps counts steps. */
uint64_t checkpoint_find_step(const worker *w, uint64_t written, uint64_t steps_per_epoch);

#endif
