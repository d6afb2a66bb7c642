/* rows_chunks.h - the rows of chunks.h for a vector level; see rows.h, which includes it.
 *
 * A chunk is seldom a whole number of vectors. Its last vector therefore ends where the chunk ends and overlaps the one
 * before it: what it updates is loaded before any is stored, so that no element is updated twice. Chunks shorter than a
 * vector are left to the reference. */
#include "half.h"

TW_INLINE vector magnitude_of(vector x)
{
    return (vector)((word_vector)x & 0x7FFFFFFFu);
}

/* Each lane's largest so far, and where it was. */
typedef struct lane_tops {
    vector magnitude;
    word_vector where;
} lane_tops;

TW_INLINE void raise_tops(lane_tops *tops, vector magnitude, word_vector where)
{
    word_vector is_larger = (word_vector)(magnitude > tops->magnitude);
    tops->magnitude = (vector)choose(is_larger, (word_vector)magnitude, (word_vector)tops->magnitude);
    tops->where = choose(is_larger, where, tops->where);
}

/* Magnitudes are ordered as their bits are. Above the place's complement, they make one number of both, whose largest
 * is the largest magnitude's lowest place. */
TW_INLINE float top_of_lanes(const lane_tops *tops, uint32_t *position)
{
    uint32_t magnitude[WIDTH], where[WIDTH];
    uint64_t largest = 0;
    memcpy(magnitude, &tops->magnitude, sizeof magnitude);
    memcpy(where, &tops->where, sizeof where);
    for (size_t lane = 0; lane < WIDTH; lane++) {
        uint64_t key = (uint64_t)magnitude[lane] << 32 | (uint32_t)~where[lane];
        if (key > largest) largest = key;
    }
    *position = ~(uint32_t)largest;
    return tw_bits_float((uint32_t)(largest >> 32));
}

TW_INLINE float top_of_chunk(float *v, const float *g, size_t n, float a, float b, uint32_t *position)
{
    size_t last = n - WIDTH;
    word_vector lanes = lane_numbers();
    lane_tops tops = {0};
    vector last_g = load(g + last), last_v = load(v + last) + a * last_g;
    for (size_t i = 0; i < last; i += WIDTH) {
        vector step = load(g + i), sum = load(v + i) + a * step;
        store(v + i, sum);
        raise_tops(&tops, magnitude_of(sum + b * step), lanes + (uint32_t)i);
    }
    store(v + last, last_v);
    raise_tops(&tops, magnitude_of(last_v + b * last_g), lanes + (uint32_t)last);
    return top_of_lanes(&tops, position);
}

static float accumulate_top(float *v, const float *g, size_t n, float a, float b, size_t chunk, uint32_t *position)
{
    float largest = 0, top;
    for (size_t i = 0; i < n; i += chunk, position++) {
        size_t length = n - i < chunk ? n - i : chunk;
        if (length < WIDTH)
            top = tw_chunks_scalar.accumulate_top(v + i, g + i, length, a, b, length, position);
        else
            top = top_of_chunk(v + i, g + i, length, a, b, position);
        if (top > largest) largest = top;
    }
    return largest;
}

TW_INLINE float accumulate_chunk(float *v, const float *g, size_t n, float a)
{
    size_t last = n - WIDTH;
    lane_tops tops = {0};
    vector last_v = load(v + last) + a * load(g + last);
    for (size_t i = 0; i < last; i += WIDTH) {
        vector sum = load(v + i) + a * load(g + i);
        store(v + i, sum);
        raise_tops(&tops, magnitude_of(sum), tops.where);
    }
    store(v + last, last_v);
    raise_tops(&tops, magnitude_of(last_v), tops.where);
    uint32_t nowhere;
    return top_of_lanes(&tops, &nowhere);
}

/* Bit i is 1 if |v[i] + a*g[i]| > threshold, for the next BLOCK of `left` elements, or as many as there are; at least
 * WIDTH lie behind v[left] or before it. */
TW_INLINE uint64_t rising(const float *v, const float *g, size_t left, float a, float threshold)
{
    uint64_t hits = 0;
    for (size_t i = 0; i < BLOCK && i < left; i += WIDTH) {
        size_t seen = left - i < WIDTH ? WIDTH - (left - i) : 0; /* by the vector before, which this one overlaps */
        const float *from = v + i - seen, *step = g + i - seen;
        hits |= above(load(from) + a * load(step), threshold) >> seen << i;
    }
    return hits;
}

TW_INLINE size_t list_rising(const float *v, const float *g, size_t n, float a, float threshold, uint32_t first,
                             uint32_t *index, float *value)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i += BLOCK)
        for (uint64_t hits = rising(v + i, g + i, n - i, a, threshold); hits; hits &= hits - 1) {
            size_t at = i + (size_t)__builtin_ctzll(hits);
            if (v[at] == 0) continue;
            index[count] = first + (uint32_t)at;
            value[count++] = v[at];
        }
    return count;
}

/* The float before a positive one: what is above it is not below the other. */
TW_INLINE float float_before(float x)
{
    return tw_bits_float(tw_float_bits(x) - 1);
}

static size_t accumulate_rising(float *v, const float *g, size_t n, float a, size_t chunk, uint32_t first,
                                uint32_t *index, float *value, double *largest)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i += chunk) {
        size_t length = n - i < chunk ? n - i : chunk;
        uint32_t at = first + (uint32_t)i;
        if (length < WIDTH) {
            count += tw_chunks_scalar.accumulate_rising(v + i, g + i, length, a, length, at, index + count,
                                                        value + count, largest);
            continue;
        }
        float top = accumulate_chunk(v + i, g + i, length, a);
        if (!(top > 0)) continue;
        *largest += (double)top;
        count += list_rising(v + i, g + i, length, a, float_before(top), at, index + count, value + count);
    }
    return count;
}

static const tw_chunks_rows chunks_rows = {
    .accumulate_top = accumulate_top,
    .accumulate_rising = accumulate_rising,
};
