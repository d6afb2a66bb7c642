/* random.h - the same random numbers on every run: number i of a stream. */
#ifndef TESTS_SUPPORT_RANDOM_H
#define TESTS_SUPPORT_RANDOM_H

#include <stdlib.h>
#include <thinwire/thinwire_plugin.h>

#include "support/cmocka.h"

static inline uint32_t random_word(uint64_t stream, uint64_t i)
{
    uint32_t words[4];
    tw_random(2024, stream, i, words);
    return words[0];
}

static inline uint32_t draw(uint64_t stream, uint64_t i, uint32_t below)
{
    return random_word(stream, i) % below;
}

static inline float uniform(uint64_t stream, uint64_t i) /* in [-1, 1) */
{
    return (float)random_word(stream, i) * 0x1p-31f - 1.0f;
}

static inline void fill_uniform(uint64_t stream, float scale, float *values, size_t count) /* in [-scale, scale) */
{
    for (size_t i = 0; i < count; i++) values[i] = scale * uniform(stream, i);
}

/* The caller frees them. */
static inline float *random_floats(uint64_t stream, size_t count)
{
    float *values = malloc((count ? count : 1) * sizeof *values);
    assert_non_null(values);
    fill_uniform(stream, 1.0f, values, count);
    return values;
}

#endif
