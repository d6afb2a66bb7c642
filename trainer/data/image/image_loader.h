/* image_loader.h - batches of images that threads make ready while a network computes.
 *
 *     image_batch_start(next, &wanted);       // returns at once; the threads read, decode, crop, normalise
 *     ... a step on another batch ...
 *     TW_TRY(image_batch_wait(next));
 *     ... image_batch_images(next), image_batch_labels(next), image_batch_count(next) ...
 *
 * What is in a batch depends on what was asked for and on nothing else: not on the number of threads, nor on what was
 * made before. A batch belongs to one thread; many may have some of one loader. Of sets in memory batches are made at
 * once, by image_batch_start.
 *
 * A picture that cannot be read is told to standard error, once, by name. */
#ifndef TRAINER_IMAGE_LOADER_H
#define TRAINER_IMAGE_LOADER_H

#include "dataset.h"

#include <stdbool.h>

typedef struct image_loader image_loader;
typedef struct image_batch image_batch;

tw_status image_loader_create(size_t threads, image_loader **out);
void image_loader_destroy(image_loader *loader); /* all its batches are gone; NULL is none */

typedef struct image_order {
    const dataset *data;
    const image_set *set;
    const uint32_t *images; /* copied */
    size_t count;
    const augmentation *augment; /* NULL: none */
    uint64_t seed, epoch;
    bool whole; /* for training: in place of a picture that cannot be read the next of the set is taken; else it is left
                   out, and the batch is smaller */
} image_order;

/* `most` images of the set's shape. */
tw_status image_batch_create(const dataset *data, const image_set *set, size_t most, image_batch **out);
void image_batch_destroy(image_batch *batch); /* NULL is none */

/* Gives up what was under way. `wanted->count` is at most the batch's `most`. */
void image_batch_start(image_batch *batch, const image_order *wanted);
/* TW_ERROR_FORMAT or TW_ERROR_IO when even the pictures after one that cannot be read cannot. */
tw_status image_batch_wait(image_batch *batch);

const float *image_batch_images(const image_batch *batch);
const uint16_t *image_batch_labels(const image_batch *batch);
size_t image_batch_count(const image_batch *batch);
/* Why the first picture that was left out cannot be read, after waiting; "" when all could. */
const char *image_batch_fault(const image_batch *batch);

#endif
