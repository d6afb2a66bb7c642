/* fp8 - each element in E4M3, with error feedback (OCP 8-bit Floating Point Specification, 2023; Micikevicius et al.
 * 2022, arXiv 2209.05433).
 *
 * A block of 1,024 elements of p = e + g shares a power of two, the least s for which no |p| / s is beyond 448, the
 * format's largest; an element is sent as p / s, rounded to nearest. So what is below 2^-18 of the block's largest
 * becomes 0 or 2^-9 s. e = p - sent. The formats' paper scales whole tensors; a power of two for a block is how the OCP
 * microscaling formats have it, for blocks of 32. */
#include "quantised.h"

#include "fp8.h"

#include <math.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

static const tw_option options[] = {
    {"feedback", TW_OPTION_SWITCH, offsetof(tw_quantised, feedback), "on", 0, 0, NULL,
     "add what rounding lost to the next step's gradient"},
    TW_OPTION_EXCHANGE,
};

/* Of a float's exponent: 448 times the largest is still a number. */
enum { BLOCK = TW_QUANTISED_BLOCK, LEAST_SCALE = 1, MOST_SCALE = 246 };

/* 448 is 1.75 * 2^8: a mantissa above that takes the next power. */
static int scale_of(float peak)
{
    uint32_t bits = tw_float_bits(peak);
    int scale = (int)(bits >> 23) - 8 + ((bits & 0x7FFFFFu) > 0x600000u);
    if (peak == 0) return 0;
    return scale < LEAST_SCALE ? LEAST_SCALE : scale > MOST_SCALE ? MOST_SCALE : scale;
}

static void fp8_encode_block(const tw_scheme *scheme, const tw_quantised_block *block, unsigned char *section)
{
    const tw_quantise_rows *rows = tw_kernels_best()->quantise;
    int scale = scale_of(block->scale * tw_quantised_peak(block, 0, block->count));
    (void)scheme;
    section[block->first / BLOCK] = (unsigned char)scale;
    rows->send_e4m3(section + tw_bytewise_head(block->n) + block->first, block->values, block->count, block->scale,
                    1 / tw_power_of_two(scale ? scale : 127));
}

static int is_nan(unsigned char code)
{
    return (code & TW_E4M3_NAN) == TW_E4M3_NAN;
}

static const char *fp8_check(const tw_scheme *scheme, const unsigned char *section, size_t n, float *largest)
{
    const unsigned char *codes = section + tw_bytewise_head(n);
    int scale = 0, nan = 0;
    (void)scheme;
    for (size_t i = 0; i < tw_bytewise_head(n); i++)
        if (section[i] > scale) scale = section[i];
    for (size_t i = 0; i < n; i++) nan |= is_nan(codes[i]);
    if (scale > MOST_SCALE) return "a block's scale is too large";
    *largest = TW_E4M3_MOST * tw_power_of_two(scale);
    return nan ? "an element is NaN" : NULL;
}

static void fp8_add(const tw_scheme *scheme, const unsigned char *section, size_t n, size_t first,
                    const tw_addition *to)
{
    (void)scheme;
    tw_kernels_best()->quantise->add_e4m3(to, section + tw_bytewise_head(n) + first,
                                          tw_power_of_two(section[first / BLOCK]));
}

static const tw_quantised_ops sections = {
    .block = BLOCK,
    .bytes = tw_bytewise_bytes,
    .encode_block = fp8_encode_block,
    .encode = tw_quantised_encode_blocks,
    .check = fp8_check,
    .add = fp8_add,
};

static tw_status fp8_create(tw_scheme *scheme)
{
    return tw_quantised_create(scheme, &sections);
}

const tw_scheme_ops tw_scheme_fp8 = {
    .name = "fp8",
    .summary = "eight-bit floats: each element in E4M3, a power of two shared by 1,024 of them, with error feedback",
    .one_pass = 1,
    .floor_bytes = 13, /* gradient, residual read and written, and one byte */
    .struct_size = sizeof(tw_quantised),
    TW_OPTIONS(options),
    .create = fp8_create,
    TW_QUANTISED_STEPS,
};

/* ---- an array by itself ------------------------------------------------------------------------------------------ */

/* The scale of a block that is NaN. */
enum { NO_SCALE = 255 };

size_t tw_fp8_bytes(size_t count)
{
    return tw_bytewise_bytes(NULL, count);
}

static int is_finite(const float *x, size_t count)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t magnitude = tw_float_bits(x[i]) & 0x7FFFFFFFu;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest < 0x7F800000u;
}

void tw_fp8_encode(const float *values, size_t count, unsigned char *bytes)
{
    if (!values || !bytes) return;
    for (size_t first = 0; first < count; first += BLOCK) {
        const size_t left = count - first, size = left < BLOCK ? left : BLOCK;
        const tw_quantised_block block = {
            .values = values + first, .scale = 1, .n = count, .first = first, .count = size};
        fp8_encode_block(NULL, &block, bytes);
        if (!is_finite(values + first, size)) bytes[first / BLOCK] = NO_SCALE;
    }
}

static int is_sound(int scale, const unsigned char *codes, size_t count)
{
    int nan = scale > MOST_SCALE;
    for (size_t i = 0; i < count; i++) nan |= is_nan(codes[i]);
    return !nan;
}

void tw_fp8_decode(const unsigned char *bytes, size_t count, float *values)
{
    if (!values || !bytes) return;
    for (size_t first = 0; first < count; first += BLOCK) {
        const size_t left = count - first, size = left < BLOCK ? left : BLOCK;
        const tw_addition to = {.dst = values + first, .sum = values + first, .n = size};
        memset(to.dst, 0, size * sizeof *values);
        fp8_add(NULL, bytes, count, first, &to);
        if (is_sound(bytes[first / BLOCK], bytes + tw_bytewise_head(count) + first, size)) continue;
        for (size_t i = 0; i < size; i++) to.dst[i] = NAN;
    }
}
