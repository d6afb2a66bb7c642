/* The order of an epoch and the batches drawn in it. Every draw has a place of its own in a counter-based generator, so
 * no draw depends on another, nor on which worker makes it. */
#include <thinwire/thinwire_plugin.h>

#include "dataset.h"

/* Streams of the generator, one an epoch: the high half says what for. */
static const uint64_t shuffle_stream = (uint64_t)0x5348 << 32;
static const uint64_t augment_stream = (uint64_t)0x4155 << 32;

/* A 64-bit fraction times the bound: what remains of bias is below bound / 2^64. */
static uint32_t scale(uint32_t high, uint32_t low, uint32_t bound)
{
    return (uint32_t)(((uint64_t)high * bound + ((uint64_t)low * bound >> 32)) >> 32);
}

/* Fisher and Yates, from the last place to the first. */
void dataset_shuffle(uint32_t *order, size_t count, uint64_t seed, uint64_t epoch)
{
    for (size_t i = 0; i < count; i++) order[i] = (uint32_t)i;
    for (size_t i = count; i > 1; i--) {
        uint32_t words[4];
        tw_random(seed, shuffle_stream + epoch, i, words);
        uint32_t other = scale(words[0], words[1], (uint32_t)i);
        uint32_t moved = order[i - 1];
        order[i - 1] = order[other];
        order[other] = moved;
    }
}

/* Where a crop begins, relative to the image, and whether it is mirrored. */
typedef struct crop_place {
    long top, left;
    int mirrored;
} crop_place;

static crop_place draw_crop(const augmentation *augment, uint64_t seed, uint64_t epoch, uint32_t image)
{
    uint32_t words[4], positions = 2 * (uint32_t)augment->padding + 1;
    tw_random(seed, augment_stream + epoch, image, words);
    crop_place drawn = {.top = (long)scale(words[0], 0, positions) - augment->padding,
                        .left = (long)scale(words[1], 0, positions) - augment->padding,
                        .mirrored = augment->flip && (words[2] & 1)};
    return drawn;
}

/* What each of a channel's 256 values becomes. */
static void fill_table(float table[256], float mean, float deviation)
{
    for (int value = 0; value < 256; value++) table[value] = ((float)value / 255.0f - mean) / deviation;
}

static void copy_plane(float *dst, const uint8_t *src, size_t count, const float table[256])
{
    for (size_t i = 0; i < count; i++) dst[i] = table[src[i]];
}

/* The x with 0 <= x + shift < size and 0 <= x < size. */
typedef struct range {
    long first, last;
} range;

static range overlap(size_t size, long shift)
{
    return (range){shift < 0 ? -shift : 0, shift > 0 ? (long)size - shift : (long)size};
}

/* dst[y][x] = src[y + top][x + left], perhaps mirrored; what lies outside of src is black, as in an image that is
 * padded with zeros before it is normalised. */
static void crop_plane(float *dst, const uint8_t *src, const image_set *set, crop_place crop, const float table[256])
{
    long width = (long)set->width;
    range rows = overlap(set->height, crop.top), columns = overlap(set->width, crop.left);
    for (size_t i = 0; i < set->height * set->width; i++) dst[i] = table[0];
    for (long y = rows.first; y < rows.last; y++) {
        long from = (y + crop.top) * width + crop.left;
        float *row = dst + y * width;
        if (crop.mirrored)
            for (long x = columns.first; x < columns.last; x++) row[width - 1 - x] = table[src[from + x]];
        else
            for (long x = columns.first; x < columns.last; x++) row[x] = table[src[from + x]];
    }
}

void dataset_batch(const dataset *data, const image_set *set, const uint32_t *order, size_t count,
                   const augmentation *augment, uint64_t seed, uint64_t epoch, float *images, uint8_t *labels)
{
    float tables[3][256];
    size_t plane = set->height * set->width;
    int varied = augment && (augment->padding > 0 || augment->flip);
    for (size_t c = 0; c < set->channels; c++) fill_table(tables[c], data->mean[c], data->deviation[c]);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *src = set->pixels + order[i] * set->channels * plane;
        crop_place crop = varied ? draw_crop(augment, seed, epoch, order[i]) : (crop_place){0};
        labels[i] = set->labels[order[i]];
        for (size_t c = 0; c < set->channels; c++, src += plane, images += plane) {
            if (varied)
                crop_plane(images, src, set, crop, tables[c]);
            else
                copy_plane(images, src, plane, tables[c]);
        }
    }
}
