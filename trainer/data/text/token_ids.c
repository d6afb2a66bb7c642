/* The format is NumPy Enhancement Proposal 1: a magic, a version, the length of the header, the header, which is a
 * dictionary in Python's words, and the numbers. */
#include "token_ids.h"

#include "error.h"
#include "file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BEFORE = 8, HEADER_MOST = 1024 /* bytes: of one dimension it is of 118 */ };

typedef struct number_type {
    const char *name;
    size_t bytes;
    bool has_sign;
} number_type;

static const number_type number_types[] = {
    {"|u1", 1, false}, {"<u2", 2, false}, {"<u4", 4, false}, {"<i4", 4, true}, {"<i8", 8, true}};

typedef struct number_array {
    const number_type *type;
    const uint8_t *numbers;
    size_t count;
} number_array;

static uint64_t read_little(const uint8_t *bytes, size_t size)
{
    uint64_t value = 0;
    while (size-- > 0) value = value << 8 | bytes[size];
    return value;
}

static int64_t number_at(const number_array *a, size_t index)
{
    const uint64_t bits = read_little(a->numbers + index * a->type->bytes, a->type->bytes);
    return a->type->has_sign && a->type->bytes == 4 ? (int32_t)bits : (int64_t)bits;
}

/* ---- the header -------------------------------------------------------------------------------------------------- */

static const number_type *find_type(const char *header)
{
    char name[8];
    const char *at = strstr(header, "'descr':");
    if (!at || sscanf(at, "'descr': '%7[^']'", name) != 1) return NULL;
    for (size_t i = 0; i < sizeof number_types / sizeof *number_types; i++)
        if (strcmp(name, number_types[i].name) == 0) return &number_types[i];
    return NULL;
}

static bool find_count(const char *header, size_t *count)
{
    char digits[20], end;
    const char *at = strstr(header, "'shape':");
    if (!at || sscanf(at, "'shape': (%19[0-9],%c", digits, &end) != 2 || end != ')') return false;
    *count = (size_t)strtoull(digits, NULL, 10);
    return true;
}

/* The header for find_type and find_count, and where the numbers begin; 0: there is none. */
static size_t read_header(const uint8_t *bytes, size_t size, char header[HEADER_MOST + 1])
{
    const size_t width = size > BEFORE && bytes[6] == 1 ? 2 : 4, begin = BEFORE + width;
    if (size < begin || memcmp(bytes, "\x93NUMPY", 6) != 0) return 0;
    const size_t length = (size_t)read_little(bytes + BEFORE, width);
    if (length > HEADER_MOST || length > size - begin) return 0;
    memcpy(header, bytes + begin, length);
    header[length] = 0;
    return begin + length;
}

static tw_status open_numbers(const char *path, const uint8_t *bytes, size_t size, number_array *a)
{
    char header[HEADER_MOST + 1];
    const size_t begin = read_header(bytes, size, header);
    if (begin == 0)
        return tw_fail(TW_ERROR_FORMAT,
                       "%s is no array that numpy.save wrote; --unit id reads the numbers of tokens from a .npy file",
                       path);
    a->type = find_type(header);
    a->numbers = bytes + begin;
    if (!a->type || !find_count(header, &a->count))
        return tw_fail(TW_ERROR_FORMAT,
                       "%s is not of one dimension, or its numbers are neither uint8 nor little-endian uint16, uint32, "
                       "int32 or int64; numpy.save the tokens of all texts one after the other, such as by "
                       ".astype(\"<u4\")",
                       path);
    if (a->count == 0) return tw_fail(TW_ERROR_FORMAT, "%s has no token", path);
    if ((size - begin) % a->type->bytes == 0 && (size - begin) / a->type->bytes == a->count) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "%s is damaged: its header tells of %zu numbers, and %zu bytes follow", path,
                   a->count, size - begin);
}

/* ---- the numbers ------------------------------------------------------------------------------------------------- */

static tw_status take_numbers(const char *path, const number_array *a, size_t types, uint32_t *ids)
{
    for (size_t i = 0; i < a->count; i++) {
        const int64_t number = number_at(a, i);
        if (number < 0 || (uint64_t)number >= types)
            return tw_fail(TW_ERROR_FORMAT, "%s: its token %zu is %lld; there are tokens 0 to %zu", path, i,
                           (long long)number, types - 1);
        ids[i] = (uint32_t)number;
    }
    return TW_OK;
}

static tw_status read_bytes(const char *path, const uint8_t *bytes, size_t size, size_t types, number_array *a,
                            uint32_t **ids)
{
    TW_TRY(open_numbers(path, bytes, size, a));
    uint32_t *taken = malloc(a->count * sizeof *taken);
    if (!taken) return tw_fail(TW_ERROR_MEMORY, "%s: no memory for its %zu tokens", path, a->count);
    tw_status status = take_numbers(path, a, types, taken);
    if (status == TW_OK)
        *ids = taken;
    else
        free(taken);
    return status;
}

tw_status token_ids_read(const char *path, size_t types, uint32_t **ids, size_t *count)
{
    uint8_t *bytes;
    size_t size;
    number_array a = {0};
    TW_TRY(file_read(path, &bytes, &size));
    tw_status status = read_bytes(path, bytes, size, types, &a, ids);
    free(bytes);
    *count = a.count;
    return status;
}
