/* Room for features, in memory and in a file behind it. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "row_store.h"
#include "support/cmocka.h"

#define ROWS ((size_t)4096) /* of a take, in floats */

static void fill(float *rows, size_t count, float value)
{
    for (size_t i = 0; i < count; i++) rows[i] = value + (float)i;
}

static int holds(const float *rows, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        if (rows[i] != value + (float)i) return 0;
    return 1;
}

/* Of all sizes, on both sides of the limit and of the ends of pieces. */
TEST(what_is_written_is_there)
{
    enum { TAKES = 3000 };
    static float *taken[TAKES];
    row_store *store;
    size_t sum = 0;
    assert_int_equal(row_store_create((size_t)8 << 20, "--limit", &store), TW_OK);
    for (size_t i = 0; i < TAKES; i++) {
        size_t count = 1 + i * 7919 % (2 * ROWS);
        assert_int_equal(row_store_take(store, count, &taken[i]), TW_OK);
        fill(taken[i], count, (float)i);
        sum += count * sizeof(float);
    }
    for (size_t i = 0; i < TAKES; i++) assert_true(holds(taken[i], 1 + i * 7919 % (2 * ROWS), (float)i));
    assert_true(row_store_filed(store) >= sum - ((size_t)8 << 20) && row_store_filed(store) < sum);
    row_store_destroy(store);
}

/* Larger than any piece. */
TEST(one_may_be_large)
{
    size_t count = (size_t)20 << 20;
    float *small, *large;
    row_store *store;
    assert_int_equal(row_store_create(1000, "--limit", &store), TW_OK);
    assert_int_equal(row_store_take(store, 250, &small), TW_OK);
    assert_int_equal(row_store_filed(store), 0);
    assert_int_equal(row_store_take(store, count, &large), TW_OK);
    large[0] = large[count - 1] = 1;
    assert_int_equal(row_store_filed(store), count * sizeof(float));
    row_store_destroy(store);
    row_store_destroy(NULL);
}

/* A file may be no larger, as on a full disk: that is an error, and no signal. */
TEST(a_full_disk_is_told)
{
    struct rlimit before, small;
    float *rows;
    row_store *store;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){(rlim_t)1 << 20, before.rlim_max};
    assert_int_equal(row_store_create(0, "--limit", &store), TW_OK);
    assert_ptr_not_equal(signal(SIGXFSZ, SIG_IGN), SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    tw_status status = row_store_take(store, ROWS, &rows);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, TW_ERROR_IO);
    assert_non_null(strstr(tw_last_error(), "--limit keeps more of them in memory"));
    row_store_destroy(store);
}

TEST(a_folder_that_is_not_there_is_told)
{
    float *rows;
    row_store *store;
    assert_int_equal(row_store_create(0, "--limit", &store), TW_OK);
    assert_int_equal(setenv("TMPDIR", "/nowhere", 1), 0);
    assert_int_equal(row_store_take(store, ROWS, &rows), TW_ERROR_IO);
    assert_non_null(strstr(tw_last_error(), "/nowhere"));
    assert_int_equal(unsetenv("TMPDIR"), 0);
    row_store_destroy(store);
}

RUN_TESTS(NULL, NULL)
