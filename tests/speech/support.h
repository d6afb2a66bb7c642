/* support.h - what the tests of speech share. */
#ifndef TEST_SPEECH_SUPPORT_H
#define TEST_SPEECH_SUPPORT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <thinwire/thinwire_plugin.h>

#define assert_ok(call)                                                                                                \
    do {                                                                                                               \
        tw_status assert_status = (call);                                                                              \
        if (assert_status != TW_OK) fail_msg("%s: %s", tw_status_name(assert_status), tw_last_error());                \
    } while (0)

/* The call is refused with a text that holds `word`. */
#define assert_refused(call, word)                                                                                     \
    do {                                                                                                               \
        assert_int_equal(call, TW_ERROR_ARGUMENT);                                                                     \
        if (!strstr(tw_last_error(), word)) fail_msg("'%s' is not in: %s", word, tw_last_error());                     \
    } while (0)

#define assert_near(actual, expected, tolerance)                                                                       \
    do {                                                                                                               \
        double near_actual = (actual), near_expected = (expected), near_tolerance = (tolerance);                       \
        if (!(fabs(near_actual - near_expected) <= near_tolerance))                                                    \
            fail_msg("line %d: %.17g is not within %g of %.17g", __LINE__, near_actual, near_tolerance,                \
                     near_expected);                                                                                   \
    } while (0)

static inline uint32_t draw(uint64_t stream, size_t i, uint32_t below)
{
    uint32_t words[4];
    tw_random(7, stream, i, words);
    return words[0] % below;
}

static inline void fill(uint64_t stream, float scale, float *values, size_t count) /* in [-scale, scale) */
{
    for (size_t i = 0; i < count; i++) {
        uint32_t words[4];
        tw_random(11, stream, i, words);
        values[i] = scale * ((float)words[0] * 0x1p-31f - 1.0f);
    }
}

static inline void softmax(const float *logits, size_t labels, double *dst)
{
    double sum = 0.0;
    for (size_t k = 0; k < labels; k++) sum += dst[k] = exp(logits[k]);
    for (size_t k = 0; k < labels; k++) dst[k] /= sum;
}

/* Goes through paths of one label a frame: 0 0 0, 1 0 0, ... Returns 0 after the last. */
static inline int next_path(uint32_t *path, size_t frames, size_t labels)
{
    for (size_t t = 0; t < frames; t++) {
        if (++path[t] < labels) return 1;
        path[t] = 0;
    }
    return 0;
}

/* What a path spells: runs merged, blanks removed. */
static inline size_t collapse(const uint32_t *path, size_t frames, uint32_t *dst)
{
    size_t count = 0;
    for (size_t t = 0; t < frames; t++)
        if (path[t] != 0 && (t == 0 || path[t] != path[t - 1])) dst[count++] = path[t];
    return count;
}

#endif
