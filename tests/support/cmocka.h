/* cmocka.h - cmocka, the headers that it wants to be included before it, and tests that put themselves on a list.
 *
 *     TEST(name) { ... }                               a test, to which cmocka hands its `state`
 *     TEST_BETWEEN(name, set_up, tear_down) { ... }    with what comes before and after it, or NULL
 *     RUN_TESTS(set_up, tear_down)                     main, which runs the file's tests from the first to the last
 *
 * A main that has more to do runs all_tests itself. */
#ifndef TESTS_SUPPORT_CMOCKA_H
#define TESTS_SUPPORT_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST_TESTS = 100 };
static struct CMUnitTest all_tests[MOST_TESTS] __attribute__((unused)); /* cmocka passes over those without a name */
static size_t all_tests_count __attribute__((unused));

/* Constructors run before main, here in the order of their lines. */
#define TEST_BETWEEN(name, set_up, tear_down)                                                                          \
    static void name(void **state);                                                                                    \
    __attribute__((constructor(1000 + __LINE__))) static void list_##name(void)                                        \
    {                                                                                                                  \
        if (all_tests_count == MOST_TESTS) abort();                                                                    \
        all_tests[all_tests_count++] = (struct CMUnitTest){#name, name, set_up, tear_down, NULL};                      \
    }                                                                                                                  \
    static void name(void **state)
#define TEST(name) TEST_BETWEEN(name, NULL, NULL)

#define RUN_TESTS(set_up, tear_down)                                                                                   \
    int main(void)                                                                                                     \
    {                                                                                                                  \
        return all_tests_count == 0 || cmocka_run_group_tests(all_tests, set_up, tear_down);                           \
    }

#endif
