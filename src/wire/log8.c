/* Eight bits a value on a piecewise-linear logarithmic scale. A float's magnitude, read as an integer, is such a scale
 * already: cut down to m bits of mantissa it counts 2^m steps an octave. A block takes 127 neighbouring steps, its
 * levels, that end at its largest value, with the finest m that lets them reach down to the smallest one. */
#include "bits.h"
#include "half.h"
#include "values.h"

enum { LEAST_MANTISSA = 3, MOST_MANTISSA = 6, TOP_BITS = 14, HEAD_BYTES = 2, LEVELS = 127, LANES = 8, PART = 256 };

static const int32_t MAGNITUDE = 0x7FFFFFFF, INFINITE = 0x7F800000;

/* The scale of a block. Level i of 1 .. 127 is the magnitude (lowest + i) << shift; level 0, and any at or below the
 * magnitude zero, is zero. */
typedef struct scale {
    int shift;       /* bits of mantissa cut off */
    int32_t lowest;  /* the top level's step less 127; below zero when the steps run out at zero */
    int32_t none;    /* the highest level that is zero */
    int32_t nothing; /* the largest magnitude that is nearer to zero than to a level 1 above zero */
} scale;

static int32_t log8_magnitude_of(float x)
{
    return (int32_t)tw_float_bits(x) & MAGNITUDE;
}

/* The nearest step, of two the even one; may be that of infinity. */
static int32_t nearest_step(int32_t magnitude, int shift)
{
    return (magnitude + (1 << (shift - 1)) - 1 + (magnitude >> shift & 1)) >> shift;
}

static int32_t most_steps(int shift)
{
    return (INFINITE - 1) >> shift;
}

static scale make_scale(int shift, int32_t top)
{
    int32_t lowest = top - LEVELS;
    scale made = {shift, lowest, lowest < 0 ? -lowest : 0, MAGNITUDE};
    if (lowest >= 0) made.nothing = log8_magnitude_of(0.5f * tw_bits_float((uint32_t)(lowest + 1) << shift));
    return made;
}

static int32_t top_step(int32_t largest, int shift)
{
    int32_t step = nearest_step(largest, shift), most = most_steps(shift);
    return step < most ? step : most;
}

/* The finest scale for magnitudes from `smallest`, not counting zeros, to `largest`. */
static scale choose_scale(int32_t smallest, int32_t largest)
{
    int shift = 23 - MOST_MANTISSA;
    while (shift < 23 - LEAST_MANTISSA && nearest_step(smallest, shift) <= top_step(largest, shift) - LEVELS) shift++;
    return make_scale(shift, top_step(largest, shift));
}

/* The least and the greatest magnitude, lane by lane: compilers make vectors of that, not of one
 * running minimum. */
typedef struct extremes {
    int32_t least[LANES], most[LANES];
} extremes;

static inline void log8_widen(extremes *found, const float *value, size_t count)
{
    for (size_t j = 0; j < count; j++) {
        int32_t magnitude = log8_magnitude_of(value[j]), least = found->least[j], most = found->most[j];
        found->least[j] = ((magnitude < least) & (magnitude > 0)) ? magnitude : least;
        found->most[j] = magnitude > most ? magnitude : most;
    }
}

/* Zeros do not count as the smallest magnitude. */
static void find_extremes(const float *value, size_t k, int32_t *smallest, int32_t *largest)
{
    extremes found;
    size_t whole = k - k % LANES;
    for (size_t j = 0; j < LANES; j++) found.least[j] = MAGNITUDE, found.most[j] = 0;
    for (size_t i = 0; i < whole; i += LANES) log8_widen(&found, value + i, LANES);
    log8_widen(&found, value + whole, k - whole);
    *smallest = found.least[0], *largest = found.most[0];
    for (size_t j = 1; j < LANES; j++) {
        if (found.least[j] < *smallest) *smallest = found.least[j];
        if (found.most[j] > *largest) *largest = found.most[j];
    }
    if (*smallest > *largest) *smallest = *largest; /* nothing but zeros */
}

static int32_t level_of(float x, scale in)
{
    int32_t magnitude = log8_magnitude_of(x), level = nearest_step(magnitude, in.shift) - in.lowest;
    level = level < LEVELS ? level : LEVELS;
    return level > in.none ? level : magnitude > in.nothing;
}

static float value_of(int32_t level, uint32_t sign, scale in)
{
    int32_t step = level + in.lowest;
    uint32_t present = -(uint32_t)((level > 0) & (step > 0)); /* a mask: a branch would keep loops from being vectors */
    return tw_bits_float(((uint32_t)step << in.shift & present) | sign);
}

static void code_levels(unsigned char *dst, const float *value, size_t count, scale in)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = (unsigned char)(level_of(value[i], in) | (int32_t)(tw_float_bits(value[i]) >> 31 << 7));
}

static void decode_levels(const unsigned char *src, float *value, size_t count, scale in)
{
    for (size_t i = 0; i < count; i++) value[i] = value_of(src[i] & 127, (uint32_t)(src[i] >> 7) << 31, in);
}

static size_t log8_bytes(size_t k)
{
    return k ? HEAD_BYTES + k : 0;
}

static void log8_write(unsigned char *dst, const float *value, size_t k)
{
    if (k == 0) return;
    int32_t smallest, largest;
    find_extremes(value, k, &smallest, &largest);
    scale in = choose_scale(smallest, largest);
    uint16_t head = (uint16_t)((23 - LEAST_MANTISSA - in.shift) << TOP_BITS | (in.lowest + LEVELS));
    memcpy(dst, &head, HEAD_BYTES);
    code_levels(dst + HEAD_BYTES, value, k, in);
}

static const char *log8_read(const unsigned char *src, float *value, size_t k)
{
    if (k == 0) return NULL;
    uint16_t head;
    memcpy(&head, src, HEAD_BYTES);
    int shift = 23 - LEAST_MANTISSA - (head >> TOP_BITS);
    int32_t top = head & ((1 << TOP_BITS) - 1);
    if (top > most_steps(shift)) return "its largest value is infinite";
    decode_levels(src + HEAD_BYTES, value, k, make_scale(shift, top));
    return NULL;
}

/* What is not finite is left as it is, for tw_packet_put_sparse to refuse. */
static void log8_round(float *value, size_t k)
{
    unsigned char part[PART];
    int32_t smallest, largest;
    find_extremes(value, k, &smallest, &largest);
    if (largest >= INFINITE) return;
    scale in = choose_scale(smallest, largest);
    for (size_t at = 0, count; at < k; at += count) {
        count = k - at < PART ? k - at : PART;
        code_levels(part, value + at, count, in);
        decode_levels(part, value + at, count, in);
    }
}

const tw_value_row tw_values_log8 = {log8_bytes, log8_write, log8_read, log8_round};
