/* Numbers in specs: kept whole up to the ends of their range, wherever the machine's long ends. */
#include "spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "support/assert.h"

#define MARK 0x5A5A5A5A5A5A5A5A
#define MOST 9007199254740992 /* 2^53 */

typedef struct target {
    int64_t before, seed, after;
} target;

static const tw_option options[] = {{"seed", TW_OPTION_INTEGER, offsetof(target, seed), "7", -1e15, 0x1p53, NULL, ""}};

static tw_status parse(const char *value, target *into)
{
    char spec[128];
    tw_option_set set = {options, 1, into};
    *into = (target){MARK, 0, MARK};
    snprintf(spec, sizeof spec, "x:seed=%s", value);
    return tw_spec_parse(spec, &set, 1);
}

static void check_whole(int64_t number)
{
    char text[32];
    target into;
    snprintf(text, sizeof text, "%" PRId64, number);
    assert_int_equal(parse(text, &into), TW_OK);
    assert_true(into.seed == number && into.before == MARK && into.after == MARK);
}

TEST(test_whole_numbers_are_kept)
{
    static const int64_t numbers[] = {0,
                                      1,
                                      -1,
                                      2147483647,
                                      2147483648,
                                      4294967295,
                                      4294967296,
                                      -2147483649,
                                      1000000000000000,
                                      999999999999999,
                                      MOST,
                                      MOST - 1,
                                      -1000000000000000};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) check_whole(numbers[i]);
    target into;
    assert_int_equal(parse("1e15", &into), TW_OK);
    assert_true(into.seed == 1000000000000000);
}

TEST(test_what_is_beyond_the_range_is_refused)
{
    static const char *const bad[] = {"9007199254740994",     "1e16",  "-1000000000000001", "9223372036854775807",
                                      "18446744073709551616", "1e400", "999999999999999.5", "0x"};
    target into;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (parse(bad[i], &into) != TW_ERROR_SPEC) fail_msg("%s was taken", bad[i]);
        assert_non_null(strstr(tw_last_error(), bad[i]));
        assert_true(into.seed == 7 && into.before == MARK && into.after == MARK);
    }
}

static tw_status parse_real(const char *value, double *into)
{
    static const tw_option real = {.key = "clip", .kind = TW_OPTION_REAL, .fallback = "1", .least = 0, .most = 10};
    const tw_option_set set = {&real, 1, into};
    char spec[96];
    snprintf(spec, sizeof spec, "scheme:clip=%s", value);
    return tw_spec_parse(spec, &set, 1);
}

TEST(test_what_would_be_taken_for_0_is_refused)
{
    static const char *const small[] = {"1e-400", "0.1e-330", "1e-310"};
    double into;
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        assert_int_equal(parse_real(small[i], &into), TW_ERROR_SPEC);
        assert_non_null(strstr(tw_last_error(), small[i]));
        assert_non_null(strstr(tw_last_error(), "write 0, or a larger number"));
    }
    static const char *const taken[] = {"0", "0e-400", "1e-300"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) assert_int_equal(parse_real(taken[i], &into), TW_OK);
    assert_fails(parse_real("-1e-300", &into), TW_ERROR_SPEC, "must be a number from 0 to 10");
}

TEST(test_control_characters_are_refused)
{
    static const char *const bad[] = {"dgc\n", "dgc:density=0.1\r", "\x1b[31mdgc", "topk\x7f"};
    char name[64];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_fails(tw_spec_name(bad[i], name, sizeof name), TW_ERROR_SPEC, "has a control character");
        for (const char *at = tw_last_error(); *at; at++) assert_true(*at >= ' ' && *at < 127);
    }
    assert_int_equal(tw_spec_name("caf\xc3\xa9", name, sizeof name), TW_OK);
}

RUN_TESTS(NULL, NULL)
