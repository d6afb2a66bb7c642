/* rows.h - the rows of a vector level, and the table of them, written once for all levels. A level is a .c file that
 * defines what differs, in this order, then includes this file:
 *
 *   enum { WIDTH = 8 };
 *       Floats in a vector: 4, 8 or 16.
 *   uint64_t above(VECTOR x, float threshold)
 *       Bit i, from the lowest, is 1 if |x[i]| > threshold; NaN is not above.
 *   DOUBLES widen(const float *src)
 *       The first WIDTH / 2 floats of src as doubles.
 *   VECTOR larger(VECTOR a, VECTOR b), smaller(VECTOR a, VECTOR b)
 *       Lane by lane a > b ? a : b, and a < b ? a : b.
 *   VECTOR higher(VECTOR a, VECTOR b)
 *       Lane by lane, of two magnitudes that whose bits are the larger number: NaN is above infinity.
 *   VECTOR roots(VECTOR x)
 *       Square roots, rounded to nearest.
 *   void store_fp16(uint16_t *dst, VECTOR x), VECTOR load_fp16(const uint16_t *src)
 *       Conversions as in half.h.
 *   void stream(float *dst, VECTOR x), void drain(void)
 *       Writes a vector, aligned as it is long, past the cache where there is an instruction for it; and ends a series
 *       of such writes, before other threads may be told of them.
 *   WOVEN weave(const uint16_t *src), void unweave(uint16_t *dst, WOVEN x), typedef WOVEN woven_vector
 *       WIDTH words, of which word j has in its lower half src[j] and in its upper one src[WIDTH + j]; and back.
 *   size_t append(uint64_t hits, const float *block, uint32_t first, uint32_t *index, float *value)
 *       Lists the elements of a block of 64 whose bit in `hits` is 1, in order, and returns how many; block[0] has the
 *       number `first`. tw_append_each will do (#define append tw_append_each) where no instruction packs lanes.
 *   VECTOR unpack(uint64_t lanes, const float *src)
 *       The floats of src, one after the other, in the lanes whose bit is 1, and zeros in the others. No more is read
 *       than there are ones. tw_unpack_each helps where no instruction does.
 *   #define TABLE tw_kernels_avx2
 *       What the table is called (levels.h).
 *
 * VECTOR and DOUBLES are the instruction set's own types. All else is C's own arithmetic on vectors, an extension of
 * gcc and clang: operators act lane by lane, and a float beside a vector stands for a vector of it. No fused
 * multiply-add: each product and each sum is rounded, as in the reference. */
#ifndef TW_KERNELS_ROWS_H
#define TW_KERNELS_ROWS_H

#include "levels.h"

#include <string.h>

/* A block is as long as a mask has bits. The select rows branch once a block: most blocks have nothing to list. */
enum { BLOCK = TW_GROUP, SUMS = 16 / (WIDTH / 2) };

typedef float vector __attribute__((vector_size(WIDTH * 4)));
typedef uint32_t word_vector __attribute__((vector_size(WIDTH * 4)));
typedef double double_vector __attribute__((vector_size(WIDTH * 4)));

TW_INLINE vector load(const float *src)
{
    vector x;
    memcpy(&x, src, sizeof x);
    return x;
}

/* 0, 1, 2, ... */
TW_INLINE word_vector lane_numbers(void)
{
    word_vector numbers = {0};
    for (uint32_t lane = 0; lane < WIDTH; lane++) numbers[lane] = lane;
    return numbers;
}

TW_INLINE vector broadcast(float x)
{
    return x - (vector){0}; /* not x + 0, which loses the sign of -0 */
}

TW_INLINE void store(float *dst, vector x)
{
    memcpy(dst, &x, sizeof x);
}

/* Bit by bit: a where the mask is 1, else b. */
TW_INLINE word_vector choose(word_vector mask, word_vector a, word_vector b)
{
    return (mask & a) | (~mask & b);
}

/* Patterns of bits without their signs are in the order of the numbers, NaN above infinity: one from `limit` on carries
 * into the top bit. */
TW_INLINE word_vector carry_from(word_vector bits, uint32_t limit)
{
    return (bits & 0x7FFFFFFFu) + (0x80000000u - limit);
}

TW_INLINE int none_carried(word_vector seen)
{
    uint32_t any = 0;
    for (size_t lane = 0; lane < WIDTH; lane++) any |= seen[lane];
    return !(any >> 31);
}

/* 1 if all magnitudes are below `limit`, as patterns of bits. n is a multiple of BLOCK. */
TW_INLINE int patterns_below(const float *x, size_t n, uint32_t limit)
{
    word_vector seen = {0}, bits;
    for (size_t i = 0; i < n; i += BLOCK)
        for (size_t k = 0; k < BLOCK; k += WIDTH) {
            memcpy(&bits, x + i + k, sizeof bits);
            seen |= carry_from(bits, limit);
        }
    return none_carried(seen);
}

static int all_finite(const float *x, size_t n)
{
    size_t whole = n / BLOCK * BLOCK;
    return patterns_below(x, whole, 0x7F800000u) && tw_kernels_scalar.all_finite(x + whole, n - whole);
}

static int all_below(const float *x, size_t n, float limit)
{
    size_t whole = n / BLOCK * BLOCK;
    uint32_t pattern;
    memcpy(&pattern, &limit, sizeof pattern);
    return patterns_below(x, whole, pattern) && tw_kernels_scalar.all_below(x + whole, n - whole, limit);
}

/* sum += x * x; the product of two floats is exact in double */
TW_INLINE double_vector plus_squares(double_vector sum, const float *x)
{
    double_vector wide = widen(x);
    return sum + wide * wide;
}

static void add_squares(double partial[16], const float *x, size_t n)
{
    size_t whole = n / 16 * 16;
    double_vector sums[SUMS];
    memcpy(sums, partial, sizeof sums);
    for (size_t i = 0; i < whole; i += 16)
        for (size_t k = 0; k < SUMS; k++) sums[k] = plus_squares(sums[k], x + i + k * (WIDTH / 2));
    memcpy(partial, sums, sizeof sums);
    tw_kernels_scalar.add_squares(partial, x + whole, n - whole);
}

static double sum_squares(const float *x, size_t n)
{
    double partial[16] = {0};
    add_squares(partial, x, n);
    return tw_kernels_fold(partial);
}

TW_INLINE void write_vector(float *dst, vector x, int past_cache)
{
    if (past_cache)
        stream(dst, x);
    else
        store(dst, x);
}

static void add(float *dst, const float *src, size_t n)
{
    size_t whole = n / WIDTH * WIDTH;
    for (size_t i = 0; i < whole; i += WIDTH) store(dst + i, load(dst + i) + load(src + i));
    tw_kernels_scalar.add(dst + whole, src + whole, n - whole);
}

static void scale(float *x, float a, size_t n)
{
    size_t whole = n / WIDTH * WIDTH;
    for (size_t i = 0; i < whole; i += WIDTH) store(x + i, load(x + i) * a);
    tw_kernels_scalar.scale(x + whole, a, n - whole);
}

static void divide(float *x, float a, size_t n)
{
    size_t whole = n / WIDTH * WIDTH;
    for (size_t i = 0; i < whole; i += WIDTH) store(x + i, load(x + i) / a);
    tw_kernels_scalar.divide(x + whole, a, n - whole);
}

static void velocity(float *v, float *g, size_t n, float m, int nesterov)
{
    size_t whole = n / WIDTH * WIDTH;
    for (size_t i = 0; i < whole; i += WIDTH) {
        vector gradient = load(g + i), now = m * load(v + i) + gradient;
        store(v + i, now);
        store(g + i, nesterov ? m * now + gradient : now);
    }
    tw_kernels_scalar.velocity(v + whole, g + whole, n - whole, m, nesterov);
}

/* Updates one vector and returns the new v. */
TW_INLINE vector updated(tw_update update, float *u, float *v, const float *g, float a, float m)
{
    vector sum = load(v);
    if (update == TW_AS_IS) return sum;
    vector step = a * load(g);
    if (update != TW_ACCUMULATE) {
        vector velocity = m * load(u) + step;
        store(u, velocity);
        step = update == TW_NESTEROV ? m * velocity + step : velocity;
    }
    sum += step;
    store(v, sum);
    return sum;
}

/* 1 if no element of a block has a pattern from `loud` on; its top bit alone is above all magnitudes. */
TW_INLINE int is_quiet(const float *g, uint32_t loud)
{
    word_vector seen = {0}, bits;
    for (size_t k = 0; k < BLOCK; k += WIDTH) {
        memcpy(&bits, g + k, sizeof bits);
        seen |= carry_from(bits, loud);
    }
    return !above((vector)(seen >> 31 << 30), 1); /* a carry as 2, none as 0 */
}

/* For update_and_select and its kin: what a block has to be below. */
TW_INLINE uint32_t loud_pattern(const size_t *done)
{
    const float loud = TW_LOUD;
    uint32_t pattern;
    memcpy(&pattern, &loud, sizeof pattern);
    return done ? pattern : 0x80000000u;
}

enum {
    LATER = 16 /* blocks between a block's fetch and its use */,
    SOON = 384 /* elements, where lines are fetched */
};

/* Asks for what comes later: the processor's own fetching begins anew on each page. Behind the end of an array, where
 * nothing may be read, it does no harm. */
TW_INLINE void fetch_later(const void *block, size_t bytes)
{
    const char *later = (const char *)block + LATER * bytes;
    for (size_t k = 0; k < bytes; k += 64) __builtin_prefetch(later + k, 1);
}

/* Likewise a line, of 16 elements. */
TW_INLINE void fetch_soon(const float *line)
{
    __builtin_prefetch(line + SOON, 1);
}

/* Quantising schemes take blocks in the cache from step to step, in each of which memory would idle. What comes is
 * fetched into the second-level cache, which can wait for more lines at a time than the first. */
TW_INLINE void fetch_early(const float *x, size_t n)
{
    enum { LINE = 64, EARLY = 8192 };       /* two of their blocks, in bytes */
    uintptr_t later = (uintptr_t)x + EARLY; /* a number: it may lie behind the array */
    for (size_t at = 0; at < n * sizeof *x; at += LINE) __builtin_prefetch((const void *)(later + at), 0, 2);
}

/* The streams of an update. */
TW_INLINE void fetch_update(tw_update update, const float *u, const float *v, const float *g)
{
    if (update == TW_AS_IS) return;
    fetch_later(g, BLOCK * sizeof *g);
    fetch_later(v, BLOCK * sizeof *v);
    if (update != TW_ACCUMULATE) fetch_later(u, BLOCK * sizeof *u);
}

/* Updates and clears a block's vectors; bit by bit which of its elements are above the threshold. */
TW_INLINE uint64_t update_block(tw_update update, float *u, float *v, float *g, float a, float m, float threshold)
{
    uint64_t hits = 0;
    for (size_t k = 0; k < BLOCK; k += WIDTH) {
        hits |= above(updated(update, u + k, v + k, g + k, a, m), threshold) << k;
        if (update != TW_AS_IS) store(g + k, (vector){0});
    }
    return hits;
}

TW_INLINE size_t update_and_select(tw_update update, float *u, float *v, float *g, size_t n, float a, float m,
                                   float threshold, uint32_t first, uint32_t *index, float *value, size_t *done)
{
    const uint32_t loud = loud_pattern(done);
    size_t count = 0, i = 0;
    for (; i < n && (update == TW_AS_IS || is_quiet(g + i, loud)); i += BLOCK) {
        fetch_update(update, u + i, v + i, g + i);
        uint64_t hits = update_block(update, u + i, v + i, g + i, a, m, threshold);
        if (hits) count += append(hits, v + i, first + (uint32_t)i, index + count, value + count);
    }
    if (done) *done = i;
    return count;
}

/* Whether a row that looked at `whole` elements goes on behind them; *done is then what the reference adds to. */
TW_INLINE int stopped(const size_t *done, size_t whole)
{
    return done && *done < whole;
}

static size_t momentum_select(float *u, float *v, float *g, size_t n, float a, float m, int nesterov, float threshold,
                              uint32_t first, uint32_t *index, float *value, size_t *done)
{
    size_t whole = n / BLOCK * BLOCK;
    size_t count = nesterov
                       ? update_and_select(TW_NESTEROV, u, v, g, whole, a, m, threshold, first, index, value, done)
                       : update_and_select(TW_MOMENTUM, u, v, g, whole, a, m, threshold, first, index, value, done);
    if (stopped(done, whole)) return count;
    count += tw_kernels_scalar.momentum_select(u + whole, v + whole, g + whole, n - whole, a, m, nesterov, threshold,
                                               first + (uint32_t)whole, index + count, value + count, done);
    if (done) *done += whole;
    return count;
}

static size_t accumulate_select(float *v, float *g, size_t n, float a, float threshold, uint32_t first, uint32_t *index,
                                float *value, size_t *done)
{
    size_t whole = n / BLOCK * BLOCK;
    size_t count = update_and_select(TW_ACCUMULATE, v, v, g, whole, a, 0, threshold, first, index, value, done);
    if (stopped(done, whole)) return count;
    count += tw_kernels_scalar.accumulate_select(v + whole, g + whole, n - whole, a, threshold, first + (uint32_t)whole,
                                                 index + count, value + count, done);
    if (done) *done += whole;
    return count;
}

static size_t select_only(const float *v, size_t n, float threshold, uint32_t first, uint32_t *index, float *value)
{
    float *same = (float *)v; /* TW_AS_IS writes nothing */
    size_t whole = n / BLOCK * BLOCK;
    size_t count = update_and_select(TW_AS_IS, same, same, same, whole, 0, 0, threshold, first, index, value, NULL);
    return count + tw_kernels_scalar.select(v + whole, n - whole, threshold, first + (uint32_t)whole, index + count,
                                            value + count);
}

#include "rows_averaging.h"
#include "rows_chunks.h"
#include "rows_descent.h"
#include "rows_directions.h"
#include "rows_halves.h"
#include "rows_lowrank.h"
#include "rows_moments.h"
#include "rows_quantise.h"
#include "rows_rounded.h"

const tw_kernels TABLE = {
    .averaging = &averaging_rows,
    .moments = &moments_rows,
    .chunks = &chunks_rows,
    .descent = &descent_rows,
    .directions = &directions_rows,
    .quantise = &quantise_rows,
    .lowrank = &lowrank_rows,
    .rounded = &rounded_rows,
    .fp16 = &fp16_rows,
    .bf16 = &bf16_rows,
    TW_KERNEL_LOOPS,
};

#endif
