/* cmocka.h - as much of cmocka's interface as the tests of src/base and src/kernels use, for cross builds, for which
 * there is seldom a cmocka at hand. The first assertion that fails ends the program. */
#ifndef CMOCKA_H
#define CMOCKA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*test)(void **state);
    int (*set_up)(void **state), (*tear_down)(void **state);
    void *initial_state;
};

#define cmocka_run_group_tests(tests, set_up, tear_down) run_group(tests, sizeof(tests) / sizeof *(tests))

static inline int run_group(const struct CMUnitTest *tests, size_t count)
{
    void *state = NULL;
    for (size_t i = 0; i < count && tests[i].name; i++) {
        tests[i].test(&state);
        fprintf(stderr, "[       OK ] %s\n", tests[i].name);
    }
    return 0;
}

#define fail_msg(...)                                                                                                  \
    do {                                                                                                               \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                                                \
        fprintf(stderr, __VA_ARGS__);                                                                                  \
        fprintf(stderr, "\n");                                                                                         \
        exit(1);                                                                                                       \
    } while (0)
#define assert_true(condition)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) fail_msg("not so: %s", #condition);                                                          \
    } while (0)

#define assert_non_null(pointer) assert_true((pointer) != NULL)
#define assert_null(pointer) assert_true((pointer) == NULL)
#define assert_int_equal(a, b) assert_true((unsigned long long)(a) == (unsigned long long)(b))
#define assert_ptr_equal(a, b) assert_true((const void *)(a) == (const void *)(b))
#define assert_ptr_not_equal(a, b) assert_true((const void *)(a) != (const void *)(b))
#define assert_memory_equal(a, b, size) assert_true(memcmp(a, b, size) == 0)
#define assert_string_equal(a, b) assert_true(strcmp(a, b) == 0)

#endif
