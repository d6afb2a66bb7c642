/* base.h - the weights that adapters are trained beside. They do not change, so that checkpoints do not hold them:
 * these say in which file they are, and which checksum they have. */
#ifndef TRAINER_BASE_H
#define TRAINER_BASE_H

#include "worker.h"

/* The learner's buffers have just been taken out of `state`: that is the base from now on. */
tw_status base_take(worker *w, const tw_state *state);
/* Into a checkpoint, where the learner has a base; and out of it. */
tw_status base_put(const worker *w, tw_state *state);
tw_status base_get(worker *w, const tw_state *state);
/* A collective: the base that rank 0 has is in the learner's buffers everywhere. It is sent where some rank has not the
 * same weights at `path`, its own. */
tw_status base_spread(worker *w, const char *path);
/* Reads the base of a run that goes on into the learner's buffers. A collective. */
tw_status base_load(worker *w);

#endif
