/* Files in a directory, each written under another name and renamed. */
#include "store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHORTEST_NAP 2e-5
#define LONGEST_NAP 0.2

typedef struct directory {
    int fd;
} directory;

static int write_bytes(int fd, const unsigned char *bytes, size_t size)
{
    while (size) {
        ssize_t written = write(fd, bytes, size);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return 0;
        bytes += written;
        size -= (size_t)written;
    }
    return 1;
}

static int read_bytes(int fd, unsigned char *bytes, size_t size)
{
    while (size) {
        ssize_t more = read(fd, bytes, size);
        if (more < 0 && errno == EINTR) continue;
        if (more <= 0) return 0;
        bytes += more;
        size -= (size_t)more;
    }
    return 1;
}

static void directory_remove(void *self, const char *name)
{
    const directory *me = self;
    unlinkat(me->fd, name, 0);
}

static int write_part(const directory *me, const char *part, const store_pieces *pieces)
{
    /* Neither is it blocked by a pipe: see directory_get. */
    int fd = openat(me->fd, part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0) return 0;
    int whole = write_bytes(fd, pieces->head, STORE_HEADER) && write_bytes(fd, pieces->bytes, pieces->size),
        reason = errno;
    int closed = close(fd) == 0; /* where a file system over a network says that it is full */
    if (!whole) errno = reason;
    return whole && closed;
}

static int directory_put(void *self, const char *name, const store_pieces *pieces, double seconds,
                         char reason[STORE_REASON])
{
    (void)seconds;
    const directory *me = self;
    char part[STORE_NAME + 8];
    snprintf(part, sizeof part, ".%s.part", name);
    if (write_part(me, part, pieces) && renameat(me->fd, part, me->fd, name) == 0) return 1;
    snprintf(reason, STORE_REASON, "%s", strerror(errno));
    directory_remove(self, part);
    return 0;
}

static store_found read_open(int fd, store_pieces *pieces)
{
    struct stat about;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size < STORE_HEADER) return STORE_PARTIAL;
    pieces->there = (uint64_t)about.st_size;
    uint64_t behind = pieces->there - STORE_HEADER;
    if (behind > pieces->size) behind = 0; /* it is too long, and none of it is wanted */
    return read_bytes(fd, pieces->head, STORE_HEADER) && read_bytes(fd, pieces->bytes, (size_t)behind) ? STORE_WHOLE
                                                                                                       : STORE_PARTIAL;
}

static store_found directory_get(void *self, const char *name, store_pieces *pieces, double seconds)
{
    (void)seconds;
    const directory *me = self;
    /* Not blocked by a pipe that somebody laid there. */
    int fd = openat(me->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT || errno == ESTALE ? STORE_ABSENT : STORE_PARTIAL;
    store_found found = read_open(fd, pieces);
    close(fd);
    return found;
}

static void directory_remove_all(void *self, const char *prefix)
{
    const directory *me = self;
    int fd = openat(me->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *all = fd >= 0 ? fdopendir(fd) : NULL;
    if (!all && fd >= 0) close(fd);
    for (struct dirent *one; all && (one = readdir(all));)
        if (strncmp(one->d_name, prefix, strlen(prefix)) == 0) directory_remove(self, one->d_name);
    if (all) closedir(all);
}

static void directory_tell(void *self, char reason[STORE_REASON])
{
    (void)self;
    *reason = 0;
}

static void directory_close(void *self)
{
    directory *me = self;
    close(me->fd);
    free(me);
}

tw_status store_open_directory(const char *path, store *at)
{
    static const store_ops ops = {.put = directory_put,
                                  .get = directory_get,
                                  .remove = directory_remove,
                                  .remove_all = directory_remove_all,
                                  .tell = directory_tell,
                                  .close = directory_close};
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return tw_fail(TW_ERROR_IO, "%s cannot be opened: %s; want a folder that all machines share", path,
                       strerror(errno));
    *at = (store){&ops, malloc(sizeof(directory)), strdup(path), SHORTEST_NAP, LONGEST_NAP};
    if (at->self && at->path) {
        ((directory *)at->self)->fd = fd;
        return TW_OK;
    }
    close(fd);
    free(at->self);
    free(at->path);
    return tw_fail(TW_ERROR_MEMORY, "no memory for the name of a folder");
}
