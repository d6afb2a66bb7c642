#include "store.h"

#include "bytes.h"

#include <stdlib.h>
#include <string.h>

enum { CRC_AT = 24 };
static const unsigned char magic[4] = {'T', 'W', 'F', '1'};

static uint32_t crc_of(const unsigned char header[STORE_HEADER], const void *bytes, size_t size)
{
    return tw_crc32c(tw_crc32c(0, header, CRC_AT), bytes, size);
}

tw_status store_open(const char *path, store *at)
{
    return store_is_http(path) ? store_open_http(path, at) : store_open_directory(path, at);
}

void store_close(store *at)
{
    at->ops->close(at->self);
    free(at->path);
}

tw_status store_write(const store *at, const char *name, const store_header *header, const void *bytes, double seconds)
{
    char reason[STORE_REASON];
    store_pieces pieces = {.bytes = (void *)(uintptr_t)bytes, .size = (size_t)header->size};
    memcpy(pieces.head, magic, sizeof magic);
    tw_put(pieces.head + 4, header->check, 4);
    tw_put(pieces.head + 8, header->session, 8);
    tw_put(pieces.head + 16, header->size, 8);
    tw_put(pieces.head + CRC_AT, crc_of(pieces.head, bytes, pieces.size), 4);
    if (at->ops->put(at->self, name, &pieces, seconds, reason)) return TW_OK;
    return tw_fail(TW_ERROR_IO, "%s/%s cannot be written: %s", at->path, name, reason);
}

store_found store_read(const store *at, const char *name, void *bytes, size_t capacity, double seconds,
                       store_header *header)
{
    store_pieces pieces = {.bytes = bytes, .size = capacity};
    const unsigned char *head = pieces.head;
    store_found found = at->ops->get(at->self, name, &pieces, seconds);
    if (found != STORE_WHOLE && found != STORE_LONG) return found;
    *header = (store_header){(uint32_t)tw_get(head + 4, 4), tw_get(head + 8, 8), tw_get(head + 16, 8)};
    if (pieces.there < STORE_HEADER || memcmp(head, magic, sizeof magic) != 0) return STORE_PARTIAL;
    if (found == STORE_WHOLE && pieces.there - STORE_HEADER != header->size) return STORE_PARTIAL;
    if (header->size > capacity) return STORE_LONG;
    if (found == STORE_LONG) return STORE_PARTIAL; /* more than it says itself */
    return crc_of(head, bytes, (size_t)header->size) == tw_get(head + CRC_AT, 4) ? STORE_WHOLE : STORE_PARTIAL;
}
