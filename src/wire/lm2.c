/* Two bits a value: a sign, and which of two magnitudes, the levels that serve the section best in the mean square
 * (Lloyd 1982, Max 1960). Values selected for being large have no mass at zero, so two magnitudes lose a third of what
 * one loses. The levels in bf16, the smaller one first, then two bits a value: 1 for minus, 2 for the larger level. */
#include "bits.h"
#include "half.h"
#include "values.h"
#include <stdbool.h>

enum {
    HEAD_BYTES = 4,
    CODE_BITS = 2,
    MINUS = 1,
    LARGER = 2,
    INFINITE = 0x7F80 /* bf16 */,
    MOST_SWEEPS = 12,
    LANES = 8,
    SAMPLE =
        8192 /* values of a longer section by which its threshold is found: a hundredth of a deviation off at most */
};

typedef struct levels {
    double threshold; /* what is above it has the larger level */
    uint16_t level[2];
} levels;

/* What lies on either side of a threshold: of each the sum, and how many. Lane by lane, so that the order of the
 * additions is the same however many of them a processor makes at once. */
typedef struct sides {
    double sum[2][LANES], count[2][LANES];
} sides;

static inline void divide_few(const float *value, size_t count, double threshold, sides *of)
{
    for (size_t j = 0; j < count; j++) {
        double magnitude = tw_magnitude(value[j]), larger = magnitude > threshold;
        of->sum[0][j] += magnitude * (1 - larger);
        of->sum[1][j] += magnitude * larger;
        of->count[0][j] += 1 - larger;
        of->count[1][j] += larger;
    }
}

static sides lm2_divide(const float *value, size_t k, double threshold)
{
    sides of = {{{0}}, {{0}}};
    size_t whole = k - k % LANES;
    for (size_t i = 0; i < whole; i += LANES) divide_few(value + i, LANES, threshold, &of);
    divide_few(value + whole, k - whole, threshold, &of);
    for (size_t j = 1; j < LANES; j++)
        for (int side = 0; side < 2; side++) {
            of.sum[side][0] += of.sum[side][j];
            of.count[side][0] += of.count[side][j];
        }
    return of;
}

/* The mean of a side, and of an empty one that of the other. */
static double lm2_mean_of(const sides *of, int side)
{
    if (of->count[side][0] == 0) side = !side;
    return of->sum[side][0] / of->count[side][0];
}

/* Lloyd's iteration, from the mean of all magnitudes on. */
static double threshold_of(const float *value, size_t k)
{
    sides of = lm2_divide(value, k, 0);
    double threshold = (of.sum[0][0] + of.sum[1][0]) / (double)k;
    for (int sweep = 0; sweep < MOST_SWEEPS; sweep++) {
        of = lm2_divide(value, k, threshold);
        double next = (lm2_mean_of(&of, 0) + lm2_mean_of(&of, 1)) / 2;
        if (next == threshold || of.count[1][0] == 0) break;
        threshold = next;
    }
    return threshold;
}

/* Values from all over the section, one from each of as many parts: here its first, there its last, since chunks of the
 * section may be alike. */
static double sampled_threshold(const float *value, size_t k)
{
    float sample[SAMPLE];
    size_t part = k / SAMPLE;
    for (size_t i = 0; i < SAMPLE; i++) sample[i] = value[(size_t)((uint64_t)i * k / SAMPLE) + i % part];
    return threshold_of(sample, SAMPLE);
}

/* Whether there are no more than two magnitudes, as in a section that was rounded: they are its levels. */
static bool has_two(const float *value, size_t k, double magnitude[2])
{
    float first = tw_magnitude(value[0]), second = first;
    for (size_t i = 1; i < k; i++) {
        float here = tw_magnitude(value[i]);
        if (here == first || here == second) continue;
        if (second != first) return false;
        second = here;
    }
    magnitude[0] = first < second ? first : second;
    magnitude[1] = first < second ? second : first;
    return true;
}

static levels fit(const float *value, size_t k)
{
    double mean[2];
    levels fitted;
    if (has_two(value, k, mean)) {
        fitted.threshold = (mean[0] + mean[1]) / 2;
    } else {
        fitted.threshold = k > SAMPLE ? sampled_threshold(value, k) : threshold_of(value, k);
        sides of = lm2_divide(value, k, fitted.threshold);
        for (int side = 0; side < 2; side++) mean[side] = lm2_mean_of(&of, side);
    }
    for (int side = 0; side < 2; side++) fitted.level[side] = tw_to_bf16_finite((float)mean[side]);
    return fitted;
}

static unsigned code_of(float x, const levels *by)
{
    return (tw_float_bits(x) >> 31 ? MINUS : 0) | (tw_magnitude(x) > by->threshold ? LARGER : 0);
}

static float value_of(unsigned code, const uint16_t level[2])
{
    return tw_from_bf16(level[code / LARGER] | (uint16_t)((code & MINUS) << 15));
}

static size_t lm2_bytes(size_t k)
{
    return k ? HEAD_BYTES + (CODE_BITS * k + 7) / 8 : 0;
}

static void lm2_write(unsigned char *dst, const float *value, size_t k)
{
    if (k == 0) return;
    levels by = fit(value, k);
    tw_bit_writer writer = {dst + HEAD_BYTES, dst + lm2_bytes(k), 0, 0};
    memcpy(dst, by.level, HEAD_BYTES);
    for (size_t i = 0; i < k; i++) tw_bits_put(&writer, code_of(value[i], &by), CODE_BITS);
    tw_bits_flush(&writer);
}

static const char *lm2_read(const unsigned char *src, float *value, size_t k)
{
    if (k == 0) return NULL;
    uint16_t level[2];
    float of_code[4];
    memcpy(level, src, HEAD_BYTES);
    if (level[0] > level[1]) return "the smaller of its two levels is above the larger one";
    if (level[1] >= INFINITE) return "its larger level is negative, NaN or infinite";
    for (unsigned code = 0; code < 4; code++) of_code[code] = value_of(code, level);
    return tw_values_read_two_bits(src + HEAD_BYTES, of_code, value, k);
}

/* What is not finite is left as it is, for tw_packet_put_sparse to refuse. */
static void lm2_round(float *value, size_t k)
{
    if (k == 0 || !tw_values_finite(value, k)) return;
    levels by = fit(value, k);
    for (size_t i = 0; i < k; i++) value[i] = value_of(code_of(value[i], &by), by.level);
}

const tw_value_row tw_values_lm2 = {lm2_bytes, lm2_write, lm2_read, lm2_round};
