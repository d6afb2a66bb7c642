/* natural - natural compression (Horvath, Ho, Horvath, Sahu, Canini, Richtarik; MSML 2022, arXiv 1905.10988).
 *
 * An element becomes one of the two powers of two around it, at random: the upper one with the probability that its
 * mantissa says, so that it is right on average; the variance is at most 1/8 of its square (theorem 7). The paper sends
 * a sign and the 8 bits of a float's exponent. Here 8 bits are enough for both: 1,024 elements share the exponent of
 * their largest, and 7 bits say how far an element's is below it, or that it is 0. Elements below 2^-126 of the largest
 * become 0 or that, at random, right on average too. */
#include "quantised.h"

#include "half.h"

static const tw_option options[] = {
    {"feedback", TW_OPTION_SWITCH, offsetof(tw_quantised, feedback), "off", 0, 0, NULL,
     "add what rounding lost to the next step's gradient"},
    TW_OPTION_SEED,
    TW_OPTION_EXCHANGE,
};

enum { BLOCK = TW_QUANTISED_BLOCK, LEAST_TOP = 1, MOST_TOP = 254 };

/* The exponent of the least power of two that is a normal number and not below x; 0 for 0. */
static int top_of(float x)
{
    int above = (int)((tw_float_bits(x) + 0x007FFFFFu) >> 23);
    if (x == 0) return 0;
    return above < LEAST_TOP ? LEAST_TOP : above > MOST_TOP ? MOST_TOP : above;
}

static void natural_encode_block(const tw_scheme *scheme, const tw_quantised_block *block, unsigned char *section)
{
    const tw_quantise_rows *rows = tw_kernels_best()->quantise;
    int top = top_of(block->scale * tw_quantised_peak(block, 0, block->count));
    (void)scheme;
    section[block->first / BLOCK] = (unsigned char)top;
    rows->send_powers(section + tw_bytewise_head(block->n) + block->first, block->values, block->count, block->scale,
                      1 / tw_power_of_two(top ? top : 127), block->noise);
}

static const char *natural_check(const tw_scheme *scheme, const unsigned char *section, size_t n, float *largest)
{
    int top = 0;
    (void)scheme;
    for (size_t i = 0; i < tw_bytewise_head(n); i++)
        if (section[i] > top) top = section[i];
    if (top > MOST_TOP) return "a block's largest power of two is not finite";
    *largest = tw_power_of_two(top);
    return NULL;
}

static void natural_add(const tw_scheme *scheme, const unsigned char *section, size_t n, size_t first,
                        const tw_addition *to)
{
    (void)scheme;
    tw_kernels_best()->quantise->add_powers(to, section + tw_bytewise_head(n) + first,
                                            tw_power_of_two(section[first / BLOCK]));
}

static const tw_quantised_ops sections = {
    .block = BLOCK,
    .bytes = tw_bytewise_bytes,
    .encode_block = natural_encode_block,
    .encode = tw_quantised_encode_blocks,
    .check = natural_check,
    .add = natural_add,
};

static tw_status natural_create(tw_scheme *scheme)
{
    return tw_quantised_create(scheme, &sections);
}

const tw_scheme_ops tw_scheme_natural = {
    .name = "natural",
    .summary = "natural compression: each element at random to a power of two beside it, right on average",
    .one_pass = 1,
    .floor_bytes = 5, /* the gradient, and one byte */
    .struct_size = sizeof(tw_quantised),
    TW_OPTIONS(options),
    .create = natural_create,
    TW_QUANTISED_STEPS,
};
