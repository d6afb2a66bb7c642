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

TW_INLINE __m256 higher(__m256 a, __m256 b)
{
    return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}

TW_INLINE __m256 roots(__m256 x)
{
    return _mm256_sqrt_ps(x);
}

TW_INLINE void store_fp16(uint16_t *dst, __m256 x)
{
    _mm_storeu_si128((__m128i *)dst, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

TW_INLINE __m256 load_fp16(const uint16_t *src)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)src));
}

TW_INLINE void stream(float *dst, __m256 x)
{
    _mm256_stream_ps(dst, x);
}

TW_INLINE void drain(void)
{
    _mm_sfence();
}

TW_INLINE __m256i weave(const uint16_t *src)
{
    const __m256i in_turn =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
    __m256i x = _mm256_permute4x64_epi64(_mm256_loadu_si256((const __m256i *)src), 0xD8);
    return _mm256_shuffle_epi8(x, in_turn);
}

TW_INLINE void unweave(uint16_t *dst, __m256i x)
{
    const __m256i apart =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    x = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(x, apart), 0xD8);
    _mm256_storeu_si256((__m256i *)dst, x);
}

typedef __m256i woven_vector;

TW_INLINE __m256 unpack(uint64_t lanes, const float *src)
{
    float few[WIDTH] = {0};
    tw_unpack_each(lanes, src, few);
    return _mm256_loadu_ps(few);
}

#define append tw_append_each
#define TABLE tw_kernels_avx2
#include "rows.h"
