/* regular_file.h - opening files by paths that a person gave.
 *
 * What stands at such a path may be a pipe, a device or a folder. Opening a pipe waits for somebody at its other end,
 * for ever if nobody comes; so every file is opened without waiting, and what is no regular file is refused. Here and
 * not in a layer, because every layer that reads or writes files needs it. */
#ifndef TRAINER_REGULAR_FILE_H
#define TRAINER_REGULAR_FILE_H

#include "error.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What cannot be looked at, as in a folder that may not be entered, counts as there. */
static inline int path_exists(const char *path)
{
    return access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

static inline int path_is_folder(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* ENXIO: a pipe that nobody reads, opened for writing. */
static inline tw_status regular_file_refuse(const char *path, int error)
{
    return error == 0 || error == ENXIO || error == EISDIR
               ? tw_fail(TW_ERROR_IO, "%s: cannot open it: not a regular file", path)
               : tw_fail(TW_ERROR_IO, "%s: cannot open it: %s", path, strerror(error));
}

/* As open() does it. TW_ERROR_IO names the path. */
static inline tw_status regular_file_open(const char *path, int flags, int *descriptor)
{
    struct stat about;
    int opened = open(path, flags | O_NONBLOCK | O_CLOEXEC, 0666);
    if (opened < 0) return regular_file_refuse(path, errno);
    if (fstat(opened, &about) == 0 && S_ISREG(about.st_mode)) {
        *descriptor = opened;
        return TW_OK;
    }
    close(opened);
    return regular_file_refuse(path, 0);
}

/* As fopen() does it; `mode` is "r", "w", "a" or "a+". */
static inline tw_status regular_file_stream(const char *path, const char *mode, FILE **stream)
{
    int descriptor = -1, writes = *mode == 'r' ? O_RDONLY : mode[1] == '+' ? O_RDWR : O_WRONLY;
    int makes = *mode == 'r' ? 0 : O_CREAT | (*mode == 'w' ? O_TRUNC : O_APPEND);
    TW_TRY(regular_file_open(path, writes | makes, &descriptor));
    *stream = fdopen(descriptor, mode);
    if (*stream) return TW_OK;
    close(descriptor);
    return tw_fail(TW_ERROR_MEMORY, "%s: no memory to open it", path);
}

#endif
