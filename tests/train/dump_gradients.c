/* Which steps' gradients are kept. */
#include "dump_gradients.h"
#include "support.h"

static void assert_steps(const char *text, uint64_t done, uint64_t steps, const char *expected)
{
    gradient_dump c;
    char found[256] = "";
    assert_ok(dump_parse("folder", text, done, steps, &c));
    for (uint64_t step = 0; step <= steps + 20; step++)
        if (dump_is_due(&c, step)) {
            size_t used = strlen(found);
            snprintf(found + used, sizeof found - used, "%d ", (int)step);
        }
    assert_string_equal(found, expected);
}

TEST(lists)
{
    assert_steps("7", 0, 10, "7 ");
    assert_steps("1,10", 0, 10, "1 10 ");
    assert_steps("2-4,4-5,9", 0, 10, "2 3 4 5 9 ");
    assert_steps("6-6", 5, 10, "6 ");
}

TEST(the_default_is_eight_after_the_middle_of_what_remains)
{
    assert_steps(NULL, 0, 100, "51 52 53 54 55 56 57 58 ");
    assert_steps(NULL, 0, 10, "6 7 8 9 10 ");
    assert_steps(NULL, 0, 1, "1 ");
    assert_steps(NULL, 70, 100, "71 72 73 74 75 76 77 78 ");
    assert_steps(NULL, 100, 100, "");
}

TEST(what_is_no_list_is_refused)
{
    static const char *const bad[] = {"", "x", "3x", "3,", ",3", "3-", "-3", "3--4", " 3", "4-3", "0", "0-3"};
    gradient_dump c;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(dump_parse("folder", bad[i], 0, 10, &c), TW_ERROR_ARGUMENT, "--dump-steps");
    assert_fails(dump_parse("folder", "8-11", 0, 10, &c), TW_ERROR_ARGUMENT, "10 steps");
    assert_fails(dump_parse("folder", "99999999999999999999999", 0, 10, &c), TW_ERROR_ARGUMENT, "10 steps");
    assert_fails(dump_parse("folder", "5-7", 5, 10, &c), TW_ERROR_ARGUMENT, "after step 5");
}

TEST(too_many_ranges_are_refused)
{
    char text[4 * DUMP_RANGES + 4] = "1";
    for (size_t i = 1; i < DUMP_RANGES; i++) strcat(text, ",1");
    gradient_dump c;
    assert_ok(dump_parse("folder", text, 0, 10, &c));
    assert_fails(dump_parse("folder", strcat(text, ",1"), 0, 10, &c), TW_ERROR_ARGUMENT, "ranges");
}

RUN_TESTS(NULL, NULL)
