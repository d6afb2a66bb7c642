/* tw_fp8_encode against E4M3's list of numbers, in which the nearest is looked for one by one. */
#include "support/cmocka.h"

#include <math.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

enum { BLOCK = 1024, NUMBERS = 127, MOST = 3 * BLOCK };

/* The format's definition: 0 to 7 times 2^-9, then eight numbers in each of sixteen octaves but for the last. */
static double number_at(int i)
{
    return i < 8 ? ldexp(i, -9) : ldexp(8 + i % 8, i / 8 - 10);
}

/* Of two that are as near the one with the even place. */
static double nearest(double x)
{
    int best = 0;
    for (int i = 1; i < NUMBERS; i++) {
        const double here = fabs(number_at(i) - fabs(x)), there = fabs(number_at(best) - fabs(x));
        if (here < there || (here == there && i % 2 == 0)) best = i;
    }
    return copysign(number_at(best), x);
}

static double unit_of(const float *x, size_t count)
{
    double largest = 0, unit = ldexp(1, -126);
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)x[i]));
    while (448 * unit < largest && unit < ldexp(1, 119)) unit *= 2;
    return unit;
}

static void compare(const float *x, size_t count)
{
    static unsigned char bytes[MOST + MOST / BLOCK];
    static float got[MOST];
    memset(bytes, 0xA5, sizeof bytes);
    tw_fp8_encode(x, count, bytes);
    tw_fp8_decode(bytes, count, got);
    for (size_t i = tw_fp8_bytes(count); i < sizeof bytes; i++) assert_int_equal(bytes[i], 0xA5);
    for (size_t first = 0; first < count; first += BLOCK) {
        const size_t end = first + BLOCK < count ? first + BLOCK : count;
        const double unit = unit_of(x + first, end - first);
        double largest = 0;
        for (size_t i = first; i < end; i++) largest = fmax(largest, fabs((double)x[i]));
        for (size_t i = first; i < end; i++) {
            const double most = fmax(fmax(fabs((double)x[i]) / 16, largest * 0x1p-17), 0x1p-136);
            assert_true((double)got[i] == nearest((double)x[i] / unit) * unit);
            assert_true(fabs((double)got[i] - (double)x[i]) <= most || fabs((double)x[i]) > 448 * 0x1p119);
        }
    }
}

/* Every number of the format, and the middle of any two with what is beside it, of both signs; times a power of two. */
TEST(all_numbers_and_what_is_between)
{
    static float x[BLOCK];
    for (int power = -126; power <= 119; power += 5) {
        size_t count = 0;
        for (int i = 0; i < NUMBERS; i++) {
            const double low = number_at(i), middle = i + 1 < NUMBERS ? (low + number_at(i + 1)) / 2 : low;
            const float at = (float)ldexp(middle, power), sign = i % 2 ? -1 : 1;
            const float all[] = {(float)ldexp(low, power), at, nextafterf(at, 0),
                                 i + 1 < NUMBERS ? nextafterf(at, INFINITY) : at};
            for (size_t k = 0; k < 4; k++) x[count++] = sign * all[k];
        }
        compare(x, count);
    }
}

static float draw(uint64_t trial, uint64_t place, double spread)
{
    uint32_t words[4];
    tw_random(5, trial, place, words);
    return (float)ldexp((double)(int32_t)words[0], (int)(words[1] / 0x1p32 * spread) - 31);
}

/* Blocks that end anywhere, with values of all sizes; the largest of a block is anywhere in its octave. */
TEST(blocks_of_all_lengths)
{
    static float x[MOST];
    for (uint64_t trial = 0; trial < 60; trial++) {
        const size_t count = trial < 20 ? trial : trial * 97 % MOST;
        for (size_t i = 0; i < count; i++) x[i] = draw(trial, i, trial % 3 ? 12 : 40) * (trial % 5 ? 1 : 1e-38f);
        compare(x, count);
        assert_int_equal(tw_fp8_bytes(count), count + (count + BLOCK - 1) / BLOCK);
    }
    memset(x, 0, sizeof x);
    compare(x, MOST);
}

TEST(the_ends_of_fp32)
{
    const float most = 3.4028234e38f;
    compare((float[]){most, -most, 1e38f, 1}, 4);
    compare((float[]){0x1p-149f, -0x1p-126f, 0x1p-135f}, 3);
    compare((float[]){0x1p-137f, 0x1.8p-136f}, 2);
}

TEST(what_is_not_finite_stays_so)
{
    static float x[MOST], got[MOST];
    static unsigned char bytes[MOST + 3];
    const float wrong[] = {INFINITY, -INFINITY, NAN};
    for (size_t k = 0; k < 3; k++) {
        for (size_t i = 0; i < MOST; i++) x[i] = (float)i;
        x[BLOCK + 17 + k] = wrong[k];
        tw_fp8_encode(x, MOST, bytes);
        tw_fp8_decode(bytes, MOST, got);
        for (size_t i = 0; i < MOST; i++) assert_int_equal(!isfinite(got[i]), i / BLOCK == 1);
    }
}

/* Each code, and each scale: what encode writes comes back, and the rest is NaN. */
TEST(any_bytes_are_taken)
{
    float got;
    for (int scale = 0; scale < 256; scale++)
        for (int code = 0; code < 256; code++) {
            const unsigned char bytes[] = {(unsigned char)scale, (unsigned char)code};
            const double unit = scale ? ldexp(1, scale - 127) : 0;
            tw_fp8_decode(bytes, 1, &got);
            if (code % 128 == NUMBERS || scale > 246)
                assert_true(isnan(got));
            else
                assert_true((double)got == (code < 128 ? 1 : -1) * number_at(code % 128) * unit);
        }
}

RUN_TESTS(NULL, NULL)
