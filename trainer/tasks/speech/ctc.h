/* ctc.h - connectionist temporal classification, the loss of a recogniser whose targets say what was spoken but not
 * when (Graves, Fernandez, Gomez, Schmidhuber, ICML 2006).
 *
 * The network gives a distribution over labels for each frame, blank included. A path, one label a frame, spells a
 * target when its runs are merged and then its blanks removed; the loss is -ln of the sum over all paths that spell it.
 */
#ifndef TRAINER_CTC_H
#define TRAINER_CTC_H

#include "utterance.h"
#include <stdint.h>
#include <thinwire/thinwire.h>

/* A batch of padded utterances. */
typedef struct ctc_batch {
    size_t time, batch, labels;
    const float *logits;            /* (time, batch, labels) */
    const uint32_t *frames;         /* (batch): how many frames each has, <= time; the rest is padding */
    const uint32_t *targets;        /* one after the other, none of them blank: 1 .. labels-1 */
    const uint32_t *target_lengths; /* (batch); 0 is a target too: silence */
} ctc_batch;

typedef struct ctc_result {
    double sum; /* of the losses of the feasible sequences, in nats */
    size_t feasible;
    size_t infeasible; /* too few frames: a target needs one a label, and one between equal neighbours */
} ctc_result;

/* How much each sequence counts in the mean. */
typedef enum ctc_weight {
    CTC_BY_SEQUENCE, /* all alike */
    CTC_BY_LABEL     /* loss and gradient divided by max(1, the target's length), as PyTorch's "mean" does */
} ctc_weight;

typedef struct ctc ctc;

/* The memory for utterances of at most `time` frames and targets of at most `target` labels:
 * 16 * time * (labels + 2 * target) bytes. No other call allocates. */
tw_status ctc_create(size_t time, size_t labels, size_t target, ctc **out);
void ctc_destroy(ctc *c);

/* `gradient`, (time, batch, labels) unless NULL, receives the gradient of the mean loss over the WHOLE batch with
 * respect to the logits. Infeasible sequences add nothing to it and are counted; padding gets zeros. An utterance with
 * a logit of NaN or plus infinity has the loss NaN, and so its gradient. A probability below 2^-1048576 counts as that.
 * TW_ERROR_ARGUMENT names a length beyond the capacity, or a target that is no label. */
tw_status ctc_loss(ctc *c, const ctc_batch *batch, ctc_weight weight, float *gradient, ctc_result *result);

#endif
