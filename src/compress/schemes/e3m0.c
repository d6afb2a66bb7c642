/* e3m0 - each element in four bits: a sign, and three bits of exponent without a mantissa (Streaming DiLoCo; Douillard
 * et al. 2025, arXiv 2501.18512, which does not say how it scales; the blocks are reconstructed).
 *
 * A block of 256 elements shares s, its largest magnitude, in fp32. An element is sent as 0 or as s times 2^-6, 2^-5 ..
 * 1, whichever is nearest; of two as near the smaller. So the error does not depend on how heavy the tails are: .04 of
 * the squares of normal values, and of Student's. */
#include "quantised.h"

#include <math.h>

static const tw_option options[] = {
    {"feedback", TW_OPTION_SWITCH, offsetof(tw_quantised, feedback), "off", 0, 0, NULL,
     "add what rounding lost to the next step's gradient; the paper does without"},
    TW_OPTION_EXCHANGE,
};

enum { BLOCK = 256, SCALE_BYTES = 4, MINUS = 8, LEVELS = 7 };

static size_t e3m0_head(size_t n)
{
    return (n + BLOCK - 1) / BLOCK * SCALE_BYTES;
}

static size_t e3m0_bytes(const tw_scheme *scheme, size_t n)
{
    (void)scheme;
    return e3m0_head(n) + (n + 1) / 2;
}

static float level_of(unsigned code, float scale)
{
    unsigned magnitude = code % MINUS;
    float level = magnitude ? scale * tw_power_of_two(127 + (int)magnitude - LEVELS) : 0;
    return code & MINUS ? -level : level;
}

/* A float is above the middle of two levels if it is above the largest float that is not. */
static float largest_not_above(double middle)
{
    float nearest = (float)middle;
    return (double)nearest > middle ? nextafterf(nearest, 0) : nearest;
}

static void find_middles(float scale, float middles[LEVELS])
{
    middles[0] = largest_not_above((double)scale / 128);
    for (int i = 1; i < LEVELS; i++)
        middles[i] = largest_not_above(0.75 * (double)scale / (double)(1 << (LEVELS - 1 - i)));
}

/* How many middles between two levels lie below each; nothing is negative zero. Compilers make vectors of this loop. */
static void find_codes(const tw_quantised_block *block, const float middles[LEVELS], uint32_t code[BLOCK])
{
    for (size_t i = 0; i < block->count; i++) {
        float x = block->scale * block->values[i], magnitude = fabsf(x);
        uint32_t above = 0;
        for (int k = 0; k < LEVELS; k++) above += magnitude > middles[k];
        code[i] = above | (above > 0 && x < 0 ? MINUS : 0);
    }
}

static void e3m0_encode_block(const tw_scheme *scheme, const tw_quantised_block *block, unsigned char *section)
{
    float scale = block->scale * tw_quantised_peak(block, 0, block->count), middles[LEVELS];
    unsigned char *codes = section + e3m0_head(block->n) + block->first / 2;
    uint32_t code[BLOCK + 1];
    (void)scheme;
    find_middles(scale, middles);
    tw_quantised_put_float(section + block->first / BLOCK * SCALE_BYTES, scale);
    find_codes(block, middles, code);
    code[block->count] = 0; /* beside the last of an odd number */
    for (size_t i = 0; i < block->count; i += 2) codes[i / 2] = (unsigned char)(code[i] | code[i + 1] << 4);
}

static const char *e3m0_check(const tw_scheme *scheme, const unsigned char *section, size_t n, float *largest)
{
    (void)scheme;
    *largest = 0;
    for (size_t i = 0; i < e3m0_head(n); i += SCALE_BYTES) {
        float scale = tw_quantised_get_float(section + i);
        if (!(scale >= 0 && scale < INFINITY)) return "a block's scale is negative, NaN or infinite";
        if (scale > *largest) *largest = scale;
    }
    return n % 2 && section[e3m0_head(n) + n / 2] >> 4 ? "its last byte has padding that is not zero" : NULL;
}

static void e3m0_add(const tw_scheme *scheme, const unsigned char *section, size_t n, size_t first,
                     const tw_addition *to)
{
    const unsigned char *codes = section + e3m0_head(n) + first / 2;
    float levels[2 * MINUS], scale = tw_quantised_get_float(section + first / BLOCK * SCALE_BYTES);
    (void)scheme;
    for (unsigned code = 0; code < 2 * MINUS; code++) levels[code] = level_of(code, scale);
    for (size_t i = 0; i < to->n; i++) to->dst[i] = to->sum[i] + levels[codes[i / 2] >> (i % 2 * 4) & (2 * MINUS - 1)];
}

static const tw_quantised_ops sections = {
    .block = BLOCK,
    .bytes = e3m0_bytes,
    .encode_block = e3m0_encode_block,
    .encode = tw_quantised_encode_blocks,
    .check = e3m0_check,
    .add = e3m0_add,
};

static tw_status e3m0_create(tw_scheme *scheme)
{
    return tw_quantised_create(scheme, &sections);
}

const tw_scheme_ops tw_scheme_e3m0 = {
    .name = "e3m0",
    .summary = "four-bit floats without a mantissa: a sign and a power of two, a scale shared by 256 of them",
    .one_pass = 1,
    .floor_bytes = 5, /* the gradient, and half a byte */
    .struct_size = sizeof(tw_quantised),
    TW_OPTIONS(options),
    .create = e3m0_create,
    TW_QUANTISED_STEPS,
};
