/* Eight floats at a time. No fused multiply-add: each product and each sum is rounded, as in the reference. */
#include "levels.h"

#include <immintrin.h>

enum { WIDTH = 8, BLOCK = 32 }; /* the select rows branch once a block: most blocks have nothing to list */

static int all_finite(const float *x, size_t n)
{
    const __m256i exponent = _mm256_set1_epi32(0x7F800000);
    size_t whole = n / WIDTH * WIDTH;
    __m256i bad = _mm256_setzero_si256();
    for (size_t i = 0; i < whole; i += WIDTH) {
        __m256i bits = _mm256_loadu_si256((const __m256i *)(x + i));
        bad = _mm256_or_si256(bad, _mm256_cmpeq_epi32(_mm256_and_si256(bits, exponent), exponent));
    }
    return _mm256_testz_si256(bad, bad) && tw_kernels_scalar.all_finite(x + whole, n - whole);
}

/* sum += x * x; the product of two floats is exact in double */
TW_INLINE __m256d plus_squares(__m256d sum, const float *x)
{
    __m256d wide = _mm256_cvtps_pd(_mm_loadu_ps(x));
    return _mm256_add_pd(sum, _mm256_mul_pd(wide, wide));
}

static double sum_squares(const float *x, size_t n)
{
    size_t whole = n / 16 * 16;
    __m256d sum0 = _mm256_setzero_pd(), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    for (size_t i = 0; i < whole; i += 16) {
        sum0 = plus_squares(sum0, x + i);
        sum1 = plus_squares(sum1, x + i + 4);
        sum2 = plus_squares(sum2, x + i + 8);
        sum3 = plus_squares(sum3, x + i + 12);
    }
    double partial[16];
    _mm256_storeu_pd(partial, sum0);
    _mm256_storeu_pd(partial + 4, sum1);
    _mm256_storeu_pd(partial + 8, sum2);
    _mm256_storeu_pd(partial + 12, sum3);
    return tw_finish_squares(partial, x + whole, n - whole);
}

static void add(float *dst, const float *src, size_t n)
{
    size_t whole = n / WIDTH * WIDTH;
    for (size_t i = 0; i < whole; i += WIDTH)
        _mm256_storeu_ps(dst + i, _mm256_add_ps(_mm256_loadu_ps(dst + i), _mm256_loadu_ps(src + i)));
    tw_kernels_scalar.add(dst + whole, src + whole, n - whole);
}

static void scale(float *x, float a, size_t n)
{
    size_t whole = n / WIDTH * WIDTH;
    for (size_t i = 0; i < whole; i += WIDTH)
        _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(a)));
    tw_kernels_scalar.scale(x + whole, a, n - whole);
}

/* Updates one vector and returns the new v. */
TW_INLINE __m256 updated(tw_update update, float *u, float *v, const float *g, __m256 a, __m256 m)
{
    __m256 sum = _mm256_loadu_ps(v);
    if (update == TW_AS_IS) return sum;
    __m256 step = _mm256_mul_ps(a, _mm256_loadu_ps(g));
    if (update != TW_ACCUMULATE) {
        __m256 velocity = _mm256_add_ps(_mm256_mul_ps(m, _mm256_loadu_ps(u)), step);
        _mm256_storeu_ps(u, velocity);
        step = update == TW_NESTEROV ? _mm256_add_ps(_mm256_mul_ps(m, velocity), step) : velocity;
    }
    sum = _mm256_add_ps(sum, step);
    _mm256_storeu_ps(v, sum);
    return sum;
}

TW_INLINE void update_all(tw_update update, float *u, float *v, const float *g, size_t n, float a, float m)
{
    __m256 wide_a = _mm256_set1_ps(a), wide_m = _mm256_set1_ps(m);
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
TW_INLINE uint32_t above(__m256 x, __m256 threshold)
{
    __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(magnitude, threshold, _CMP_GT_OQ));
}

/* Lists the elements of a block whose bit in `hits` is set; `first` is the number of its first element. */
TW_INLINE size_t append(uint32_t hits, const float *block, uint32_t first, uint32_t *index, float *value)
{
    size_t count = 0;
    for (; hits; hits &= hits - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(hits);
        index[count] = first + lane;
        value[count++] = block[lane];
    }
    return count;
}

TW_INLINE size_t update_and_select(tw_update update, float *u, float *v, const float *g, size_t n, float a, float m,
                                   float threshold, uint32_t first, uint32_t *index, float *value)
{
    __m256 wide_a = _mm256_set1_ps(a), wide_m = _mm256_set1_ps(m), wide_threshold = _mm256_set1_ps(threshold);
    size_t count = 0;
    for (size_t i = 0; i < n; i += BLOCK) {
        uint32_t hits = 0;
        for (size_t k = 0; k < BLOCK; k += WIDTH)
            hits |= above(updated(update, u + i + k, v + i + k, g + i + k, wide_a, wide_m), wide_threshold) << k;
        if (hits) count += append(hits, v + i, first + (uint32_t)i, index + count, value + count);
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

static void to_fp16(uint16_t *dst, const float *src, size_t n)
{
    size_t whole = n / WIDTH * WIDTH;
    for (size_t i = 0; i < whole; i += WIDTH) {
        __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(dst + i), half);
    }
    tw_kernels_scalar.to_fp16(dst + whole, src + whole, n - whole);
}

static void from_fp16(float *dst, const uint16_t *src, size_t n)
{
    size_t whole = n / WIDTH * WIDTH;
    for (size_t i = 0; i < whole; i += WIDTH)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(src + i))));
    tw_kernels_scalar.from_fp16(dst + whole, src + whole, n - whole);
}

/* tw_to_bf16 of eight floats, each in the low half of its lane. */
TW_INLINE __m256i rounded_to_bf16(const float *src)
{
    __m256i bits = _mm256_loadu_si256((const __m256i *)src);
    __m256i high = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    __m256 x = _mm256_castsi256_ps(bits), is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(is_nan));
}

static void to_bf16(uint16_t *dst, const float *src, size_t n)
{
    size_t whole = n / 16 * 16;
    for (size_t i = 0; i < whole; i += 16) {
        __m256i mixed = _mm256_packus_epi32(rounded_to_bf16(src + i), rounded_to_bf16(src + i + 8));
        /* pack works within 128-bit lanes: put the quarters back in order */
        _mm256_storeu_si256((__m256i *)(dst + i), _mm256_permute4x64_epi64(mixed, _MM_SHUFFLE(3, 1, 2, 0)));
    }
    tw_kernels_scalar.to_bf16(dst + whole, src + whole, n - whole);
}

static void from_bf16(float *dst, const uint16_t *src, size_t n)
{
    size_t whole = n / WIDTH * WIDTH;
    for (size_t i = 0; i < whole; i += WIDTH) {
        __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(src + i)));
        _mm256_storeu_si256((__m256i *)(dst + i), _mm256_slli_epi32(wide, 16));
    }
    tw_kernels_scalar.from_bf16(dst + whole, src + whole, n - whole);
}

void tw_kernels_fill_avx2(tw_kernels *table)
{
    *table = (tw_kernels){
        .all_finite = all_finite,
        .sum_squares = sum_squares,
        .add = add,
        .scale = scale,
        .momentum = momentum,
        .momentum_select = momentum_select,
        .accumulate_select = accumulate_select,
        .select = select_only,
        .to_fp16 = to_fp16,
        .from_fp16 = from_fp16,
        .to_bf16 = to_bf16,
        .from_bf16 = from_bf16,
    };
}
