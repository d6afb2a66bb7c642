/* spec_augment.h - SpecAugment (Park and others, 2019): bands of frequency and spans of time are masked. */
#ifndef TRAINER_SPEECH_SPEC_AUGMENT_H
#define TRAINER_SPEECH_SPEC_AUGMENT_H

#include <stdint.h>

#include "feature_settings.h"

/* All zeros: none. Widths are drawn from 0 .. the widest, places from all that fit. */
typedef struct spec_augmentation {
    int frequency_masks, time_masks;
    int widest_band;   /* mel bins */
    int longest_span;  /* rows, after stacking */
    double most_of_it; /* and no span is longer than this share of the utterance */
    double tempo;      /* see tempo.h; spec_augment has no part in it */
} spec_augmentation;

/* Masks rows (count, feature_width) with 0, the mean of a normalised column. A band covers its bins in all deltas and
 * stacked frames. What is drawn depends on (seed, epoch, utterance) alone, so on no worker or batch. */
void spec_augment(const spec_augmentation *augment, const feature_settings *settings, uint64_t seed, uint64_t epoch,
                  uint32_t utterance, float *rows, size_t count);

#endif
