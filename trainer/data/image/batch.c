/* What pixels become, and the batches drawn in an epoch. Every draw has a place of its own in a counter-based
 * generator, so no draw depends on another, nor on which worker makes it. */
#include "batch.h"

#include <math.h>
#include <thinwire/thinwire_plugin.h>

#include "error.h"
#include "format.h"
#include "shuffle.h"

/* Streams of the generator, one an epoch: the high half says what for. */
static const uint64_t augment_stream = (uint64_t)0x4155 << 32;
static const uint64_t part_stream = (uint64_t)0x5041 << 32;

/* Where a crop begins, relative to the image, and whether it is mirrored. */
typedef struct crop_place {
    long top, left;
    int mirrored;
} crop_place;

static crop_place draw_crop(const augmentation *augment, uint64_t seed, uint64_t epoch, uint32_t image)
{
    uint32_t words[4], positions = 2 * (uint32_t)augment->padding + 1;
    tw_random(seed, augment_stream + epoch, image, words);
    crop_place drawn = {.top = (long)data_scale(words[0], 0, positions) - augment->padding,
                        .left = (long)data_scale(words[1], 0, positions) - augment->padding,
                        .mirrored = augment->flip && (words[2] & 1)};
    return drawn;
}

void dataset_take_statistics(dataset *data, size_t channel, const uint64_t often[256])
{
    double count = 0, sum = 0, squares = 0;
    for (int value = 0; value < 256; value++) {
        count += (double)often[value];
        sum += value / 255.0 * (double)often[value];
    }
    double mean = sum / count;
    for (int value = 0; value < 256; value++) squares += pow(value / 255.0 - mean, 2) * (double)often[value];
    data->mean[channel] = (float)mean;
    data->deviation[channel] = squares > 0 ? (float)sqrt(squares / count) : 1; /* a batch divides by it */
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

/* ---- a place in a batch ---- */

image_treatment image_treatment_of(const dataset *data, const image_set *set, const augmentation *augment,
                                   uint64_t seed, uint64_t epoch)
{
    image_treatment t = {.data = data, .set = set, .seed = seed, .epoch = epoch};
    if (augment) t.augment = *augment;
    t.varied = t.augment.padding > 0 || t.augment.flip;
    for (size_t c = 0; c < set->channels; c++) fill_table(t.tables[c], data->mean[c], data->deviation[c]);
    return t;
}

/* An image whose pixels are `src`, cropped, mirrored and normalised. */
static void image_treat(const image_treatment *t, const uint8_t *src, uint32_t chance, float *dst)
{
    size_t plane = t->set->height * t->set->width;
    crop_place crop = t->varied ? draw_crop(&t->augment, t->seed, t->epoch, chance) : (crop_place){0};
    for (size_t c = 0; c < t->set->channels; c++, src += plane, dst += plane) {
        if (t->varied)
            crop_plane(dst, src, t->set, crop, t->tables[c]);
        else
            copy_plane(dst, src, plane, t->tables[c]);
    }
}

static double fraction(uint32_t word)
{
    return (double)word * 0x1p-32;
}

/* A part that is wider than high is as likely as one that is higher than wide. */
static double draw_aspect(uint32_t word)
{
    double narrow = 0.75 + 0.25 * fraction(word & ~1u);
    return word & 1 ? narrow : 1 / narrow;
}

/* Szegedy et al., Going deeper with convolutions, 2014: of 8 to 100 % of the pixels. A part that does not fit is drawn
 * again; after ten of them, the largest in the middle is taken. */
static picture_box draw_part(const image_treatment *t, const picture_header *header, uint32_t chance)
{
    double width = (double)header->width, height = (double)header->height;
    for (uint64_t attempt = 0; attempt < 10; attempt++) {
        uint32_t words[4];
        tw_random(t->seed, part_stream + t->epoch, (uint64_t)chance * 16 + attempt, words);
        double area = width * height * (0.08 + 0.92 * fraction(words[0])), aspect = draw_aspect(words[1]);
        picture_box part = {.width = sqrt(area * aspect), .height = sqrt(area / aspect)};
        if (part.width > width || part.height > height) continue;
        part.left = (width - part.width) * fraction(words[2]);
        part.top = (height - part.height) * fraction(words[3]);
        return part;
    }
    return picture_middle(header, (double)t->set->width / (double)t->set->height);
}

/* In place, with the weights of ITU-R BT.601. */
static void make_grey(uint8_t *planes, size_t plane)
{
    for (size_t i = 0; i < plane; i++)
        planes[i] = (uint8_t)((299 * planes[i] + 587 * planes[plane + i] + 114 * planes[2 * plane + i] + 500) / 1000);
}

tw_status image_treat_path(const image_treatment *t, picture_desk *desk, const char *path, uint32_t chance, float *dst)
{
    TW_TRY(picture_desk_open(desk, path));
    picture_box part = t->augment.parts ? draw_part(t, &desk->header, chance)
                                        : picture_middle(&desk->header, (double)t->set->width / (double)t->set->height);
    TW_TRY(picture_desk_read(desk, path, &part, t->set->width, t->set->height));
    if (t->set->channels == 1) make_grey(desk->planes.bytes, t->set->height * t->set->width);
    image_treat(t, desk->planes.bytes, chance, dst);
    return TW_OK;
}

void dataset_batch(const dataset *data, const image_set *set, const uint32_t *order, size_t count,
                   const augmentation *augment, uint64_t seed, uint64_t epoch, float *images, uint16_t *labels)
{
    size_t size = set->channels * set->height * set->width;
    image_treatment treatment = image_treatment_of(data, set, augment, seed, epoch);
    for (size_t i = 0; i < count; i++) {
        labels[i] = set->labels[order[i]];
        image_treat(&treatment, set->pixels + order[i] * size, order[i], images + i * size);
    }
}
