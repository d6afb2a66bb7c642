/* dataset.h - labelled images in memory, and batches drawn from them. */
#ifndef TRAINER_DATASET_H
#define TRAINER_DATASET_H

#include <stddef.h>
#include <stdint.h>
#include <thinwire/thinwire.h>

/* One split of a data set. Pixels are bytes, (count, channels, height, width); labels are < classes. */
typedef struct image_set {
    size_t count, channels, height, width, classes;
    uint8_t *pixels;
    uint8_t *labels;
} image_set;

/* A training and a test split, and the statistics of the training pixels (on a 0..1 scale, one entry a channel). */
typedef struct dataset {
    const char *format; /* "idx", "cifar10", "cifar100" */
    char path[4096];    /* the folder it was read from */
    image_set train, test;
    float mean[3], deviation[3];
} dataset;

/* Reads the folder `path`, trying each format of the list by the file names it holds; NULL looks where Debian's
 * package dataset-fashion-mnist puts it. Files are not trusted: a missing, truncated, oversized or wrong file, or a
 * label out of range, is TW_ERROR_IO or TW_ERROR_FORMAT with a sentence that names the file and what would be right. */
tw_status dataset_load(const char *path, dataset *data);
void dataset_release(dataset *data);

/* How training images are varied. */
typedef struct augmentation {
    int padding; /* pixels of zero border the crop may move into; 0: no crop */
    int flip;    /* 1: mirrored left to right half of the time */
} augmentation;

/* The order of one epoch: a permutation of 0 .. count-1 that depends on (seed, epoch) alone, into order[0 .. count). */
void dataset_shuffle(uint32_t *order, size_t count, uint64_t seed, uint64_t epoch);

/* Copies images order[0 .. count) into `images` (count, channels, height, width) as floats, (pixel/255 - mean) /
 * deviation, and their labels. `augment` may be NULL (none); what is drawn depends on (seed, epoch, image) alone, so
 * not on how images are spread over workers. */
void dataset_batch(const dataset *data, const image_set *set, const uint32_t *order, size_t count,
                   const augmentation *augment, uint64_t seed, uint64_t epoch, float *images, uint8_t *labels);

#endif
