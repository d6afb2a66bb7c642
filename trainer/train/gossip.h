/* gossip.h - a worker that trains weights of its own, which a tw_gossip draws towards the others'. Inside train/ and
 * sim/ only. */
#ifndef TRAINER_GOSSIP_H
#define TRAINER_GOSSIP_H

#include "worker.h"

/* Begins from rank 0's weights. A collective, as gossip_leave is; in between each worker is on its own. */
tw_status gossip_join(worker *w);
/* The model's weights become what they are now, after what others' weights have done to them. */
tw_status gossip_read(worker *w);
/* One step of the optimiser from the model's weights and gradients, at `rate`. TW_ERROR_NONFINITE: it was skipped, and
 * neither weights nor momentum have felt it. */
tw_status gossip_step(worker *w, float rate);
/* Waits for the others' last steps; the model's weights are then the mean over all workers that are not lost, on every
 * rank. These are the workers from here on: comm, rank and size of `w` are new where some were lost. */
tw_status gossip_leave(worker *w);
/* Adds to `sums` what the gossip under way has counted. */
tw_status gossip_add_totals(const worker *w, totals *sums);

#endif
