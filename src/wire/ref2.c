/* Two bits a value, as the public releases of SparseLoCo have them (Sarfi et al. 2025, arXiv 2508.15706): four
 * bins about the mean of a section's values, each a deviation and a half wide, the outer ones without an end. A
 * value becomes the mean of its bin. The sum of the values stays what it was; a sign may not. The four means in
 * fp32, then two bits a value; the mean of an empty bin is zero. */
#include "bits.h"
#include "values.h"
#include <math.h>
#include <stdbool.h>

enum { LEVELS = 4, HEAD_BYTES = 4 * LEVELS };

typedef struct bins {
    bool listed; /* the levels are the values themselves, and which bins they would fall into is nobody's concern */
    double middle, width;
    float level[LEVELS];
} bins;

/* What lies halfway between two bins belongs to the one with the even number. */
static unsigned bin_of(float x, const bins *by)
{
    double at = ((double)x - by->middle) / by->width;
    return (at > -1.5) + (at >= -0.5) + (at > 0.5);
}

static bins bins_of(const float *value, size_t k)
{
    bins by = {.width = 1};
    double squares = 0, sum[LEVELS] = {0}, count[LEVELS] = {0};
    for (size_t i = 0; i < k; i++) by.middle += value[i];
    by.middle /= (double)k;
    for (size_t i = 0; i < k; i++) squares += (value[i] - by.middle) * (value[i] - by.middle);
    if (squares > 0) by.width = 1.5 * sqrt(squares / (double)(k - 1));
    for (size_t i = 0; i < k; i++) {
        unsigned bin = bin_of(value[i], &by);
        sum[bin] += value[i];
        count[bin]++;
    }
    for (int j = 0; j < LEVELS; j++)
        if (count[j] > 0) by.level[j] = (float)(sum[j] / count[j]) + 0.0F; /* no zero has a sign */
    return by;
}

/* Whether there are no more than four values, as in a section that was rounded: they are its levels. Bins would be
 * narrower now, and two of them could become one. */
static bool list_levels(const float *value, size_t k, bins *by)
{
    size_t count = 0;
    *by = (bins){.listed = true};
    for (size_t i = 0; i < k; i++) {
        size_t j = 0;
        while (j < count && by->level[j] != value[i]) j++;
        if (j == LEVELS) return false;
        if (j == count) by->level[count++] = value[i];
    }
    return true;
}

static unsigned level_of(float x, const bins *by)
{
    unsigned code = 0;
    if (!by->listed) return bin_of(x, by);
    while (by->level[code] != x) code++;
    return code;
}

static size_t ref2_bytes(size_t k)
{
    return k ? HEAD_BYTES + (2 * k + 7) / 8 : 0;
}

static void ref2_write(unsigned char *dst, const float *value, size_t k)
{
    bins by;
    if (k == 0) return;
    if (!list_levels(value, k, &by)) by = bins_of(value, k);
    memcpy(dst, by.level, HEAD_BYTES);
    tw_bit_writer writer = {dst + HEAD_BYTES, dst + ref2_bytes(k), 0, 0};
    for (size_t i = 0; i < k; i++) tw_bits_put(&writer, level_of(value[i], &by), 2);
    tw_bits_flush(&writer);
}

static const char *ref2_read(const unsigned char *src, float *value, size_t k)
{
    float level[LEVELS];
    if (k == 0) return NULL;
    memcpy(level, src, HEAD_BYTES);
    if (!tw_values_finite(level, LEVELS)) return "one of its four levels is NaN or infinite";
    return tw_values_read_two_bits(src + HEAD_BYTES, level, value, k);
}

/* What is not finite is left as it is, for tw_packet_put_sparse to refuse. */
static void ref2_round(float *value, size_t k)
{
    if (k == 0 || !tw_values_finite(value, k)) return;
    bins by = bins_of(value, k);
    for (size_t i = 0; i < k; i++) value[i] = by.level[bin_of(value[i], &by)];
}

const tw_value_row tw_values_ref2 = {ref2_bytes, ref2_write, ref2_read, ref2_round};
