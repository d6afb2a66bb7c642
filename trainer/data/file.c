#include "file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <thinwire/thinwire_plugin.h>
#include <unistd.h>
#include <zlib.h>

#include "error.h"
#include "regular_file.h"

static const size_t first_capacity = (size_t)1 << 16;
static const size_t most_of_data = (size_t)1 << 31;

const char *file_path(char path[FILE_PATH_MOST], const char *folder, const char *name)
{
    snprintf(path, FILE_PATH_MOST, "%s/%s", folder, name);
    return path;
}

bool file_exists(const char *folder, const char *name)
{
    char path[FILE_PATH_MOST];
    return access(file_path(path, folder, name), F_OK) == 0;
}

static tw_status refuse_stream(const char *path, gzFile stream)
{
    int code;
    const char *text = gzerror(stream, &code);
    if (code == Z_ERRNO) return tw_fail(TW_ERROR_IO, "%s: cannot read it: %s", path, strerror(errno));
    if (code == Z_MEM_ERROR) return tw_fail(TW_ERROR_MEMORY, "%s: no memory to unpack it", path);
    if (code == Z_BUF_ERROR) return tw_fail(TW_ERROR_FORMAT, "%s: the gzip data end too early; is it truncated?", path);
    return tw_fail(TW_ERROR_FORMAT, "%s: the gzip data are damaged (%s)", path, text);
}

/* Doubles the buffer: its size follows what was read, never what a header promises. There is room for one byte more
 * than may come, by which one sees that the file does not end there. */
static tw_status file_grow(const char *path, size_t most, uint8_t **bytes, size_t *capacity)
{
    size_t wanted = *capacity ? 2 * *capacity : first_capacity;
    if (*capacity > most)
        return tw_fail(TW_ERROR_FORMAT, "%s: larger than %zu MiB, the most a data file may hold", path, most >> 20);
    if (wanted > most) wanted = most + 1;
    uint8_t *grown = realloc(*bytes, wanted);
    if (!grown) return tw_fail(TW_ERROR_MEMORY, "%s: no memory for %zu MiB of it", path, wanted >> 20);
    *bytes = grown;
    *capacity = wanted;
    return TW_OK;
}

/* On failure too, *bytes is what the caller has to free. */
static tw_status read_stream(const char *path, gzFile stream, size_t most, uint8_t **bytes, size_t *size)
{
    size_t capacity = 0;
    int code, got = 1;
    for (; got > 0; *size += (size_t)got) {
        if (*size == capacity) TW_TRY(file_grow(path, most, bytes, &capacity));
        got = gzread(stream, *bytes + *size, (unsigned)(capacity - *size)); /* at most 1 GiB: half of the buffer */
        if (got < 0) return refuse_stream(path, stream);
    }
    gzerror(stream, &code); /* gzread reports a truncated file as the end of it */
    if (code != Z_OK) return refuse_stream(path, stream);
    return *size ? TW_OK : tw_fail(TW_ERROR_FORMAT, "%s: empty", path);
}

tw_status file_read_up_to(const char *path, size_t most, uint8_t **bytes, size_t *size)
{
    int descriptor = -1;
    uint8_t *buffer = NULL;
    size_t count = 0;
    TW_TRY(regular_file_open(path, O_RDONLY, &descriptor));
    gzFile stream = gzdopen(descriptor, "rb"); /* which reads files without gzip's mark as they are */
    if (!stream) {
        close(descriptor);
        return tw_fail(TW_ERROR_MEMORY, "%s: no memory to read it", path);
    }
    gzbuffer(stream, 1 << 17);
    tw_status status = read_stream(path, stream, most, &buffer, &count);
    gzclose_r(stream);
    if (status != TW_OK) {
        free(buffer);
        return status;
    }
    *bytes = buffer;
    *size = count;
    return TW_OK;
}

tw_status file_read(const char *path, uint8_t **bytes, size_t *size)
{
    return file_read_up_to(path, most_of_data, bytes, size);
}

/* ---- what tells lists of files apart ----------------------------------------------------------------------------- */

enum { PART = 4096, PARTS = 4, SAMPLE = 10000 };

static uint32_t sum_part(uint32_t sum, int file, off_t at)
{
    uint8_t bytes[PART];
    ssize_t got = pread(file, bytes, sizeof bytes, at);
    return got > 0 ? tw_crc32c(sum, bytes, (size_t)got) : sum;
}

/* The first part of it, the last one, and what lies between at the same distance. A small file is all of that. */
static uint32_t sum_parts(uint32_t sum, int file, off_t size)
{
    const off_t part = PART, all = part * PARTS;
    off_t last = size > all ? size - part : all - part;
    for (int i = 0; i < PARTS; i++) sum = sum_part(sum, file, last * i / (PARTS - 1));
    return sum;
}

uint32_t file_sum(uint32_t sum, const char *path, bool reads)
{
    struct stat about;
    int file = -1;
    int64_t size = path && stat(path, &about) == 0 ? (int64_t)about.st_size : -1;
    sum = tw_crc32c(sum, &size, sizeof size);
    if (!reads || size <= 0 || !S_ISREG(about.st_mode)) return sum;
    if (regular_file_open(path, O_RDONLY, &file) != TW_OK) return sum; /* whoever reads it will say so */
    sum = sum_parts(sum, file, about.st_size);
    close(file);
    return sum;
}

bool file_is_sampled(size_t index, size_t count)
{
    return count <= SAMPLE || index * SAMPLE / count != (index + 1) * SAMPLE / count;
}
