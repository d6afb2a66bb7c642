/* store.h - files in a shared folder that are whole or not there, whatever brings them: each has its length and
 * checksum.
 *
 * A file is 32 bytes, little-endian, and what they tell of: "TWF1", a word of the caller's, the session, the bytes that
 * follow, CRC-32C of all before and all behind it, zeros. It is written under another name and renamed. What copies
 * folders between machines may show a part of it even so, which is a file that has not come yet. */
#ifndef TW_COMM_FOLDER_STORE_H
#define TW_COMM_FOLDER_STORE_H

#include <thinwire/thinwire_plugin.h>

enum { STORE_NAME = 96 };

typedef struct store {
    int fd;
    char *path;
} store;

typedef struct store_header {
    uint32_t check;   /* the caller's word */
    uint64_t session; /* whose file it is */
    uint64_t size;    /* bytes behind the header */
} store_header;

typedef enum store_found {
    STORE_ABSENT,
    STORE_PARTIAL, /* there, and not whole */
    STORE_WHOLE,
    STORE_LONG, /* more than there is room for; nothing of it was read */
} store_found;

/* TW_ERROR_IO: there is no such folder. */
tw_status store_open(const char *path, store *at);
void store_close(store *at);

/* TW_ERROR_IO names the file and the reason. */
tw_status store_write(const store *at, const char *name, const store_header *header, const void *bytes);
/* Reads at most `capacity` bytes; `bytes` may be overwritten even where the file is not whole. */
store_found store_read(const store *at, const char *name, void *bytes, size_t capacity, store_header *header);
void store_remove(const store *at, const char *name);
/* Removes all whose names begin like that. */
void store_remove_all(const store *at, const char *prefix);

#endif
