/* assert.h - assertions about what calls of the library return and say, and about numbers. */
#ifndef TESTS_SUPPORT_ASSERT_H
#define TESTS_SUPPORT_ASSERT_H

#include <math.h>
#include <string.h>
#include <thinwire/thinwire.h>

#include "support/cmocka.h"

#define assert_ok(call)                                                                                                \
    do {                                                                                                               \
        tw_status assert_status = (call);                                                                              \
        if (assert_status != TW_OK) fail_msg("%s: %s", tw_status_name(assert_status), tw_last_error());                \
    } while (0)

/* The call fails with `status`, and its text holds `word`. */
#define assert_fails(call, status, word)                                                                               \
    do {                                                                                                               \
        assert_int_equal(call, status);                                                                                \
        assert_said(word);                                                                                             \
    } while (0)

/* The last failure is one line that says all these words. */
#define assert_said(...) assert_words((const char *const[]){__VA_ARGS__, NULL})

static inline void assert_words(const char *const words[])
{
    assert_null(strchr(tw_last_error(), '\n'));
    for (; *words; words++)
        if (!strstr(tw_last_error(), *words)) fail_msg("\"%s\" should say \"%s\"", tw_last_error(), *words);
}

#define assert_near(actual, expected, tolerance)                                                                       \
    do {                                                                                                               \
        double near_actual = (actual), near_expected = (expected), near_tolerance = (tolerance);                       \
        if (!(fabs(near_actual - near_expected) <= near_tolerance))                                                    \
            fail_msg("line %d: %.17g is not within %g of %.17g", __LINE__, near_actual, near_tolerance,                \
                     near_expected);                                                                                   \
    } while (0)

#endif
