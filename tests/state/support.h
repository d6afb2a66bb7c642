/* support.h - a folder of the test's own, files in it, and a state with everything in it. */
#ifndef TEST_STATE_SUPPORT_H
#define TEST_STATE_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire.h>
#include <unistd.h>

/* cmocka's set-up: an empty folder, which is *state. */
static inline int make_folder(void **state)
{
    const char *parent = getenv("TMPDIR");
    char *folder = malloc(4096);
    if (!folder) return -1;
    snprintf(folder, 4096, "%s/thinwire-state-XXXXXX", parent ? parent : "/tmp");
    *state = folder;
    return mkdtemp(folder) ? 0 : -1;
}

/* Visits what is in the folder; removes it too when told. Returns how many entries there were. */
static inline int walk_folder(const char *folder, int removing)
{
    char path[8192];
    int count = 0;
    DIR *listing = opendir(folder);
    if (!listing) return -1;
    for (struct dirent *entry; (entry = readdir(listing));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (removing) remove(path);
        count++;
    }
    closedir(listing);
    return count;
}

static inline int remove_folder(void **state)
{
    walk_folder(*state, 1);
    int failed = rmdir(*state);
    free(*state);
    return failed;
}

/* A path in the test's folder; one at a time. */
static inline const char *in_folder(void **state, const char *name)
{
    static char path[8192];
    snprintf(path, sizeof path, "%s/%s", (const char *)*state, name);
    return path;
}

static inline void write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* The whole file; the caller frees it. */
static inline unsigned char *read_file(const char *path, size_t *size)
{
    enum { MOST = 1 << 20 };
    unsigned char *bytes = malloc(MOST);
    FILE *file = fopen(path, "rb");
    assert_non_null(bytes);
    assert_non_null(file);
    *size = fread(bytes, 1, MOST, file);
    fclose(file);
    return bytes;
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
