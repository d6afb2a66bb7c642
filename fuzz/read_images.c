/* Reads any bytes as a data set of images: the first byte chooses the format. Whatever is accepted must have a label
 * below the number of classes for every image, and all its pixels. */
#include "format.h"
#include "fuzz.h"

#include <string.h>

static volatile unsigned seen; /* so that the pixels are read, and a sanitizer sees each */

static void check(const image_set *set)
{
    unsigned sum = 0;
    size_t pixels = set->channels * set->height * set->width;
    must(set->count > 0 && pixels > 0);
    for (size_t i = 0; i < set->count; i++) must(set->labels[i] < set->classes);
    for (size_t i = 0; i < set->count * pixels; i++) sum += set->pixels[i];
    seen = sum;
}

/* The first byte says after how many the labels' file begins. */
static tw_status read_idx(const uint8_t *data, size_t size, image_set *set)
{
    size_t images = size > data[0] ? 1u + data[0] : size;
    tw_status status = idx_parse_images("images", data + 1, images - 1, set);
    return status == TW_OK ? idx_parse_labels("labels", data + images, size - images, set) : status;
}

/* Records are 3 KiB. An odd first byte has zeros fill up the last one, so that an input may be short. */
static tw_status read_cifar(const cifar_layout *layout, const uint8_t *data, size_t size, image_set *set)
{
    size_t rest = size - 1, records = (rest + layout->record - 1) / layout->record;
    size_t filled = data[0] & 1 ? records * layout->record : rest;
    uint8_t *bytes = calloc(filled + 1, 1);
    must(bytes != NULL);
    memcpy(bytes, data + 1, rest);
    tw_status status = cifar_parse(layout, "batch", bytes, filled, set);
    free(bytes);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const cifar_layout *const layouts[] = {&cifar10, &cifar100};
    image_set set = {0};
    if (size < 2) return 0;
    size_t format = data[0] % 3;
    tw_status status =
        format < 2 ? read_cifar(layouts[format], data + 1, size - 1, &set) : read_idx(data + 1, size - 1, &set);
    must(status == TW_OK || status == TW_ERROR_FORMAT);
    if (status == TW_OK) check(&set);
    free(set.pixels);
    free(set.labels);
    return 0;
}
