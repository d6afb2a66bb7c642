/* fp16 and bf16 against their definition: what a pattern stands for, and the midpoints between neighbours. */
#include "half.h"

#include <math.h>
#include <thinwire/thinwire_plugin.h>

#include "support/cmocka.h"

typedef struct format {
    uint16_t (*to)(float x);
    float (*from)(uint16_t half);
    uint16_t infinity; /* also where the exponent's bits are */
    uint16_t quiet;    /* the bit of a quiet NaN: the mantissa's highest */
    int least;         /* the lowest exponent of a normal number */
} format;

static const format formats[] = {{tw_to_fp16, tw_from_fp16, 0x7C00, 0x200, -14},
                                 {tw_to_bf16, tw_from_bf16, 0x7F80, 0x40, -126}};
enum { FORMATS = sizeof formats / sizeof *formats };

/* What a pattern without sign stands for; infinity's counts as the next power of two, where rounding to it begins. */
static double meaning(const format *f, uint16_t pattern)
{
    int unit = f->quiet * 2, exponent = pattern / unit, mantissa = pattern % unit;
    if (exponent == 0) return ldexp(mantissa, f->least) / unit;
    return ldexp(mantissa + unit, exponent - 1 + f->least) / unit;
}

TEST(every_pattern_means_its_value)
{
    for (int k = 0; k < FORMATS; k++) {
        const format *f = &formats[k];
        for (uint32_t half = 0; half < 65536; half++) {
            uint16_t pattern = half & 0x7FFF;
            float x = f->from((uint16_t)half);
            if (pattern > f->infinity) {
                assert_true(isnan(x));
                assert_int_equal(f->to(x), half | f->quiet);
                continue;
            }
            assert_true((double)fabsf(x) == (pattern == f->infinity ? (double)INFINITY : meaning(f, pattern)));
            assert_int_equal(signbit(x) != 0, half >> 15);
            assert_int_equal(f->to(x), half);
        }
    }
}

/* x lies between the midpoints to the neighbours of what it became; on a midpoint, the even neighbour was taken. */
static void assert_nearest(const format *f, float x)
{
    uint16_t half = f->to(x), pattern = half & 0x7FFF;
    assert_int_equal(half >> 15, signbit(x) != 0);
    if (isnan(x)) {
        assert_true(pattern > f->infinity);
        return;
    }
    double magnitude = fabs((double)x), here = meaning(f, pattern);
    assert_true(pattern <= f->infinity);
    if (pattern > 0) {
        double below = (meaning(f, (uint16_t)(pattern - 1)) + here) / 2;
        assert_true(pattern % 2 ? magnitude > below : magnitude >= below);
    }
    if (pattern < f->infinity) {
        double over = (meaning(f, (uint16_t)(pattern + 1)) + here) / 2;
        assert_true(pattern % 2 ? magnitude < over : magnitude <= over);
    }
}

TEST(rounding_turns_at_every_midpoint)
{
    for (int k = 0; k < FORMATS; k++) {
        const format *f = &formats[k];
        for (uint16_t pattern = 0; pattern < f->infinity; pattern++) {
            double middle = (meaning(f, pattern) + meaning(f, (uint16_t)(pattern + 1))) / 2;
            float x = (float)middle;
            assert_true(x == middle);
            assert_nearest(f, x);
            assert_nearest(f, -x);
            assert_nearest(f, nextafterf(x, 0));
            assert_nearest(f, nextafterf(x, INFINITY));
        }
    }
}

TEST(any_float_goes_to_the_nearest)
{
    for (uint32_t i = 0; i < 250000; i++) {
        uint32_t words[4];
        tw_random(1, 2, i, words);
        for (int w = 0; w < 4; w++) {
            /* all bits, then an exponent around those of fp16's denormals, then a denormal of fp32 */
            uint32_t near = (words[w] & 0x87FFFFFFu) + 0x30000000u;
            for (int k = 0; k < FORMATS; k++) {
                assert_nearest(&formats[k], tw_bits_float(words[w]));
                assert_nearest(&formats[k], tw_bits_float(near));
                assert_nearest(&formats[k], tw_bits_float(words[w] & 0x807FFFFFu));
            }
        }
    }
}

TEST(nan_stays_nan)
{
    static const uint32_t bits[] = {0x7F800001, 0xFF800001, 0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F80FFFF, 0x7F801FFF};
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
        for (int k = 0; k < FORMATS; k++) assert_nearest(&formats[k], tw_bits_float(bits[i]));
}

RUN_TESTS(NULL, NULL)
