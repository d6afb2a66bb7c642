/* support.h - files to be, and what a folder that is refused must look like. */
#ifndef TESTS_DATA_SUPPORT_H
#define TESTS_DATA_SUPPORT_H

#include "dataset.h"
#include "support/assert.h"
#include "support/folder.h"

typedef struct blob {
    uint8_t bytes[32768];
    size_t size;
} blob;

static inline void assert_shape(const image_set *set, size_t count, size_t channels, size_t height, size_t width,
                                size_t classes)
{
    const size_t shape[] = {set->count, set->channels, set->height, set->width, set->classes};
    assert_memory_equal(shape, ((size_t[]){count, channels, height, width, classes}), sizeof shape);
}

/* The load fails like that, names the file, says those words, and leaves nothing behind. */
static inline void assert_refused(tw_status status, const char *name, const char *words)
{
    dataset data;
    assert_int_equal(dataset_load(test_folder, &data), status);
    assert_said(in_folder(name), words);
    assert_null(data.train.pixels);
    assert_null(data.test.labels);
}

#endif
