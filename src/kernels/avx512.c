/* Sixteen floats at a time; the rows not here gain nothing over AVX2. No fused multiply-add, as everywhere. */
#include "levels.h"

#include <immintrin.h>

enum { WIDTH = 16, BLOCK = 64 }; /* the select rows branch once a block: most blocks have nothing to list */

static int all_finite(const float *x, size_t n)
{
    enum { NAN_OR_INFINITY = 0x99 }; /* vfpclassps: quiet NaN 01, +inf 08, -inf 10, signalling NaN 80 */
    size_t whole = n / WIDTH * WIDTH;
    __mmask16 bad = 0;
    for (size_t i = 0; i < whole; i += WIDTH) bad |= _mm512_fpclass_ps_mask(_mm512_loadu_ps(x + i), NAN_OR_INFINITY);
    return !bad && tw_kernels_scalar.all_finite(x + whole, n - whole);
}

/* sum += x * x; the product of two floats is exact in double */
TW_INLINE __m512d plus_squares(__m512d sum, const float *x)
{
    __m512d wide = _mm512_cvtps_pd(_mm256_loadu_ps(x));
    return _mm512_add_pd(sum, _mm512_mul_pd(wide, wide));
}

static double sum_squares(const float *x, size_t n)
{
    size_t whole = n / 16 * 16;
    __m512d low = _mm512_setzero_pd(), high = low;
    for (size_t i = 0; i < whole; i += 16) {
        low = plus_squares(low, x + i);
        high = plus_squares(high, x + i + 8);
    }
    double partial[16];
    _mm512_storeu_pd(partial, low);
    _mm512_storeu_pd(partial + 8, high);
    return tw_finish_squares(partial, x + whole, n - whole);
}

static void add(float *dst, const float *src, size_t n)
{
    size_t whole = n / WIDTH * WIDTH;
    for (size_t i = 0; i < whole; i += WIDTH)
        _mm512_storeu_ps(dst + i, _mm512_add_ps(_mm512_loadu_ps(dst + i), _mm512_loadu_ps(src + i)));
    tw_kernels_scalar.add(dst + whole, src + whole, n - whole);
}

/* Updates one vector and returns the new v. */
TW_INLINE __m512 updated(tw_update update, float *u, float *v, const float *g, __m512 a, __m512 m)
{
    __m512 sum = _mm512_loadu_ps(v);
    if (update == TW_AS_IS) return sum;
    __m512 step = _mm512_mul_ps(a, _mm512_loadu_ps(g));
    if (update != TW_ACCUMULATE) {
        __m512 velocity = _mm512_add_ps(_mm512_mul_ps(m, _mm512_loadu_ps(u)), step);
        _mm512_storeu_ps(u, velocity);
        step = update == TW_NESTEROV ? _mm512_add_ps(_mm512_mul_ps(m, velocity), step) : velocity;
    }
    sum = _mm512_add_ps(sum, step);
    _mm512_storeu_ps(v, sum);
    return sum;
}

TW_INLINE void update_all(tw_update update, float *u, float *v, const float *g, size_t n, float a, float m)
{
    __m512 wide_a = _mm512_set1_ps(a), wide_m = _mm512_set1_ps(m);
    for (size_t i = 0; i < n; i += WIDTH) updated(update, u + i, v + i, g + i, wide_a, wide_m);
}

static void momentum(float *u, float *v, const float *g, size_t n, float a, float m, int nesterov)
{
    size_t whole = n / WIDTH * WIDTH;
    if (nesterov)
        update_all(TW_NESTEROV, u, v, g, whole, a, m);
    else
        update_all(TW_MOMENTUM, u, v, g, whole, a, m);
    tw_kernels_scalar.momentum(u + whole, v + whole, g + whole, n - whole, a, m, nesterov);
}

/* One bit a lane: is |x| > threshold? NaN is not. */
TW_INLINE uint64_t above(__m512 x, __m512 threshold)
{
    return _mm512_cmp_ps_mask(_mm512_abs_ps(x), threshold, _CMP_GT_OQ);
}

/* Lists the lanes of a vector whose bit in `hits` is set; `first` is the number of lane 0. */
TW_INLINE size_t append(__mmask16 hits, const float *v, uint32_t first, uint32_t *index, float *value)
{
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    size_t count = (size_t)__builtin_popcount(hits);
    __mmask16 kept = (__mmask16)((1u << count) - 1);
    __m512i numbers = _mm512_add_epi32(_mm512_set1_epi32((int)first), lanes);
    /* Compress in registers, then store: Zen 4 runs the compressing store as slow microcode (Zen 5: a tie). */
    _mm512_mask_storeu_epi32(index, kept, _mm512_maskz_compress_epi32(hits, numbers));
    _mm512_mask_storeu_ps(value, kept, _mm512_maskz_compress_ps(hits, _mm512_loadu_ps(v)));
    return count;
}

TW_INLINE size_t update_and_select(tw_update update, float *u, float *v, const float *g, size_t n, float a, float m,
                                   float threshold, uint32_t first, uint32_t *index, float *value)
{
    __m512 wide_a = _mm512_set1_ps(a), wide_m = _mm512_set1_ps(m), wide_threshold = _mm512_set1_ps(threshold);
    size_t count = 0;
    for (size_t i = 0; i < n; i += BLOCK) {
        uint64_t hits = 0;
        for (size_t k = 0; k < BLOCK; k += WIDTH)
            hits |= above(updated(update, u + i + k, v + i + k, g + i + k, wide_a, wide_m), wide_threshold) << k;
        if (!hits) continue;
        for (size_t k = 0; k < BLOCK; k += WIDTH)
            count += append((__mmask16)(hits >> k), v + i + k, first + (uint32_t)(i + k), index + count, value + count);
    }
    return count;
}

static size_t momentum_select(float *u, float *v, const float *g, size_t n, float a, float m, int nesterov,
                              float threshold, uint32_t first, uint32_t *index, float *value)
{
    size_t whole = n / BLOCK * BLOCK;
    size_t count = nesterov ? update_and_select(TW_NESTEROV, u, v, g, whole, a, m, threshold, first, index, value)
                            : update_and_select(TW_MOMENTUM, u, v, g, whole, a, m, threshold, first, index, value);
    return count + tw_kernels_scalar.momentum_select(u + whole, v + whole, g + whole, n - whole, a, m, nesterov,
                                                     threshold, first + (uint32_t)whole, index + count, value + count);
}

static size_t accumulate_select(float *v, const float *g, size_t n, float a, float threshold, uint32_t first,
                                uint32_t *index, float *value)
{
    size_t whole = n / BLOCK * BLOCK;
    size_t count = update_and_select(TW_ACCUMULATE, v, v, g, whole, a, 0, threshold, first, index, value);
    return count + tw_kernels_scalar.accumulate_select(v + whole, g + whole, n - whole, a, threshold,
                                                       first + (uint32_t)whole, index + count, value + count);
}

static size_t select_only(const float *v, size_t n, float threshold, uint32_t first, uint32_t *index, float *value)
{
    float *same = (float *)v; /* TW_AS_IS writes nothing */
    size_t whole = n / BLOCK * BLOCK;
    size_t count = update_and_select(TW_AS_IS, same, same, v, whole, 0, 0, threshold, first, index, value);
    return count + tw_kernels_scalar.select(v + whole, n - whole, threshold, first + (uint32_t)whole, index + count,
                                            value + count);
}

void tw_kernels_fill_avx512(tw_kernels *table)
{
    table->all_finite = all_finite;
    table->sum_squares = sum_squares;
    table->add = add;
    table->momentum = momentum;
    table->momentum_select = momentum_select;
    table->accumulate_select = accumulate_select;
    table->select = select_only;
}
