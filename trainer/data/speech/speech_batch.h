/* speech_batch.h - the order of an epoch, and batches of utterances of like length. */
#ifndef TRAINER_SPEECH_SPEECH_BATCH_H
#define TRAINER_SPEECH_SPEECH_BATCH_H

#include <stdbool.h>

#include "spec_augment.h"
#include "speech_data.h"

/* Steps of an epoch in which each of `ranks` workers takes `batch` utterances; what is left over rests. */
size_t speech_steps(const speech_set *set, size_t ranks, size_t batch);

/* The order of one epoch, into order[0 .. set->count); a function of (seed, epoch) and the sizes alone. In step s,
 * worker r takes the `batch` entries from order[(s * ranks + r) * batch] on. All of a step's utterances are of like
 * length, and spread so that each worker has short and long ones; which ones rest (the last entries) and which meet
 * changes from epoch to epoch. The steps come in random order, or from short to long if `sorted` (SortaGrad, for the
 * first epoch). TW_ERROR_ARGUMENT when there are fewer utterances than one step takes. */
tw_status speech_order(const speech_set *set, size_t ranks, size_t batch, uint64_t seed, uint64_t epoch, bool sorted,
                       uint32_t *order);
/* All utterances from short to long, for evaluation. */
tw_status speech_order_by_length(const speech_set *set, uint32_t *order);

/* A batch; the buffers grow and are used again. Begin with all zeros. */
typedef struct speech_batch {
    size_t count, time, width; /* time: the longest one's frames */
    float *features;           /* (time, count, width); 0 behind an utterance's end */
    uint32_t *lengths;         /* (count): frames */
    uint32_t *targets;         /* of all utterances, one after the other */
    uint32_t *target_counts;   /* (count) */
    float *rows;               /* one utterance, on its way */
    size_t feature_capacity, row_capacity, target_capacity, length_capacity, target_count_capacity;
} speech_batch;

/* Fills the batch with the utterances order[0 .. count). `augment` may be NULL: none; what is drawn depends on (seed,
 * epoch, utterance) alone. */
tw_status speech_fill(const speech_set *set, const uint32_t *order, size_t count, const spec_augmentation *augment,
                      uint64_t seed, uint64_t epoch, speech_batch *batch);
void speech_batch_release(speech_batch *batch);

#endif
