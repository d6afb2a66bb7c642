/* Eight floats at a time. */
#include "levels.h"

#include <immintrin.h>

enum { WIDTH = 8 };

TW_INLINE uint64_t above(__m256 x, float threshold)
{
    __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
    return (uint64_t)_mm256_movemask_ps(_mm256_cmp_ps(magnitude, _mm256_set1_ps(threshold), _CMP_GT_OQ));
}

TW_INLINE __m256d widen(const float *src)
{
    return _mm256_cvtps_pd(_mm_loadu_ps(src));
}

TW_INLINE __m256 larger(__m256 a, __m256 b)
{
    return _mm256_max_ps(a, b);
}

TW_INLINE __m256 smaller(__m256 a, __m256 b)
{
    return _mm256_min_ps(a, b);
}

#define append tw_append_each
#include "rows.h"

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
    fill_rows(table);
    table->to_fp16 = to_fp16;
    table->from_fp16 = from_fp16;
    table->to_bf16 = to_bf16;
    table->from_bf16 = from_bf16;
}
