/* folder.h - a folder of the test's own, below TMPDIR, and files in it. */
#ifndef TESTS_SUPPORT_FOLDER_H
#define TESTS_SUPPORT_FOLDER_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/cmocka.h"

enum { TEST_PATH = 512 };
static char test_folder[TEST_PATH / 2];

/* For a test and for whole groups: *state is the folder's path too. */
static inline int make_folder(void **state)
{
    const char *root = getenv("TMPDIR");
    snprintf(test_folder, sizeof test_folder, "%s/thinwire-test-XXXXXX", root ? root : "/tmp");
    *state = mkdtemp(test_folder);
    return *state ? 0 : -1;
}

static inline int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about, (void)kind, (void)place;
    return remove(path);
}

static inline int remove_folder(void **state)
{
    return nftw(test_folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

#define TEST_IN_FOLDER(name) TEST_BETWEEN(name, make_folder, remove_folder)

/* The path of a name in the folder; the last four stay good. */
static inline const char *in_folder(const char *name)
{
    static char paths[4][TEST_PATH];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, TEST_PATH, "%s/%s", test_folder, name);
    return path;
}

/* With the folder before its last slash, of which those above must be there. */
static inline const char *make_parent(const char *name)
{
    char parent[TEST_PATH];
    const char *path = in_folder(name);
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(path, '/') - path), path);
    mkdir(parent, 0700);
    return path;
}

static inline void write_bytes(const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(make_parent(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static inline void write_text(const char *name, const char *text)
{
    write_bytes(name, text, strlen(text));
}

/* The whole of a small file; the caller frees it. */
static inline unsigned char *read_whole(const char *name, size_t *size)
{
    enum { MOST = 1 << 20 };
    unsigned char *bytes = malloc(MOST);
    FILE *file = fopen(in_folder(name), "rb");
    assert_non_null(bytes);
    assert_non_null(file);
    *size = fread(bytes, 1, MOST, file);
    fclose(file);
    return bytes;
}

#endif
