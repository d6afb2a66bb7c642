/* Sixteen floats at a time. */
#include "levels.h"

#include <immintrin.h>

enum { WIDTH = 16 };

TW_INLINE uint64_t above(__m512 x, float threshold)
{
    return _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(threshold), _CMP_GT_OQ);
}

TW_INLINE __m512d widen(const float *src)
{
    return _mm512_cvtps_pd(_mm256_loadu_ps(src));
}

TW_INLINE __m512 larger(__m512 a, __m512 b)
{
    return _mm512_max_ps(a, b);
}

TW_INLINE __m512 smaller(__m512 a, __m512 b)
{
    return _mm512_min_ps(a, b);
}

TW_INLINE __m512 higher(__m512 a, __m512 b)
{
    return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}

TW_INLINE __m512 roots(__m512 x)
{
    return _mm512_sqrt_ps(x);
}

TW_INLINE void store_fp16(uint16_t *dst, __m512 x)
{
    _mm256_storeu_si256((__m256i *)dst, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

TW_INLINE __m512 load_fp16(const uint16_t *src)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)src));
}

TW_INLINE void stream(float *dst, __m512 x)
{
    _mm512_stream_ps(dst, x);
}

TW_INLINE void drain(void)
{
    _mm_sfence();
}

/* The numbers of 32 halves, each word's lower one first. */
#define WORD(lower, upper) ((upper) << 16 | (lower))

TW_INLINE __m512i weave(const uint16_t *src)
{
    const __m512i in_turn = _mm512_setr_epi32(
        WORD(0, 16), WORD(1, 17), WORD(2, 18), WORD(3, 19), WORD(4, 20), WORD(5, 21), WORD(6, 22), WORD(7, 23),
        WORD(8, 24), WORD(9, 25), WORD(10, 26), WORD(11, 27), WORD(12, 28), WORD(13, 29), WORD(14, 30), WORD(15, 31));
    return _mm512_permutexvar_epi16(in_turn, _mm512_loadu_si512(src));
}

TW_INLINE void unweave(uint16_t *dst, __m512i x)
{
    const __m512i apart = _mm512_setr_epi32(
        WORD(0, 2), WORD(4, 6), WORD(8, 10), WORD(12, 14), WORD(16, 18), WORD(20, 22), WORD(24, 26), WORD(28, 30),
        WORD(1, 3), WORD(5, 7), WORD(9, 11), WORD(13, 15), WORD(17, 19), WORD(21, 23), WORD(25, 27), WORD(29, 31));
    _mm512_storeu_si512(dst, _mm512_permutexvar_epi16(apart, x));
}

typedef __m512i woven_vector;

/* Lists the lanes of one vector whose bit in `hits` is set; `first` is the number of lane 0. */
TW_INLINE size_t append_lanes(__mmask16 hits, const float *v, uint32_t first, uint32_t *index, float *value)
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

/* Of few hits each by itself is faster than four vectors of them. */
enum { FEW_HITS = 4 };

TW_INLINE size_t append(uint64_t hits, const float *block, uint32_t first, uint32_t *index, float *value)
{
    size_t count = 0;
    if (__builtin_popcountll(hits) <= FEW_HITS) return tw_append_each(hits, block, first, index, value);
    for (uint32_t k = 0; k < 64; k += WIDTH)
        count += append_lanes((__mmask16)(hits >> k), block + k, first + k, index + count, value + count);
    return count;
}

TW_INLINE __m512 unpack(uint64_t lanes, const float *src)
{
    return _mm512_maskz_expandloadu_ps((__mmask16)lanes, src);
}

#define TABLE tw_kernels_avx512
#include "rows.h"
