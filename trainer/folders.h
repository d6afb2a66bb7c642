/* folders.h - making folders, for all layers. */
#ifndef TRAINER_FOLDERS_H
#define TRAINER_FOLDERS_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDERS_PATH = 4096 + 256 };

/* Makes what was renamed, made or removed in a folder last through a power cut. Some file systems cannot sync a folder:
 * that is no failure of ours. */
static inline void folders_sync(const char *path)
{
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return;
    fsync(descriptor);
    close(descriptor);
}

/* The same of the folder that `path` lies in. */
static inline void folders_sync_parent(const char *path)
{
    char parent[FOLDERS_PATH];
    size_t length = strlen(path);
    while (length > 0 && path[length - 1] == '/') length--;
    while (length > 0 && path[length - 1] != '/') length--;
    snprintf(parent, sizeof parent, "%.*s", (int)length, path);
    folders_sync(length > 0 ? parent : ".");
}

static inline int folders_make_one(const char *path)
{
    struct stat about;
    if (mkdir(path, 0777) == 0) {
        folders_sync_parent(path);
        return 0;
    }
    int error = errno;
    if (stat(path, &about) != 0) return error;
    return S_ISDIR(about.st_mode) ? 0 : ENOTDIR;
}

/* Makes the folder, and those that it lies in. 0, or the errno of what keeps it from being there, and `part` is then
 * the folder that it kept: ENOTDIR where something else has that name. */
static inline int folders_make(const char *path, char part[FOLDERS_PATH])
{
    int error = 0;
    if (snprintf(part, FOLDERS_PATH, "%s", path) >= FOLDERS_PATH) return ENAMETOOLONG;
    for (char *slash = *part ? strchr(part + 1, '/') : NULL; slash && !error; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        error = folders_make_one(part);
        if (!error) *slash = '/';
    }
    return error ? error : folders_make_one(part);
}

#endif
