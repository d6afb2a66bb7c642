#include "store.h"

#include "bytes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER = 32, CRC_AT = 24 };
static const unsigned char magic[4] = {'T', 'W', 'F', '1'};

/* ---- bytes ---- */

static uint32_t crc_of(const unsigned char header[HEADER], const void *bytes, size_t size)
{
    return tw_crc32c(tw_crc32c(0, header, CRC_AT), bytes, size);
}

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

/* ---- files ---- */

tw_status store_open(const char *path, store *at)
{
    at->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at->fd < 0)
        return tw_fail(TW_ERROR_IO, "%s cannot be opened: %s; want a folder that all machines share", path,
                       strerror(errno));
    at->path = strdup(path);
    if (at->path) return TW_OK;
    close(at->fd);
    return tw_fail(TW_ERROR_MEMORY, "no memory for the name of a folder");
}

void store_close(store *at)
{
    close(at->fd);
    free(at->path);
}

static int write_part(const store *at, const char *part, const unsigned char header[HEADER], const void *bytes,
                      size_t size)
{
    int fd = openat(at->fd, part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return 0;
    int whole = write_bytes(fd, header, HEADER) && write_bytes(fd, bytes, size), reason = errno;
    int closed = close(fd) == 0; /* where a file system over a network says that it is full */
    if (!whole) errno = reason;
    return whole && closed;
}

tw_status store_write(const store *at, const char *name, const store_header *header, const void *bytes)
{
    char part[STORE_NAME + 8];
    unsigned char head[HEADER] = {0};
    memcpy(head, magic, sizeof magic);
    tw_put(head + 4, header->check, 4);
    tw_put(head + 8, header->session, 8);
    tw_put(head + 16, header->size, 8);
    tw_put(head + CRC_AT, crc_of(head, bytes, header->size), 4);
    snprintf(part, sizeof part, ".%s.part", name);
    if (write_part(at, part, head, bytes, header->size) && renameat(at->fd, part, at->fd, name) == 0) return TW_OK;
    int reason = errno;
    store_remove(at, part);
    return tw_fail(TW_ERROR_IO, "%s/%s cannot be written: %s", at->path, name, strerror(reason));
}

static store_found read_open(int fd, void *bytes, size_t capacity, store_header *header)
{
    unsigned char head[HEADER];
    struct stat there;
    if (fstat(fd, &there) != 0 || !S_ISREG(there.st_mode) || !read_bytes(fd, head, HEADER)) return STORE_PARTIAL;
    *header = (store_header){(uint32_t)tw_get(head + 4, 4), tw_get(head + 8, 8), tw_get(head + 16, 8)};
    if (memcmp(head, magic, sizeof magic) != 0 || (uint64_t)there.st_size - HEADER != header->size)
        return STORE_PARTIAL;
    if (header->size > capacity) return STORE_LONG;
    if (!read_bytes(fd, bytes, header->size)) return STORE_PARTIAL;
    return crc_of(head, bytes, header->size) == tw_get(head + CRC_AT, 4) ? STORE_WHOLE : STORE_PARTIAL;
}

store_found store_read(const store *at, const char *name, void *bytes, size_t capacity, store_header *header)
{
    /* Not blocked by a pipe that somebody laid there. */
    int fd = openat(at->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT || errno == ESTALE ? STORE_ABSENT : STORE_PARTIAL;
    store_found found = read_open(fd, bytes, capacity, header);
    close(fd);
    return found;
}

void store_remove(const store *at, const char *name)
{
    unlinkat(at->fd, name, 0);
}

void store_remove_all(const store *at, const char *prefix)
{
    int fd = openat(at->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *all = fd >= 0 ? fdopendir(fd) : NULL;
    if (!all && fd >= 0) close(fd);
    for (struct dirent *one; all && (one = readdir(all));)
        if (strncmp(one->d_name, prefix, strlen(prefix)) == 0) store_remove(at, one->d_name);
    if (all) closedir(all);
}
