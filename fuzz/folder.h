/* folder.h - a folder for readers that take one, or several files. It is gone when the program ends. */
#ifndef TW_FUZZ_FOLDER_H
#define TW_FUZZ_FOLDER_H

#include "fuzz.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FUZZ_FOLDER = 1024, FUZZ_PATH = FUZZ_FOLDER + 512 };
static char fuzz_folder[FUZZ_FOLDER];

static inline int remove_one(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about, (void)kind, (void)place;
    return remove(path);
}

static inline void remove_folder(void)
{
    nftw(fuzz_folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static inline void make_folder(void)
{
    const char *root = getenv("TMPDIR");
    if (*fuzz_folder) return;
    snprintf(fuzz_folder, sizeof fuzz_folder, "%s/fuzz-XXXXXX", root ? root : "/tmp");
    must(mkdtemp(fuzz_folder) != NULL && atexit(remove_folder) == 0);
}

/* The path of a name in it, good until the next call. */
static inline const char *in_folder(const char *name)
{
    static char path[FUZZ_PATH];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder, name);
    return path;
}

/* 0 if the file system refuses the name. */
static inline int write_file(const char *name, const void *data, size_t size)
{
    int descriptor = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (descriptor < 0) return 0;
    must(write(descriptor, data, size) == (ssize_t)size);
    return close(descriptor) == 0;
}

#endif
