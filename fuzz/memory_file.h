/* memory_file.h - the bytes of an input as a file, for readers that take a path. */
#ifndef TW_FUZZ_MEMORY_FILE_H
#define TW_FUZZ_MEMORY_FILE_H

#include "fuzz.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* The path of a file in memory that holds these bytes until the next call. */
static inline const char *file_of(const uint8_t *data, size_t size)
{
    static int descriptor = -1;
    static char path[32];
    if (descriptor < 0) descriptor = memfd_create("input", MFD_CLOEXEC);
    must(descriptor >= 0 && ftruncate(descriptor, 0) == 0);
    must(pwrite(descriptor, data, size, 0) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    return path;
}

#endif
