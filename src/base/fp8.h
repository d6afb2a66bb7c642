/* fp8.h - E4M3, the eight-bit float of the OCP 8-bit floating point specification (Micikevicius et al. 2022, arXiv
 * 2209.05433), to and from fp32: a sign, four bits of exponent, three of mantissa. From 2^-9 to 448; there is no
 * infinity, and all ones is NaN. Round to nearest, ties to even; the reference for every faster form. */
#ifndef TW_BASE_FP8_H
#define TW_BASE_FP8_H

#include "half.h"

#define TW_E4M3_MOST 448.0f

/* The patterns of 448, of 2^-6, the least normal number, and of 2^14, whose unit in the last place is the least one. */
enum { TW_E4M3_MOST_BITS = 0x43E00000, TW_E4M3_NORMAL_BITS = 0x3C800000, TW_E4M3_UNIT_BITS = 0x46800000 };
enum { TW_E4M3_REBIAS = (127 - 7) << 3, TW_E4M3_NAN = 127 };

/* Of a finite number; one beyond 448 becomes 448. */
static inline uint8_t tw_to_e4m3(float x)
{
    uint32_t bits = tw_float_bits(x), magnitude = bits & 0x7FFFFFFFu, sign = bits >> 31 << 7;
    if (magnitude > TW_E4M3_MOST_BITS) magnitude = TW_E4M3_MOST_BITS;
    if (magnitude < TW_E4M3_NORMAL_BITS)
        return (uint8_t)(sign | (tw_float_bits(tw_bits_float(magnitude) + 0x1p14f) - TW_E4M3_UNIT_BITS));
    magnitude += 0x7FFFFu + (magnitude >> 20 & 1); /* round, ties to even */
    return (uint8_t)(sign | ((magnitude >> 20) - TW_E4M3_REBIAS));
}

/* Of any code but the two NaNs. */
static inline float tw_from_e4m3(uint8_t code)
{
    uint32_t rest = code & 127u, sign = (uint32_t)(code & 128u) << 24;
    float magnitude = tw_bits_float((rest + TW_E4M3_REBIAS) << 20);
    if (rest < 8) magnitude = tw_bits_float((rest << 20) + TW_E4M3_NORMAL_BITS) - 0x1p-6f;
    return tw_bits_float(sign | tw_float_bits(magnitude));
}

#endif
