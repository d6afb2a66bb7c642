/* exchange_pipeline.h - --pipeline: the workers hold one network together, and each trains a stage of it.
 *
 * Stage s of P takes micro-batches in the order
 *
 *     F0 F1 ... F(P-s-1)   B0   F(P-s) B1   F(P-s+1) B2   ...
 *
 * F is a forward pass with the weights as they are now. They are stashed, since B, the backward pass, first computes
 * the forward pass of its micro-batch again with them and with the same dropout. So the gradient is that of the weights
 * which the micro-batch has met in this stage, and of no others. The optimiser then steps on the current weights;
 * nobody waits for other micro-batches (PipeDream's order, Narayanan et al., SOSP 2019; what is recomputed and where
 * the step is taken, as Ravnest, Menon et al., arXiv 2401.01728: a reconstruction).
 *
 * Staleness. When F of micro-batch m begins, stage s has stepped for the micro-batches before m - (P-1-s), by the order
 * above; when its gradient is applied, for those before m. So it is P-1-s steps old: 0 in the last stage, P-1 in the
 * first, and there are at most P-s micro-batches in stage s and behind it. While the pipeline fills, it is less: micro-
 * batch m of a stretch is min(m, P-1-s) steps old. With accumulate=K a step takes the mean gradient of K micro-batches,
 * mK to mK+K-1, and what is said here of steps is so of micro-batches: K times fewer steps come between, and where K is
 * P-1 or more, at most one.
 *
 * Since each stage has a fixed order and each line is a queue, the result depends on no time.
 *
 * The pipeline is filled and drained once in a stretch, which lasts until a checkpoint, an evaluation or the end, or
 * until somebody interrupts it: rank 0 lets no more micro-batches in, and says so with the last. All is at the same
 * step then, and rank 0 gathers what a checkpoint holds. A run that was interrupted has been drained where another
 * would not have been; from a checkpoint that both have, they go on alike to the last bit. */
#ifndef TRAINER_EXCHANGE_PIPELINE_H
#define TRAINER_EXCHANGE_PIPELINE_H

#include "exchange.h"

/* A worker's way is this one from now on, if --pipeline asks for it: checks what goes with it, and measures the layers
 * unless `cut` says where to cut. */
tw_status pipeline_open(worker *w);
/* With --pipeline: agrees where the network is cut. A collective. */
tw_status pipeline_agree(worker *w);
/* Before the learner is made: which part it is. Nothing without --pipeline. */
void pipeline_place(const worker *w, learner_place *place);
/* When the learner is made: how many steps an epoch has. TW_ERROR_ARGUMENT: not one. */
tw_status pipeline_count_steps(worker *w);

extern const exchange pipeline_exchange;

#endif
