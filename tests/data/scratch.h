/* scratch.h - a folder of a test's own, and files in it. */
#ifndef TESTS_DATA_SCRATCH_H
#define TESTS_DATA_SCRATCH_H

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <thinwire/thinwire.h>

#include "dataset.h"

typedef struct blob {
    uint8_t bytes[32768];
    size_t size;
} blob;

enum { SCRATCH_PATH = 512 };
static char scratch[SCRATCH_PATH / 2]; /* the folder */

static inline int scratch_make(void **state)
{
    const char *root = getenv("TMPDIR");
    (void)state;
    snprintf(scratch, sizeof scratch, "%s/thinwire-data-XXXXXX", root ? root : "/tmp");
    return mkdtemp(scratch) ? 0 : -1;
}

static inline const char *scratch_path(const char *name)
{
    static char path[SCRATCH_PATH];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    return path;
}

static inline int scratch_remove(void **state)
{
    DIR *folder = opendir(scratch);
    (void)state;
    if (!folder) return -1;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] != '.') remove(scratch_path(entry->d_name));
    }
    closedir(folder);
    return rmdir(scratch);
}

static inline void scratch_write(const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(scratch_path(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* The load fails like that, names the file, says those words, and leaves nothing behind. */
static inline void assert_refused(tw_status status, const char *name, const char *words)
{
    dataset data;
    assert_int_equal(dataset_load(scratch, &data), status);
    if (!strstr(tw_last_error(), scratch_path(name)) || !strstr(tw_last_error(), words))
        fail_msg("\"%s\" should name %s and say \"%s\"", tw_last_error(), name, words);
    assert_null(strchr(tw_last_error(), '\n'));
    assert_null(data.train.pixels);
    assert_null(data.test.labels);
}

#endif
