/* utterance.h - what a network said of one utterance. */
#ifndef TRAINER_SPEECH_UTTERANCE_H
#define TRAINER_SPEECH_UTTERANCE_H

#include <stddef.h>

#define CTC_BLANK 0

/* Frame t's logits are values[t * stride .. + labels): in a batch (time, batch, labels), number n begins at
 * values + n * labels, and the stride is batch * labels. Label 0 is CTC's blank. */
typedef struct utterance {
    const float *values;
    size_t stride, frames, labels;
} utterance;

#endif
