/* support.h - a folder of the test's own, and a state with everything in it. */
#ifndef TEST_STATE_SUPPORT_H
#define TEST_STATE_SUPPORT_H

#include <dirent.h>
#include <thinwire/thinwire.h>

#include "support/folder.h"

static inline size_t entries_in_folder(void)
{
    size_t count = 0;
    DIR *listing = opendir(test_folder);
    assert_non_null(listing);
    for (struct dirent *entry; (entry = readdir(listing));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(listing);
    return count;
}

/* Every type, a scalar, empty tensors, eight dimensions, and names and texts that need escapes. */
static inline tw_state *make_everything(void)
{
    static const unsigned char bytes[] = {1, 2, 3, 0, 255};
    static const float singles[] = {0, -0.0f, 1.5f, -3e38f, 1e-45f, 7};
    static const double doubles[] = {1e-300, -2};
    static const int32_t ints[] = {INT32_MIN, 7};
    static const int64_t longs[] = {INT64_MIN};
    static const uint32_t words[] = {0xFFFFFFFF, 1};
    static const uint64_t wides[] = {UINT64_MAX};
    static const uint16_t halves[] = {0x8001, 0x7C00}, brains[] = {0x7FC1, 0xBF80};
    static const size_t five[] = {5}, two[] = {2}, matrix[] = {1, 2, 3}, none[] = {3, 0, 2};
    static const size_t eight[] = {1, 1, 2, 1, 1, 1, 1, 1};
    tw_state *made;
    assert_int_equal(tw_state_create(&made), TW_OK);
    assert_int_equal(tw_state_put(made, "bytes", TW_U8, 1, five, bytes), TW_OK);
    assert_int_equal(tw_state_put(made, "layer.0/weight", TW_F32, 3, matrix, singles), TW_OK);
    assert_int_equal(tw_state_put(made, "double \"quoted\" \\ \n\t\x01\x7f", TW_F64, 8, eight, doubles), TW_OK);
    assert_int_equal(tw_state_put(made, "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", TW_I32, 1, two, ints), TW_OK);
    assert_int_equal(tw_state_put(made, "scalar", TW_I64, 0, NULL, longs), TW_OK);
    assert_int_equal(tw_state_put(made, "", TW_U32, 1, two, words), TW_OK);
    assert_int_equal(tw_state_put(made, "empty", TW_F32, 3, none, NULL), TW_OK);
    assert_int_equal(tw_state_put(made, "wide", TW_U64, 0, NULL, wides), TW_OK);
    assert_int_equal(tw_state_put(made, "half", TW_F16, 1, two, halves), TW_OK);
    assert_int_equal(tw_state_put(made, "brain", TW_BF16, 1, two, brains), TW_OK);
    assert_int_equal(tw_state_put_text(made, "step", "12"), TW_OK);
    assert_int_equal(tw_state_put_text(made, "k\"\\\xc3\xb6", "line\nline\t\x1f \xf0\x9f\x98\x80"), TW_OK);
    assert_int_equal(tw_state_put_text(made, "", ""), TW_OK);
    return made;
}

static inline void assert_same_state(const tw_state *left, const tw_state *right)
{
    static const char *const keys[] = {"step", "k\"\\\xc3\xb6", ""};
    assert_int_equal(tw_state_count(left), tw_state_count(right));
    for (size_t i = 0; i < tw_state_count(left); i++) {
        tw_state_entry a, b;
        assert_int_equal(tw_state_at(left, i, &a), TW_OK);
        assert_int_equal(tw_state_at(right, i, &b), TW_OK);
        assert_string_equal(a.name, b.name);
        assert_int_equal(a.dtype, b.dtype);
        assert_int_equal(a.dims, b.dims);
        assert_memory_equal(a.shape, b.shape, a.dims * sizeof *a.shape);
        assert_int_equal(a.bytes, b.bytes);
        assert_memory_equal(a.data, b.data, a.bytes);
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_string_equal(tw_state_text(left, keys[i]), tw_state_text(right, keys[i]));
}

#endif
