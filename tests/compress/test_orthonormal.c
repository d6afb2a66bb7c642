/* Gram-Schmidt: unit length, right angles, the same span, and what becomes of vectors without a direction. */
#include "orthonormal.h"

#include <math.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

#include "support/cmocka.h"

enum { MOST = 6, LENGTH = 61 };

static double scratch[LENGTH];

static void draw(float *x, size_t n, uint64_t stream, float scale)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t words[4];
        tw_random(11, stream, i, words);
        x[i] = scale * (float)((int32_t)words[0] * 0x1p-31);
    }
}

static double dot(const float *x, const float *y, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * y[i];
    return sum;
}

static void check_orthonormal(const float *x, size_t count, size_t n)
{
    for (size_t k = 0; k < count; k++)
        for (size_t l = 0; l <= k; l++) assert_true(fabs(dot(x + k * n, x + l * n, n) - (k == l)) < 5e-7);
}

/* The squared length of what of x lies outside the span of `count` unit vectors, over its squared length. */
static double outside(const float *x, const float *units, size_t count, size_t n)
{
    double whole = dot(x, x, n), inside = 0;
    for (size_t k = 0; k < count; k++) {
        double common = dot(x, units + k * n, n);
        inside += common * common;
    }
    return (whole - inside) / whole;
}

TEST(spans_the_same_space)
{
    float before[MOST * LENGTH], after[MOST * LENGTH];
    for (size_t n = MOST; n <= LENGTH; n++)
        for (size_t count = 1; count <= MOST; count++) {
            draw(before, count * n, n * MOST + count, 1);
            memcpy(after, before, sizeof after);
            assert_int_equal(tw_orthonormalise(after, count, n, scratch), 0);
            check_orthonormal(after, count, n);
            for (size_t k = 0; k < count; k++) assert_true(outside(before + k * n, after, k + 1, n) < 1e-6);
        }
}

/* Vectors that differ by a thousandth: one sweep would leave them far from right angles. */
TEST(nearly_dependent_vectors_come_out_orthonormal)
{
    float x[MOST * LENGTH], small[LENGTH];
    draw(x, LENGTH, 1, 1);
    for (size_t k = 1; k < MOST; k++) {
        draw(small, LENGTH, 1 + k, 1e-3F);
        for (size_t i = 0; i < LENGTH; i++) x[k * LENGTH + i] = x[i] + small[i];
    }
    assert_int_equal(tw_orthonormalise(x, MOST, LENGTH, scratch), 0);
    check_orthonormal(x, MOST, LENGTH);
}

TEST(dependent_and_zero_vectors_become_zero)
{
    float x[5 * LENGTH] = {0};
    draw(x, LENGTH, 1, 1);
    for (size_t i = 0; i < LENGTH; i++) x[LENGTH + i] = -3 * x[i];
    draw(x + 3 * LENGTH, LENGTH, 2, 1); /* vector 2 stays zero */
    for (size_t i = 0; i < LENGTH; i++) x[4 * LENGTH + i] = x[i] + x[3 * LENGTH + i];
    assert_int_equal(tw_orthonormalise(x, 5, LENGTH, scratch), 3);
    for (size_t i = 0; i < LENGTH; i++) assert_true(x[LENGTH + i] == 0 && x[2 * LENGTH + i] == 0);
    for (size_t i = 0; i < LENGTH; i++) assert_true(x[4 * LENGTH + i] == 0);
    assert_true(fabs(dot(x, x, LENGTH) - 1) < 5e-7);
    assert_true(fabs(dot(x + 3 * LENGTH, x + 3 * LENGTH, LENGTH) - 1) < 5e-7);
}

/* Neither end of fp32's range overflows or vanishes; a power of two changes nothing. */
TEST(any_magnitude_will_do)
{
    float expected[3 * LENGTH], x[3 * LENGTH];
    draw(expected, 3 * LENGTH, 5, 1);
    memcpy(x, expected, sizeof x);
    assert_int_equal(tw_orthonormalise(expected, 3, LENGTH, scratch), 0);
    for (int exponent = -100; exponent <= 127; exponent += 227) {
        float scaled[3 * LENGTH];
        for (size_t i = 0; i < 3 * LENGTH; i++) scaled[i] = ldexpf(x[i], exponent);
        assert_int_equal(tw_orthonormalise(scaled, 3, LENGTH, scratch), 0);
        assert_memory_equal(scaled, expected, sizeof x);
    }
    for (size_t i = 0; i < LENGTH; i++) x[i] = 0x1p-149F;
    assert_int_equal(tw_orthonormalise(x, 1, LENGTH, scratch), 0);
    check_orthonormal(x, 1, LENGTH);
}

RUN_TESTS(NULL, NULL)
