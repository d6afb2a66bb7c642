/* format.h - what a data format offers: one file and one line in the list below. Private to this folder. */
#ifndef TRAINER_DATA_FORMAT_H
#define TRAINER_DATA_FORMAT_H

#include <stdbool.h>

#include "dataset.h"

/* The formats there are, in the order in which a folder is tried. A new one is one line here; its file defines
 * NAME_format. */
#define DATA_FORMATS(X)                                                                                                \
    X(idx)                                                                                                             \
    X(cifar10)                                                                                                         \
    X(cifar100)                                                                                                        \
    X(pictures)

typedef struct data_format {
    const char *name;
    const char *files; /* what marks a folder of this format, for the text when none fits */
    /* True if the folder holds any of the format's files; `read` then says what is wrong with the rest. */
    bool (*found)(const char *folder);
    /* Fills train and test, which come zeroed. What is there after a failure is released by the caller. A format that
     * leaves pixels in files does what the options ask for, and makes the loader and the statistics, too. */
    tw_status (*read)(const char *folder, const dataset_options *options, dataset *data);
    bool in_files;
} data_format;

#define DECLARE_FORMAT(name) extern const data_format name##_format;
DATA_FORMATS(DECLARE_FORMAT)
#undef DECLARE_FORMAT

/* A channel's mean and deviation, from how often each of the 256 values is there. */
void dataset_take_statistics(dataset *data, size_t channel, const uint64_t often[256]);

/* The parsers, which take any bytes; `name` stands for the file in the texts of failures.
 *
 * The IDX ones fill a set, images first. Where its height or its classes are known already (a test set's, from
 * training), the file must agree. */
tw_status idx_parse_images(const char *name, const uint8_t *bytes, size_t size, image_set *set);
tw_status idx_parse_labels(const char *name, const uint8_t *bytes, size_t size, image_set *set);

/* How the records of CIFAR's binary files are made, and which files they stand in. */
typedef struct cifar_layout {
    size_t record, label; /* bytes of a record, and which of them is the label; the pixels are the last 3072 */
    size_t classes;
    const char *train[6], *test[2]; /* NULL at the end */
} cifar_layout;

extern const cifar_layout cifar10, cifar100;

/* Appends the records of one file to the set. */
tw_status cifar_parse(const cifar_layout *layout, const char *name, const uint8_t *bytes, size_t size, image_set *set);

#endif
