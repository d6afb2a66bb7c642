/* Four floats at a time. */
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

TW_INLINE float32x4_t higher(float32x4_t a, float32x4_t b)
{
    return vreinterpretq_f32_u32(vmaxq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(b)));
}

TW_INLINE float32x4_t roots(float32x4_t x)
{
    return vsqrtq_f32(x);
}

TW_INLINE void store_fp16(uint16_t *dst, float32x4_t x)
{
    vst1_u16(dst, vreinterpret_u16_f16(vcvt_f16_f32(x)));
}

TW_INLINE float32x4_t load_fp16(const uint16_t *src)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(src)));
}

TW_INLINE void stream(float *dst, float32x4_t x)
{
    vst1q_f32(dst, x);
}

TW_INLINE void drain(void)
{
}

TW_INLINE uint16x8_t weave(const uint16_t *src)
{
    uint16x8_t x = vld1q_u16(src);
    return vzip1q_u16(x, vextq_u16(x, x, 4));
}

TW_INLINE void unweave(uint16_t *dst, uint16x8_t x)
{
    vst1q_u16(dst, vcombine_u16(vget_low_u16(vuzp1q_u16(x, x)), vget_low_u16(vuzp2q_u16(x, x))));
}

typedef uint16x8_t woven_vector;

TW_INLINE float32x4_t unpack(uint64_t lanes, const float *src)
{
    float few[WIDTH] = {0};
    tw_unpack_each(lanes, src, few);
    return vld1q_f32(few);
}

#define append tw_append_each
#define TABLE tw_kernels_neon
#include "rows.h"
