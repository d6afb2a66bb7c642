/* How much of a file is read, and what tells lists of files apart. */
#include "file.h"
#include "support/assert.h"
#include "support/folder.h"

enum { LARGE = 100000, SMALL = 16384 };

static uint8_t bytes[LARGE];

static uint32_t sum_of(size_t size, bool reads)
{
    write_bytes("file", bytes, size);
    return file_sum(0, in_folder("file"), reads);
}

static bool is_noticed(size_t size, size_t at)
{
    uint32_t before = sum_of(size, true);
    bytes[at] ^= 1;
    uint32_t after = sum_of(size, true);
    bytes[at] ^= 1;
    return before != after;
}

TEST(every_byte_of_a_small_file_counts)
{
    for (size_t size = 1; size <= SMALL; size = 2 * size + 1 > SMALL && size < SMALL ? SMALL : 2 * size + 1)
        for (size_t at = 0; at < size; at += 1 + at / 2) {
            assert_true(is_noticed(size, at));
            assert_true(is_noticed(size, size - 1 - at));
        }
}

TEST(a_large_file_counts_in_four_places)
{
    assert_true(is_noticed(LARGE, 0) && is_noticed(LARGE, LARGE - 1));
    assert_true(is_noticed(LARGE, LARGE / 3) && is_noticed(LARGE, LARGE * 2 / 3));
    assert_false(is_noticed(LARGE, LARGE / 2)); /* 84 KiB are not read */
    assert_int_not_equal(sum_of(LARGE, true), sum_of(LARGE - 1, true));
}

TEST(sizes_count_where_nothing_is_read)
{
    uint32_t before = sum_of(100, false);
    bytes[50] ^= 1;
    assert_int_equal(sum_of(100, false), before);
    bytes[50] ^= 1;
    assert_int_not_equal(sum_of(101, false), before);
}

/* None is no file, and a file that is missing, and a folder are told apart from files. */
TEST(what_is_no_file_counts_as_well)
{
    uint32_t none = file_sum(0, NULL, true);
    assert_int_equal(file_sum(0, in_folder("missing"), true), none);
    assert_int_not_equal(sum_of(1, true), none);
    assert_int_not_equal(file_sum(0, test_folder, true), none);
    assert_int_not_equal(file_sum(none, NULL, true), none);
}

TEST(a_sample_is_spread_over_the_list)
{
    for (size_t count = 1; count < 2000000; count = 3 * count + 1) {
        size_t taken = 0, last = 0, widest = 0;
        for (size_t i = 0; i < count; i++) {
            if (!file_is_sampled(i, count)) continue;
            taken++;
            if (i - last > widest) widest = i - last;
            last = i;
        }
        assert_int_equal(taken, count < 10000 ? count : 10000);
        assert_true(widest <= count / 10000 + 1 && count - last <= count / 10000 + 1);
    }
}

TEST(a_file_may_be_as_large_as_is_allowed)
{
    uint8_t *read = NULL;
    size_t size = 0;
    for (size_t most = SMALL; most <= 6 * SMALL; most += SMALL) { /* the buffer has four times that at first */
        write_bytes("file", bytes, most + 1);
        assert_fails(file_read_up_to(in_folder("file"), most, &read, &size), TW_ERROR_FORMAT, "larger than");
        write_bytes("file", bytes, most);
        assert_ok(file_read_up_to(in_folder("file"), most, &read, &size));
        assert_int_equal(size, most);
        free(read);
    }
}

RUN_TESTS(make_folder, remove_folder)
