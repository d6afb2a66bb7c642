/* Bringing a part of a picture to another size, along the rows first and then along the columns. The weights are
 * triangles, as wide as a pixel of the result or of the source, whichever is wider. They are rounded to whole numbers,
 * so that sums come out alike whatever the order and the instructions. */
#include <math.h>

#include "error.h"
#include "picture.h"

enum { FRACTION = 22 }; /* bits of a weight behind the point */

/* What each pixel of one line of the result is made of. */
typedef struct taps {
    size_t count, most;               /* pixels of the result; the most of the source that one of them takes */
    uint32_t *first, *used, *weights; /* `most` weights for each */
} taps;

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static size_t most_taps(double scale)
{
    return 2 * (size_t)ceil(scale > 1 ? scale : 1) + 2;
}

static size_t taps_bytes(size_t count, double scale)
{
    return count * (2 * sizeof(uint32_t) + most_taps(scale) * sizeof(uint32_t));
}

/* Weights of the source's pixels begin .. end - 1 around `centre`, which add up to 1 but for rounding. */
static void weigh(double centre, double reach, size_t begin, size_t end, uint32_t *weights)
{
    double sum = 0;
    for (size_t i = begin; i < end; i++) sum += triangle(((double)i + 0.5 - centre) / reach);
    for (size_t i = begin; i < end; i++) {
        double weight = triangle(((double)i + 0.5 - centre) / reach) / sum;
        weights[i - begin] = (uint32_t)(weight * (1 << FRACTION) + 0.5);
    }
}

static void fill_taps(taps *t, size_t size, double from, double scale)
{
    double reach = scale > 1 ? scale : 1;
    for (size_t i = 0; i < t->count; i++) {
        double centre = from + ((double)i + 0.5) * scale, low = floor(centre - reach + 0.5);
        size_t begin = low > 0 ? (size_t)low : 0, end = (size_t)floor(centre + reach + 0.5);
        if (end > size) end = size;
        t->first[i] = (uint32_t)begin;
        t->used[i] = (uint32_t)(end - begin);
        weigh(centre, reach, begin, end, t->weights + i * t->most);
    }
}

/* Carves the arrays out of `bytes`, and says where the next ones begin. */
static uint8_t *place_taps(taps *t, size_t count, double scale, uint8_t *bytes)
{
    *t = (taps){.count = count, .most = most_taps(scale)};
    t->first = (uint32_t *)(void *)bytes;
    t->used = t->first + count;
    t->weights = t->used + count;
    return bytes + taps_bytes(count, scale);
}

/* 255 times the weights' sum, which is 1 but for rounding, stays far below 2^31. */
static uint8_t rounded(uint32_t sum)
{
    uint32_t value = (sum + (1u << (FRACTION - 1))) >> FRACTION;
    return value > 255 ? 255 : (uint8_t)value;
}

/* One row of the source becomes one row of three planes. */
static void shrink_row(const taps *t, const uint8_t *src, uint8_t *dst)
{
    for (size_t x = 0; x < t->count; x++) {
        const uint8_t *pixel = src + (size_t)3 * t->first[x];
        const uint32_t *weights = t->weights + x * t->most;
        uint32_t sum[3] = {0};
        for (size_t i = 0; i < t->used[x]; i++, pixel += 3)
            for (int c = 0; c < 3; c++) sum[c] += weights[i] * pixel[c];
        for (size_t c = 0; c < 3; c++) dst[c * t->count + x] = rounded(sum[c]);
    }
}

/* One row of a plane of the result from `used` rows of the same plane, `stride` bytes apart. */
static void blend_rows(const uint32_t *weights, size_t used, const uint8_t *rows, size_t stride, size_t width,
                       uint8_t *dst)
{
    for (size_t x = 0; x < width; x++) {
        uint32_t sum = 0;
        for (size_t i = 0; i < used; i++) sum += weights[i] * rows[i * stride + x];
        dst[x] = rounded(sum);
    }
}

static void blend_planes(const taps *down, const uint8_t *rows, size_t width, uint8_t *planes)
{
    size_t stride = 3 * width, top = down->first[0];
    for (size_t c = 0; c < 3; c++)
        for (size_t y = 0; y < down->count; y++, planes += width)
            blend_rows(down->weights + y * down->most, down->used[y],
                       rows + (down->first[y] - top) * stride + c * width, stride, width, planes);
}

tw_status picture_resample(const picture *src, const picture_box *part, size_t width, size_t height, picture_room *room,
                           uint8_t *planes)
{
    double across_scale = part->width / (double)width, down_scale = part->height / (double)height;
    taps across, down;
    TW_TRY(picture_reserve(&room->weights, taps_bytes(width, across_scale) + taps_bytes(height, down_scale)));
    place_taps(&down, height, down_scale, place_taps(&across, width, across_scale, room->weights.bytes));
    fill_taps(&across, src->width, part->left, across_scale);
    fill_taps(&down, src->height, part->top, down_scale);
    size_t top = down.first[0], bottom = down.first[height - 1] + down.used[height - 1];
    TW_TRY(picture_reserve(&room->rows, (bottom - top) * 3 * width));
    for (size_t y = top; y < bottom; y++)
        shrink_row(&across, src->pixels + y * 3 * src->width, room->rows.bytes + (y - top) * 3 * width);
    blend_planes(&down, room->rows.bytes, width, planes);
    return TW_OK;
}
