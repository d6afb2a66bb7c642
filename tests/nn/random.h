/* random.h - the same numbers on every run, and comparisons, for the tests of networks. */
#ifndef TEST_NN_RANDOM_H
#define TEST_NN_RANDOM_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <thinwire/thinwire_plugin.h>

static inline void must(tw_status status)
{
    if (status != TW_OK) fail_msg("%s: %s", tw_status_name(status), tw_last_error());
}

static inline float uniform(uint64_t stream, size_t i) /* in [-1, 1) */
{
    uint32_t words[4];
    tw_random(2024, stream, i, words);
    return (float)words[0] * 0x1p-31f - 1.0f;
}

static inline float *random_floats(uint64_t stream, size_t count)
{
    float *values = malloc((count ? count : 1) * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++) values[i] = uniform(stream, i);
    return values;
}

static inline void assert_near(double actual, double expected, double tolerance)
{
    if (!(fabs(actual - expected) <= tolerance)) fail_msg("%.9g is not within %g of %.9g", actual, tolerance, expected);
}

#endif
