/* batch.h - how one image becomes a place in a batch. Private to this folder. */
#ifndef TRAINER_DATA_BATCH_H
#define TRAINER_DATA_BATCH_H

#include "dataset.h"
#include "picture_files.h"

#include <stdbool.h>

/* What a batch does with each of its images. */
typedef struct image_treatment {
    const dataset *data;
    const image_set *set;
    bool varied;
    augmentation augment;
    uint64_t seed, epoch;
    float tables[3][256]; /* what a channel's values become */
} image_treatment;

image_treatment image_treatment_of(const dataset *data, const image_set *set, const augmentation *augment,
                                   uint64_t seed, uint64_t epoch);

/* Reads a file: a part of it is brought to the set's size, to grey where the set has one channel, then cropped,
 * mirrored and normalised. `chance` is what is drawn for. TW_ERROR_IO and TW_ERROR_FORMAT come with a line that names
 * the file. */
tw_status image_treat_path(const image_treatment *treatment, picture_desk *desk, const char *path, uint32_t chance,
                           float *dst);

#endif
