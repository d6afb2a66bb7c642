/* How much of a sweep is made in which part of a suite. */
#include "support/cmocka.h"
#include "support/parts.h"

TEST(only_the_part_of_make_test_is_a_part)
{
    setenv("TEST_PART", "most", 1);
    assert_int_equal(in_part(2, 8), 2);
    setenv("TEST_PART", "extra", 1);
    assert_int_equal(in_part(2, 8), 8);
    unsetenv("TEST_PART");
    assert_int_equal(in_part(2, 8), 8);
}

RUN_TESTS(NULL, NULL)
