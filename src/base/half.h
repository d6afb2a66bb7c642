/* half.h - fp16 and bf16, to and from fp32: round to nearest, ties to even; the reference for every faster form. */
#ifndef TW_BASE_HALF_H
#define TW_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t tw_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float tw_bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* In double, in which sums of many lose nothing that counts. */
static inline double tw_magnitude(float x)
{
    return (double)tw_bits_float(tw_float_bits(x) & 0x7FFFFFFFu);
}

static inline uint16_t tw_to_bf16(float x)
{
    uint32_t bits = tw_float_bits(x);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(bits >> 16 | 0x40); /* keep a NaN a NaN */
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

/* Rounds to one of the two around x, upwards in magnitude for as many of the 65,536 values of `noise` as x is nearer to
 * it: the mean over all of them is x. What bf16 has stays as it is; what is beyond its largest may become infinity. */
static inline uint16_t tw_to_bf16_random(float x, uint32_t noise)
{
    uint32_t bits = tw_float_bits(x);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(bits >> 16 | 0x40); /* keep a NaN a NaN */
    return (uint16_t)((bits + noise) >> 16);
}

static inline float tw_from_bf16(uint16_t half)
{
    return tw_bits_float((uint32_t)half << 16);
}

static inline uint16_t tw_to_fp16(float x)
{
    uint32_t bits = tw_float_bits(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return (uint16_t)(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
    if (magnitude >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* 65520 and above round to infinity */
    if (magnitude < 0x38800000u) {                                   /* below 2^-14: a multiple of 2^-24 */
        float scaled = tw_bits_float(magnitude) + 0.5f; /* the unit in the last place of [0.5, 1) is 2^-24 */
        return (uint16_t)(sign | (tw_float_bits(scaled) - 0x3F000000u));
    }
    magnitude += 0xFFFu + (magnitude >> 13 & 1); /* round, ties to even */
    return (uint16_t)(sign | ((magnitude - 0x38000000u) >> 13));
}

static inline float tw_from_fp16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = half & 0x7FFFu;
    if (rest > 0x7C00u) rest |= 0x0200u; /* a NaN comes out quiet, as from the processor's own conversion */
    if (rest >= 0x7C00u) return tw_bits_float(sign | 0x7F800000u | rest << 13);
    if (rest >= 0x0400u) return tw_bits_float(sign | ((rest << 13) + 0x38000000u));
    float magnitude = (float)rest * 0x1p-24f;
    return tw_bits_float(sign | tw_float_bits(magnitude));
}

/* A finite value too large for 16 bits becomes the largest finite one, whose pattern is infinity's less one: what was
 * cut off stays in the sender's residual, where an infinity would destroy it. */
static inline uint16_t tw_to_fp16_finite(float x)
{
    uint16_t half = tw_to_fp16(x);
    int overflow = (half & 0x7FFF) == 0x7C00 && (tw_float_bits(x) & 0x7FFFFFFF) != 0x7F800000;
    return (uint16_t)(half - overflow);
}

static inline uint16_t tw_to_bf16_finite(float x)
{
    uint16_t half = tw_to_bf16(x);
    int overflow = (half & 0x7FFF) == 0x7F80 && (tw_float_bits(x) & 0x7FFFFFFF) != 0x7F800000;
    return (uint16_t)(half - overflow);
}

#endif
