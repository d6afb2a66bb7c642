/* IDX, the format of MNIST and its kin: 0, 0, a type, the number of dimensions; the dimensions; the data, all
 * big-endian. Images are bytes (count, height, width), labels bytes (count), in separate files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "file.h"
#include "format.h"

enum { TYPE_BYTE = 0x08, DIMENSIONS_MOST = 3 };

/* Reads the dimensions and sees to it that the data are as long as they say. */
static tw_status parse_header(const char *name, const uint8_t *bytes, size_t size, size_t count, uint32_t dimensions[])
{
    size_t header = 4 + 4 * count;
    if (size < header) return tw_fail(TW_ERROR_FORMAT, "%s: %zu bytes, too short for an IDX header", name, size);
    if (bytes[0] || bytes[1])
        return tw_fail(TW_ERROR_FORMAT, "%s: begins with bytes %02x %02x, not with the 00 00 of an IDX file", name,
                       bytes[0], bytes[1]);
    if (bytes[2] != TYPE_BYTE)
        return tw_fail(TW_ERROR_FORMAT, "%s: IDX type 0x%02x; only unsigned bytes, 0x08, can be read", name, bytes[2]);
    if (bytes[3] != count)
        return tw_fail(TW_ERROR_FORMAT, "%s: %u dimensions; %s", name, bytes[3],
                       count == 3 ? "images have 3" : "labels have 1");

    uint64_t expected = 1;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *at = bytes + 4 + 4 * i;
        dimensions[i] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
        if (dimensions[i] == 0) return tw_fail(TW_ERROR_FORMAT, "%s: dimension %zu is 0", name, i + 1);
        if (__builtin_mul_overflow(expected, dimensions[i], &expected)) expected = UINT64_MAX; /* no file is as long */
    }
    if (expected != size - header)
        return tw_fail(TW_ERROR_FORMAT, "%s: its header promises %llu bytes of data, but %zu follow", name,
                       (unsigned long long)expected, size - header);
    return TW_OK;
}

static tw_status copy_data(const char *name, const uint8_t *data, size_t size, uint8_t **copy)
{
    uint8_t *space = malloc(size);
    if (!space) return tw_fail(TW_ERROR_MEMORY, "%s: no memory for %zu bytes of it", name, size);
    memcpy(space, data, size);
    free(*copy);
    *copy = space;
    return TW_OK;
}

tw_status idx_parse_images(const char *name, const uint8_t *bytes, size_t size, image_set *set)
{
    uint32_t dimensions[DIMENSIONS_MOST];
    TW_TRY(parse_header(name, bytes, size, 3, dimensions));
    if (set->height && (dimensions[1] != set->height || dimensions[2] != set->width))
        return tw_fail(TW_ERROR_FORMAT, "%s: images of %u x %u, but those for training are %zu x %zu", name,
                       dimensions[1], dimensions[2], set->height, set->width);
    TW_TRY(copy_data(name, bytes + 16, size - 16, &set->pixels));
    set->count = dimensions[0];
    set->channels = 1;
    set->height = dimensions[1];
    set->width = dimensions[2];
    return TW_OK;
}

/* The largest label, and how many different ones there are. */
static size_t survey(const uint8_t *labels, size_t count, size_t *different)
{
    bool seen[256] = {false};
    size_t most = 0;
    *different = 0;
    for (size_t i = 0; i < count; i++) seen[labels[i]] = true;
    for (size_t label = 0; label < 256; label++) {
        if (!seen[label]) continue;
        most = label;
        ++*different;
    }
    return most;
}

/* The format does not say how many classes there are: the largest label does. One that would leave most of the classes
 * without an image is more likely damage. */
static tw_status take_classes(const char *name, size_t most, size_t different, image_set *set)
{
    if (most > 2 * different + 10)
        return tw_fail(TW_ERROR_FORMAT, "%s: label %zu, but only %zu different labels; they should count up from 0",
                       name, most, different);
    set->classes = most + 1;
    return TW_OK;
}

tw_status idx_parse_labels(const char *name, const uint8_t *bytes, size_t size, image_set *set)
{
    uint32_t count = 0;
    TW_TRY(parse_header(name, bytes, size, 1, &count));
    if (count != set->count)
        return tw_fail(TW_ERROR_FORMAT, "%s: %u labels, but there are %zu images", name, count, set->count);
    size_t different, most = survey(bytes + 8, count, &different);
    if (set->classes && most >= set->classes)
        return tw_fail(TW_ERROR_FORMAT, "%s: label %zu, but those for training end at %zu", name, most,
                       set->classes - 1);
    if (!set->classes) TW_TRY(take_classes(name, most, different, set));
    return copy_data(name, bytes + 8, size - 8, &set->labels);
}

/* One of the two files of a split. */
typedef struct idx_part {
    const char *content; /* as in "train-images-idx3-ubyte" */
    int dimensions;
    tw_status (*parse)(const char *name, const uint8_t *bytes, size_t size, image_set *set);
} idx_part;

static const idx_part images = {"images", 3, idx_parse_images}, labels = {"labels", 1, idx_parse_labels};

/* Finds the name the file goes by: as published or as some unpackers leave it, packed or not. */
static bool find_file(const char *folder, const char *split, const idx_part *part, char name[FILE_NAME_MOST])
{
    static const char *const endings[] = {"", ".gz"};
    for (const char *mark = ".-"; *mark; mark++) {
        for (int i = 0; i < 2; i++) {
            snprintf(name, FILE_NAME_MOST, "%s-%s%cidx%d-ubyte%s", split, part->content, *mark, part->dimensions,
                     endings[i]);
            if (file_exists(folder, name)) return true;
        }
    }
    return false;
}

static tw_status read_part(const char *folder, const char *split, const idx_part *part, image_set *set)
{
    char name[FILE_NAME_MOST], path[FILE_PATH_MOST];
    uint8_t *bytes;
    size_t size;
    bool found = find_file(folder, split, part, name);
    file_path(path, folder, name);
    if (!found) return tw_fail(TW_ERROR_IO, "%s: not there, nor without .gz", path);
    TW_TRY(file_read(path, &bytes, &size));
    tw_status status = part->parse(path, bytes, size, set);
    free(bytes);
    return status;
}

static tw_status read_split(const char *folder, const char *split, image_set *set)
{
    TW_TRY(read_part(folder, split, &images, set));
    return read_part(folder, split, &labels, set);
}

static tw_status read_idx(const char *folder, dataset *data)
{
    const image_set *train = &data->train;
    TW_TRY(read_split(folder, "train", &data->train));
    data->test = (image_set){.height = train->height, .width = train->width, .classes = train->classes};
    return read_split(folder, "t10k", &data->test);
}

static bool found_idx(const char *folder)
{
    char name[FILE_NAME_MOST];
    return find_file(folder, "train", &images, name) || find_file(folder, "train", &labels, name) ||
           find_file(folder, "t10k", &images, name) || find_file(folder, "t10k", &labels, name);
}

const data_format idx_format = {"idx", "train-images-idx3-ubyte[.gz] (IDX)", found_idx, read_idx};
