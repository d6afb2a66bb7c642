/* CIFAR's binary files: records without a header, each a label or two and then 3 x 32 x 32 pixels. */
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "file.h"
#include "format.h"

enum { PIXELS = 3 * 32 * 32 };

const cifar_layout cifar10 = {
    .record = 1 + PIXELS,
    .label = 0,
    .classes = 10,
    .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
    .test = {"test_batch.bin"},
};

/* The first label of a record is the coarse one, of 20 kinds. */
const cifar_layout cifar100 = {
    .record = 2 + PIXELS,
    .label = 1,
    .classes = 100,
    .train = {"train.bin"},
    .test = {"test.bin"},
};

static tw_status cifar_make_room(const char *name, image_set *set, size_t count)
{
    uint8_t *pixels = realloc(set->pixels, (set->count + count) * PIXELS);
    if (pixels) set->pixels = pixels;
    uint16_t *labels = realloc(set->labels, (set->count + count) * sizeof *labels);
    if (labels) set->labels = labels;
    return pixels && labels ? TW_OK : tw_fail(TW_ERROR_MEMORY, "%s: no memory for %zu images", name, count);
}

tw_status cifar_parse(const cifar_layout *layout, const char *name, const uint8_t *bytes, size_t size, image_set *set)
{
    size_t count = size / layout->record;
    if (count == 0 || size % layout->record)
        return tw_fail(TW_ERROR_FORMAT, "%s: %zu bytes, not a whole number of records of %zu bytes", name, size,
                       layout->record);
    TW_TRY(cifar_make_room(name, set, count));
    for (size_t i = 0; i < count; i++) {
        const uint8_t *record = bytes + i * layout->record;
        uint8_t label = record[layout->label];
        if (label >= layout->classes)
            return tw_fail(TW_ERROR_FORMAT, "%s: record %zu has label %u; the largest is %zu", name, i, label,
                           layout->classes - 1);
        set->labels[set->count + i] = label;
        memcpy(set->pixels + (set->count + i) * PIXELS, record + layout->record - PIXELS, PIXELS);
    }
    set->count += count;
    set->channels = 3;
    set->height = set->width = 32;
    set->classes = layout->classes;
    return TW_OK;
}

static tw_status read_file(const cifar_layout *layout, const char *folder, const char *name, image_set *set)
{
    char path[FILE_PATH_MOST];
    uint8_t *bytes;
    size_t size;
    TW_TRY(file_read(file_path(path, folder, name), &bytes, &size));
    tw_status status = cifar_parse(layout, path, bytes, size, set);
    free(bytes);
    return status;
}

static tw_status read_layout(const cifar_layout *layout, const char *folder, dataset *data)
{
    for (const char *const *name = layout->train; *name; name++) TW_TRY(read_file(layout, folder, *name, &data->train));
    for (const char *const *name = layout->test; *name; name++) TW_TRY(read_file(layout, folder, *name, &data->test));
    return TW_OK;
}

static bool found_any(const char *folder, const char *const *names)
{
    for (; *names; names++)
        if (file_exists(folder, *names)) return true;
    return false;
}

static bool found_layout(const cifar_layout *layout, const char *folder)
{
    return found_any(folder, layout->train) || found_any(folder, layout->test);
}

static bool found_cifar10(const char *folder)
{
    return found_layout(&cifar10, folder);
}

static tw_status read_cifar10(const char *folder, const dataset_options *options, dataset *data)
{
    (void)options;
    return read_layout(&cifar10, folder, data);
}

static bool found_cifar100(const char *folder)
{
    return found_layout(&cifar100, folder);
}

static tw_status read_cifar100(const char *folder, const dataset_options *options, dataset *data)
{
    (void)options;
    return read_layout(&cifar100, folder, data);
}

const data_format cifar10_format = {"cifar10", "data_batch_1.bin (CIFAR-10)", found_cifar10, read_cifar10, false};
const data_format cifar100_format = {"cifar100", "train.bin (CIFAR-100)", found_cifar100, read_cifar100, false};
