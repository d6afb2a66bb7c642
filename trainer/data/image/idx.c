/* IDX, the format of MNIST and its kin: 0, 0, a type, the number of dimensions; the dimensions; the data, all
 * big-endian. Images are bytes (count, height, width), or in colour (count, height, width, 3), as arrays of pictures
 * mostly lie in memory, or (count, 3, height, width), as networks take them; labels are bytes (count), in separate
 * files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "file.h"
#include "format.h"

enum { TYPE_BYTE = 0x08, DIMENSIONS_MOST = 4, COLOURS = 3 };

static tw_status check_length(const char *name, size_t size, size_t header)
{
    if (size >= header) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "%s: %zu bytes, too short for an IDX header", name, size);
}

/* Reads the dimensions, `least` to `most` of them, and sees to it that the data are as long as they say. */
static tw_status parse_header(const char *name, const uint8_t *bytes, size_t size, size_t least, size_t most,
                              uint32_t dimensions[])
{
    TW_TRY(check_length(name, size, 4 + 4 * least));
    if (bytes[0] || bytes[1])
        return tw_fail(TW_ERROR_FORMAT, "%s: begins with bytes %02x %02x, not with the 00 00 of an IDX file", name,
                       bytes[0], bytes[1]);
    if (bytes[2] != TYPE_BYTE)
        return tw_fail(TW_ERROR_FORMAT, "%s: IDX type 0x%02x; only unsigned bytes, 0x08, can be read", name, bytes[2]);
    if (bytes[3] < least || bytes[3] > most)
        return tw_fail(TW_ERROR_FORMAT, "%s: %u dimensions; %s", name, bytes[3],
                       most > 1 ? "images have 3, or 4 in colour" : "labels have 1");

    uint64_t expected = 1;
    size_t count = bytes[3], header = 4 + 4 * count;
    TW_TRY(check_length(name, size, header));
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

/* What an image file says of its images. */
typedef struct image_shape {
    size_t count, channels, height, width;
    bool colours_last; /* a pixel's three values lie side by side */
} image_shape;

static tw_status take_shape(const char *name, size_t dimension_count, const uint32_t d[], image_shape *shape)
{
    *shape = (image_shape){d[0], 1, d[1], d[2], false};
    if (dimension_count == 3) return TW_OK;
    if (d[3] == COLOURS)
        *shape = (image_shape){d[0], COLOURS, d[1], d[2], true};
    else
        *shape = (image_shape){d[0], COLOURS, d[2], d[3], false};
    if (d[3] == COLOURS || d[1] == COLOURS) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT,
                   "%s: images of %u x %u x %u; in colour they have 3 as the last of these, or as the first", name,
                   d[1], d[2], d[3]);
}

static const char *kind_of(size_t channels)
{
    return channels == 1 ? "grey" : "colour";
}

/* A test set's are like those for training. */
static tw_status check_alike(const char *name, const image_shape *shape, const image_set *set)
{
    if (!set->height) return TW_OK;
    if (shape->channels != set->channels)
        return tw_fail(TW_ERROR_FORMAT, "%s: %s images, but those for training are in %s", name,
                       kind_of(shape->channels), kind_of(set->channels));
    if (shape->height == set->height && shape->width == set->width) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "%s: images of %zu x %zu, but those for training are %zu x %zu", name,
                   shape->height, shape->width, set->height, set->width);
}

/* From pixels of three values to three planes. */
static void part_colours(uint8_t *dst, const uint8_t *src, size_t count, size_t plane)
{
    for (size_t image = 0; image < count; image++, dst += COLOURS * plane, src += COLOURS * plane)
        for (size_t i = 0; i < plane; i++)
            for (size_t c = 0; c < COLOURS; c++) dst[c * plane + i] = src[i * COLOURS + c];
}

static tw_status copy_labels(const char *name, const uint8_t *labels, size_t count, uint16_t **copy)
{
    uint16_t *space = malloc(count * sizeof *space);
    if (!space) return tw_fail(TW_ERROR_MEMORY, "%s: no memory for %zu labels", name, count);
    for (size_t i = 0; i < count; i++) space[i] = labels[i];
    free(*copy);
    *copy = space;
    return TW_OK;
}

tw_status idx_parse_images(const char *name, const uint8_t *bytes, size_t size, image_set *set)
{
    uint32_t dimensions[DIMENSIONS_MOST];
    image_shape shape;
    TW_TRY(parse_header(name, bytes, size, 3, DIMENSIONS_MOST, dimensions));
    TW_TRY(take_shape(name, bytes[3], dimensions, &shape));
    TW_TRY(check_alike(name, &shape, set));
    size_t header = 4 + 4 * (size_t)bytes[3];
    TW_TRY(copy_data(name, bytes + header, size - header, &set->pixels));
    if (shape.colours_last) part_colours(set->pixels, bytes + header, shape.count, shape.height * shape.width);
    set->count = shape.count;
    set->channels = shape.channels;
    set->height = shape.height;
    set->width = shape.width;
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
static tw_status idx_take_classes(const char *name, size_t most, size_t different, image_set *set)
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
    TW_TRY(parse_header(name, bytes, size, 1, 1, &count));
    if (count != set->count)
        return tw_fail(TW_ERROR_FORMAT, "%s: %u labels, but there are %zu images", name, count, set->count);
    size_t different, most = survey(bytes + 8, count, &different);
    if (set->classes && most >= set->classes)
        return tw_fail(TW_ERROR_FORMAT, "%s: label %zu, but those for training end at %zu", name, most,
                       set->classes - 1);
    if (!set->classes) TW_TRY(idx_take_classes(name, most, different, set));
    return copy_labels(name, bytes + 8, count, &set->labels);
}

/* One of the two files of a split. */
typedef struct idx_part {
    const char *content;    /* as in "train-images-idx3-ubyte" */
    const char *dimensions; /* of which one stands in the name; what the file says counts */
    tw_status (*parse)(const char *name, const uint8_t *bytes, size_t size, image_set *set);
} idx_part;

static const idx_part images = {"images", "34", idx_parse_images}, labels = {"labels", "1", idx_parse_labels};

/* Finds the name the file goes by: as published or as some unpackers leave it, packed or not. */
static bool find_file(const char *folder, const char *split, const idx_part *part, char name[FILE_NAME_MOST])
{
    static const char *const endings[] = {"", ".gz"};
    *name = '\0';
    for (size_t d = strlen(part->dimensions); d-- > 0;) {
        for (const char *mark = ".-"; *mark; mark++) {
            for (int i = 0; i < 2; i++) {
                snprintf(name, FILE_NAME_MOST, "%s-%s%cidx%c-ubyte%s", split, part->content, *mark, part->dimensions[d],
                         endings[i]);
                if (file_exists(folder, name)) return true;
            }
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

static tw_status read_idx(const char *folder, const dataset_options *options, dataset *data)
{
    (void)options;
    const image_set *train = &data->train;
    TW_TRY(read_split(folder, "train", &data->train));
    data->test = (image_set){
        .channels = train->channels, .height = train->height, .width = train->width, .classes = train->classes};
    return read_split(folder, "t10k", &data->test);
}

static bool found_idx(const char *folder)
{
    char name[FILE_NAME_MOST];
    return find_file(folder, "train", &images, name) || find_file(folder, "train", &labels, name) ||
           find_file(folder, "t10k", &images, name) || find_file(folder, "t10k", &labels, name);
}

const data_format idx_format = {"idx", "train-images-idx3-ubyte[.gz] (IDX)", found_idx, read_idx, false};
