/* rows_chunks.h - the rows of chunks.h for a vector level; see rows.h, which includes it.
 *
 * A chunk is seldom a whole number of vectors. Its last vector therefore ends where the chunk ends and overlaps the one
 * before it: what it updates is loaded before any is stored, so that no element is updated twice. Chunks shorter than a
 * vector are left to the reference. */
#include "half.h"

#include <math.h>

/* Elements between a vector's fetch and its use: more than a scheme looks at before it has them taken in. */
enum { AHEAD = 1536 };

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

TW_INLINE void fetch(const float *v, const float *g)
{
    __builtin_prefetch(v, 1);
    __builtin_prefetch(g);
}

/* The hardware fetches ahead, but no further than a page. Behind the end of an array, where nothing may be read, it
 * does no harm. */
TW_INLINE void fetch_ahead(const float *v, const float *g)
{
    fetch((const float *)((uintptr_t)v + AHEAD * sizeof *v), (const float *)((uintptr_t)g + AHEAD * sizeof *g));
}

TW_INLINE float top_of_chunk(float *v, const float *g, size_t n, float a, float b, uint32_t *position)
{
    size_t last = n - WIDTH;
    word_vector lanes = lane_numbers();
    lane_tops tops = {0};
    vector last_g = load(g + last), last_v = load(v + last) + a * last_g;
    for (size_t i = 0; i < last; i += WIDTH) {
        vector step = load(g + i), sum = load(v + i) + a * step;
        fetch_ahead(v + i, g + i);
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

/* Magnitudes are ordered as their bits are. */
TW_INLINE float largest_lane(vector magnitude)
{
    uint32_t bits[WIDTH], largest = 0;
    memcpy(bits, &magnitude, sizeof bits);
    for (size_t lane = 0; lane < WIDTH; lane++) largest = bits[lane] > largest ? bits[lane] : largest;
    return tw_bits_float(largest);
}

/* Updates a chunk and returns its largest |v|. high[k] becomes the largest |v + a*g| of its block k, lane by lane: most
 * blocks have nothing that stands out, and this tells. larger() takes its second argument where the first is NaN. */
TW_INLINE float accumulate_chunk(float *v, const float *g, size_t n, float a, vector *high)
{
    size_t last = n - WIDTH, last_block = (n - 1) / BLOCK;
    vector last_step = a * load(g + last), last_v = load(v + last) + last_step, top = {0};
    high[last_block] = (vector){0};
    for (size_t first = 0; first < last; first += BLOCK) {
        size_t end = last < first + BLOCK ? last : first + BLOCK;
        vector block_top = {0};
        for (size_t i = first; i < end; i += WIDTH) {
            vector step = a * load(g + i), sum = load(v + i) + step;
            fetch_ahead(v + i, g + i);
            store(v + i, sum);
            top = larger(magnitude_of(sum), top);
            block_top = larger(magnitude_of(sum + step), block_top);
        }
        high[first / BLOCK] = block_top;
    }
    store(v + last, last_v);
    high[last_block] = larger(magnitude_of(last_v + last_step), high[last_block]);
    return largest_lane(larger(magnitude_of(last_v), top));
}

/* Bit i is 1 if |v[i] + a*g[i]| > threshold and v[i] is not zero, for the next BLOCK elements. */
TW_INLINE uint64_t rising(const float *v, const float *g, float a, float threshold)
{
    uint64_t hits = 0;
    for (size_t k = 0; k < BLOCK; k += WIDTH) {
        vector now = load(v + k);
        hits |= (above(now + a * load(g + k), threshold) & above(now, 0)) << k;
    }
    return hits;
}

/* The same for `left` elements, fewer than BLOCK and the last of their array. */
TW_INLINE uint64_t rising_rest(const float *v, const float *g, size_t left, float a, float threshold)
{
    uint64_t hits = 0;
    for (size_t k = 0; k < left; k++) hits |= (uint64_t)(fabsf(v[k] + a * g[k]) > threshold && v[k] != 0) << k;
    return hits;
}

/* A block has a few hits, and nobody can foretell how many: FEW are written whether they are there or not, without a
 * branch; what stands in for one that is not there is element `last`. There is room for as many as the block has, a
 * vector or more. */
TW_INLINE size_t append_few(uint64_t hits, const float *block, size_t last, uint32_t first, uint32_t *index,
                            float *value)
{
    enum { FEW = WIDTH < 6 ? WIDTH : 6 };
    size_t count = (size_t)__builtin_popcountll(hits);
    for (size_t k = 0; k < FEW; k++, hits &= hits - 1) {
        uint32_t lane = (uint32_t)__builtin_ctzll(hits | (uint64_t)1 << last);
        index[k] = first + lane;
        value[k] = block[lane];
    }
    if (hits) tw_append_each(hits, block, first, index + FEW, value + FEW);
    return count;
}

/* Lists what stands out in the first n of `room` elements, which is all that may be read. */
TW_INLINE size_t list_rising(const float *v, const float *g, size_t n, size_t room, float a, float threshold,
                             const vector *high, uint32_t first, uint32_t *index, float *value)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i += BLOCK) {
        if (!above(high[i / BLOCK], threshold)) continue;
        uint64_t own = n - i < BLOCK ? ((uint64_t)1 << (n - i)) - 1 : UINT64_MAX, hits;
        if (i + BLOCK <= room) {
            hits = rising(v + i, g + i, a, threshold) & own;
            count += append_few(hits, v + i, BLOCK - 1, first + (uint32_t)i, index + count, value + count);
        } else {
            hits = rising_rest(v + i, g + i, n - i, a, threshold);
            count += tw_append_each(hits, v + i, first + (uint32_t)i, index + count, value + count);
        }
    }
    return count;
}

/* The float before a positive one: what is above it is not below the other. */
TW_INLINE float float_before(float x)
{
    return tw_bits_float(tw_float_bits(x) - 1);
}

/* Updates a chunk of a vector to a block, and says bit by bit what rises in it. As many vectors as a block has,
 * whatever the chunk, so that no branch depends on its length: those that would end behind it overlap. */
TW_INLINE uint64_t rising_of_short(float *v, const float *g, size_t n, float a, double *largest)
{
    enum { VECTORS = BLOCK / WIDTH };
    vector now[VECTORS], rise[VECTORS], top = {0};
    size_t at[VECTORS];
    uint64_t hits = 0;
    for (size_t k = 0; k < VECTORS; k++) {
        at[k] = k * WIDTH < n - WIDTH ? k * WIDTH : n - WIDTH;
        vector step = a * load(g + at[k]);
        now[k] = load(v + at[k]) + step;
        rise[k] = now[k] + step;
        top = larger(magnitude_of(now[k]), top);
    }
    for (size_t k = 0; k < VECTORS; k++) {
        fetch_ahead(v + at[k], g + at[k]);
        store(v + at[k], now[k]);
    }
    float most = largest_lane(top);
    if (!(most > 0)) return 0;
    *largest += (double)most;
    for (size_t k = 0; k < VECTORS; k++) hits |= (above(rise[k], float_before(most)) & above(now[k], 0)) << at[k];
    return hits;
}

/* Whole chunks of a vector to a block. Their lists are written a few chunks later: by then it is known what rises, and
 * a branch that was not foretold is noticed at once, not when all that stood before it has been computed. */
TW_INLINE size_t rising_of_shorts(float *v, const float *g, size_t n, float a, size_t chunk, uint32_t first,
                                  uint32_t *index, float *value, double *largest)
{
    enum { TOGETHER = 4 };
    uint64_t hits[TOGETHER];
    size_t count = 0;
    for (size_t i = 0, held = 0; i < n; held = 0) {
        for (size_t j = i; held < TOGETHER && j < n; j += chunk)
            hits[held++] = rising_of_short(v + j, g + j, chunk, a, largest);
        for (size_t k = 0; k < held; k++, i += chunk)
            count += append_few(hits[k], v + i, chunk - 1, first + (uint32_t)i, index + count, value + count);
    }
    return count;
}

static size_t rising_of_long(float *v, const float *g, size_t n, size_t room, float a, uint32_t first, uint32_t *index,
                             float *value, double *largest)
{
    vector high[TW_RISING_MOST / BLOCK];
    size_t count = 0;
    float top = accumulate_chunk(v, g, n, a, high);
    if (top > 0) count = list_rising(v, g, n, room, a, float_before(top), high, first, index, value);
    *largest += (double)top;
    return count;
}

static size_t accumulate_rising(float *v, const float *g, size_t n, float a, size_t chunk, uint32_t first,
                                uint32_t *index, float *value, double *largest)
{
    size_t count = 0;
    for (size_t i = 0, taken; i < n; i += taken) {
        size_t length = n - i < chunk ? n - i : chunk;
        uint32_t at = first + (uint32_t)i, *to = index + count;
        taken = length;
        if (length < WIDTH) {
            count +=
                tw_chunks_scalar.accumulate_rising(v + i, g + i, length, a, length, at, to, value + count, largest);
        } else if (length <= BLOCK) {
            taken = (n - i) / length * length;
            count += rising_of_shorts(v + i, g + i, taken, a, length, at, to, value + count, largest);
        } else {
            count += rising_of_long(v + i, g + i, length, n - i, a, at, to, value + count, largest);
        }
    }
    return count;
}

/* The elements from `begin` on, up to `end`, before the first that a whole vector may be streamed to. */
TW_INLINE size_t before_aligned(const float *dst, size_t begin, size_t end)
{
    size_t number = (uintptr_t)(dst + begin) / sizeof *dst, head = (0 - number) % WIDTH;
    return head < end - begin ? head : end - begin;
}

/* Where the values go is marked for many vectors at a time: how many come next, which nobody can foretell, is asked
 * seldom, and no vector waits for what was just written to a part of it. Whatever is written in the ordinary way is
 * read first, and this is all there is to do with it. */
static void spread(float *dst, size_t begin, size_t end, const uint32_t *index, const float *value, size_t n)
{
    enum { TOGETHER = 512 };
    size_t j = 0, i = end, length;
    if ((uintptr_t)dst % sizeof *dst == 0) i = begin + before_aligned(dst, begin, end);
    while (j < n && index[j] < i) j++;
    if (begin < i) tw_chunks_scalar.spread(dst, begin, i, index, value, j);
    for (; end - i >= WIDTH; i += length) {
        uint64_t marks[TOGETHER / 64] = {0};
        length = end - i < TOGETHER ? (end - i) / WIDTH * WIDTH : TOGETHER;
        for (size_t next = j; next < n && index[next] < i + length; next++)
            marks[(index[next] - i) / 64] |= (uint64_t)1 << (index[next] - i) % 64;
        for (size_t k = 0; k < length; k += WIDTH) {
            uint64_t lanes = marks[k / 64] >> k % 64 & (((uint64_t)1 << WIDTH) - 1);
            stream(dst + i + k, unpack(lanes, value + j));
            j += (size_t)__builtin_popcountll(lanes);
        }
    }
    drain();
    if (i < end) tw_chunks_scalar.spread(dst, i, end, index + j, value + j, n - j);
}

static const tw_chunks_rows chunks_rows = {
    .accumulate_top = accumulate_top,
    .accumulate_rising = accumulate_rising,
    .spread = spread,
};
