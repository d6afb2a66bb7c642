/* The allocator: alignment, zeroes, growth, overflow, and failures on demand. */
#include "memory.h"

#include <pthread.h>
#include <string.h>

#include "support/cmocka.h"

enum { HUGE_PAGE = 2 << 20 };

static int all_zero(const unsigned char *bytes, size_t size)
{
    return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

TEST(blocks_are_aligned_and_zero)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 1000, 100000, HUGE_PAGE, 2 * HUGE_PAGE, 5 * HUGE_PAGE + 1};
    for (int pass = 0; pass < 2; pass++) /* the second pass meets the dirt of the first */
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            unsigned char *block = NULL;
            assert_int_equal(tw_allocate(sizes[i], 1, &block), TW_OK);
            assert_non_null(block);
            assert_int_equal((uintptr_t)block % (sizes[i] >= 2 * HUGE_PAGE ? HUGE_PAGE : 64), 0);
            assert_true(all_zero(block, sizes[i]));
            memset(block, 0xA5, sizes[i]);
            tw_free(block);
        }
    tw_free(NULL);
}

TEST(too_much_is_an_error)
{
    int mark;
    void *block = &mark;
    assert_int_equal(tw_allocate(SIZE_MAX / 2, 4, &block), TW_ERROR_MEMORY);
    assert_int_equal(tw_allocate(SIZE_MAX, 1, &block), TW_ERROR_MEMORY);
    assert_ptr_equal(block, &mark);
}

TEST(the_chosen_allocation_fails)
{
    int mark;
    void *block;
    for (long n = 1; n <= 4; n++) {
        tw_fail_allocation(n);
        for (long i = 1; i <= 6; i++) {
            block = &mark;
            tw_status status = tw_allocate(10, 10, &block);
            assert_int_equal(status, i == n ? TW_ERROR_MEMORY : TW_OK);
            if (status == TW_OK)
                tw_free(block);
            else
                assert_ptr_equal(block, &mark);
        }
    }
    tw_fail_allocation(1);
    tw_fail_allocation(0);
    assert_int_equal(tw_allocate(1, 1, &block), TW_OK);
    tw_free(block);
}

static void *allocate_once(void *status)
{
    void *block = NULL;
    *(tw_status *)status = tw_allocate(1, 1, &block);
    tw_free(block);
    return NULL;
}

TEST(only_this_thread_fails)
{
    pthread_t thread;
    tw_status there = TW_ERROR_SYSTEM, here = TW_OK;
    tw_fail_allocation(1);
    assert_int_equal(pthread_create(&thread, NULL, allocate_once, &there), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    allocate_once(&here);
    assert_int_equal(there, TW_OK);
    assert_int_equal(here, TW_ERROR_MEMORY);
}

TEST(resize_keeps_what_fits)
{
    unsigned char *block = NULL;
    assert_int_equal(tw_resize(&block, 0, 100), TW_OK);
    assert_true(all_zero(block, 100));
    memset(block, 7, 100);
    assert_int_equal(tw_resize(&block, 100, 5 * HUGE_PAGE), TW_OK);
    for (int i = 0; i < 100; i++) assert_int_equal(block[i], 7);
    assert_true(all_zero(block + 100, 5 * HUGE_PAGE - 100));
    assert_int_equal(tw_resize(&block, 5 * HUGE_PAGE, 50), TW_OK);
    unsigned char *old = block;
    tw_fail_allocation(1);
    assert_int_equal(tw_resize(&block, 50, 1000), TW_ERROR_MEMORY);
    assert_ptr_equal(block, old);
    for (int i = 0; i < 50; i++) assert_int_equal(block[i], 7);
    tw_free(block);
}

TEST(strings_are_copied)
{
    char text[] = "dgc:density=0.001", *copy = NULL;
    assert_int_equal(tw_copy_string(text, &copy), TW_OK);
    text[0] = 'x';
    assert_string_equal(copy, "dgc:density=0.001");
    tw_free(copy);
    tw_fail_allocation(1);
    assert_int_equal(tw_copy_string(text, &copy), TW_ERROR_MEMORY);
}

/* As many bytes as were asked for, whoever takes them and whatever they are aligned to. */
TEST(what_is_taken_meanwhile_is_counted)
{
    enum { MANY = 200 };
    unsigned char *before, *large, *small, *many[MANY];
    pthread_t thread;
    tw_status status;
    assert_int_equal(tw_allocate(1000, 1, &before), TW_OK);
    tw_memory_watch();
    assert_int_equal(tw_allocate(5 * HUGE_PAGE + 1, 1, &large), TW_OK);
    tw_memory_watch();
    assert_int_equal(tw_allocate(100, 3, &small), TW_OK);
    assert_int_equal(tw_memory_watched(), 5 * HUGE_PAGE + 1 + 300);
    tw_free(before); /* which is none of them */
    assert_int_equal(tw_resize(&small, 300, 20), TW_OK);
    assert_int_equal(pthread_create(&thread, NULL, allocate_once, &status), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(tw_memory_watched(), 5 * HUGE_PAGE + 1 + 20);
    for (size_t i = 0; i < MANY; i++) assert_int_equal(tw_allocate(i, 1, &many[i]), TW_OK);
    assert_int_equal(tw_memory_watched(), 5 * HUGE_PAGE + 1 + 20 + MANY * (MANY - 1) / 2);
    for (size_t i = 0; i < MANY; i++) tw_free(many[i]);
    tw_memory_unwatch();
    tw_free(large);
    assert_int_equal(tw_memory_watched(), 20);
    tw_memory_unwatch();
    assert_int_equal(tw_memory_watched(), 0);
    tw_free(small);
}

RUN_TESTS(NULL, NULL)
