/* dataset.h - labelled images, in memory or in files, and batches drawn from them. */
#ifndef TRAINER_DATASET_H
#define TRAINER_DATASET_H

#include <stddef.h>
#include <stdint.h>
#include <thinwire/thinwire.h>

/* One split of a data set. Pixels are bytes, (count, channels, height, width); labels are < classes. */
typedef struct image_set {
    size_t count, channels, height, width, classes;
    uint8_t *pixels; /* NULL: each image is read from its file when it is wanted */
    uint16_t *labels;
    struct picture_files *files; /* NULL: they are in memory */
} image_set;

/* What is trained on, what models are chosen by, what tells at the end how good one got; and the statistics of the
 * training pixels (on a 0..1 scale, one entry a channel). */
typedef struct dataset {
    const char *format;           /* "idx", "cifar10", "cifar100", "pictures" */
    char path[4096];              /* the folder it was read from */
    image_set train, valid, test; /* one of the latter two may have no images */
    float mean[3], deviation[3];
    char **class_names;          /* one for each class; NULL where the format has none */
    struct image_loader *loader; /* the threads that read files; NULL: images are in memory */
    char note[512];              /* what a person should know of it: what was left out; mostly "" */
} dataset;

/* What may be asked of a data set. */
typedef struct dataset_options {
    size_t image_size; /* of pictures in files: the sides of the square they are brought to; 0: 64 */
    double validation; /* the share of each class's training images that is held out as `valid`; 0: none */
    size_t decoders;   /* threads that read files; 0: two */
} dataset_options;

/* Reads the folder `path`, trying each format of the list by the file names it holds; NULL looks where Debian's
 * package dataset-fashion-mnist puts it. Files are not trusted: a missing, truncated, oversized or wrong file, or a
 * label out of range, is TW_ERROR_IO or TW_ERROR_FORMAT with a sentence that names the file and what would be right.
 * Options that do not suit the format are TW_ERROR_ARGUMENT. */
tw_status dataset_open(const char *path, const dataset_options *options, dataset *data);
/* The same without options. */
tw_status dataset_load(const char *path, dataset *data);
void dataset_release(dataset *data);

/* A sum over the names of a set's files, which tells two lists apart; 0 for a set in memory. */
uint32_t dataset_sum_names(const image_set *set);
/* A sum over what is in a set's files, or in a sample of them; 0 for a set in memory. */
uint32_t dataset_sum_files(const dataset *data, const image_set *set);

/* What `path` may be, for help, with the names of the formats. */
extern const char dataset_help[];

/* How training images are varied. */
typedef struct augmentation {
    int padding; /* pixels of zero border the crop may move into; 0: no crop */
    int flip;    /* 1: mirrored left to right half of the time */
    int parts;   /* 1: of a picture in a file a random part is taken, 8 to 100 % of it, 3/4 to 4/3 as wide as high */
} augmentation;

/* Copies images order[0 .. count) of a set in memory into `images` (count, channels, height, width) as floats,
 * (pixel/255 - mean) / deviation, and their labels. `augment` may be NULL (none); what is drawn depends on (seed,
 * epoch, image) alone, so not on how images are spread over workers. image_loader.h has batches of sets in files, too.
 */
void dataset_batch(const dataset *data, const image_set *set, const uint32_t *order, size_t count,
                   const augmentation *augment, uint64_t seed, uint64_t epoch, float *images, uint16_t *labels);

#endif
