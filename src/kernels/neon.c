/* Four floats at a time. The conversions to and from bf16 are the reference, of which the compiler makes vectors. */
#include "levels.h"

#include <arm_neon.h>

enum { WIDTH = 4 };

TW_INLINE uint64_t above(float32x4_t x, float threshold)
{
    static const uint32_t bits[] = {1, 2, 4, 8};
    uint32x4_t is_above = vcgtq_f32(vabsq_f32(x), vdupq_n_f32(threshold));
    return vaddvq_u32(vandq_u32(is_above, vld1q_u32(bits)));
}

TW_INLINE float64x2_t widen(const float *src)
{
    return vcvt_f64_f32(vld1_f32(src));
}

TW_INLINE float32x4_t larger(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

TW_INLINE float32x4_t smaller(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

#define append tw_append_each
#include "rows.h"

static void to_fp16(uint16_t *dst, const float *src, size_t n)
{
    size_t whole = n / WIDTH * WIDTH;
    for (size_t i = 0; i < whole; i += WIDTH) vst1_u16(dst + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(src + i))));
    tw_kernels_scalar.to_fp16(dst + whole, src + whole, n - whole);
}

static void from_fp16(float *dst, const uint16_t *src, size_t n)
{
    size_t whole = n / WIDTH * WIDTH;
    for (size_t i = 0; i < whole; i += WIDTH) vst1q_f32(dst + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(src + i))));
    tw_kernels_scalar.from_fp16(dst + whole, src + whole, n - whole);
}

void tw_kernels_fill_neon(tw_kernels *table)
{
    fill_rows(table);
    table->to_fp16 = to_fp16;
    table->from_fp16 = from_fp16;
}
