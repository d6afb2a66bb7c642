/* store.h - files that several machines share, whole or not there, whatever brings them: each has its length and
 * checksum.
 *
 * A file is 32 bytes, little-endian, and what they tell of: "TWF1", a word of the caller's, the session, the bytes that
 * follow, CRC-32C of all before and all behind it, zeros. What copies folders between machines may show a part of it,
 * which is a file that has not come yet. Where files lie is one of two: a directory, or a place on a web server. */
#ifndef TW_COMM_FOLDER_STORE_H
#define TW_COMM_FOLDER_STORE_H

#include <thinwire/thinwire_plugin.h>

enum { STORE_NAME = 96, STORE_HEADER = 32, STORE_REASON = 256 };

typedef enum store_found {
    STORE_ABSENT,
    STORE_PARTIAL, /* there, and not whole */
    STORE_WHOLE,
    STORE_LONG, /* more than there is room for */
} store_found;

/* A file's two pieces. When it is read, `size` is the room for the second, and `there` becomes what both have. */
typedef struct store_pieces {
    unsigned char head[STORE_HEADER];
    void *bytes;
    size_t size;
    uint64_t there;
} store_pieces;

typedef struct store_ops {
    /* Puts a file in its place, whole; 0: `reason` says why not. Whoever stands still is waited for `seconds`, and a
     * little. */
    int (*put)(void *self, const char *name, const store_pieces *pieces, double seconds, char reason[STORE_REASON]);
    /* STORE_WHOLE: as much of it as there is room for; what it is, is not looked at. STORE_LONG: the same, and there is
     * more of it than there is room for, but nobody says how much. */
    store_found (*get)(void *self, const char *name, store_pieces *pieces, double seconds);
    void (*remove)(void *self, const char *name);
    /* All whose names begin like that, where names can be listed. */
    void (*remove_all)(void *self, const char *prefix);
    /* Why files may not have come, behind a sentence: "" or " (...)". */
    void (*tell)(void *self, char reason[STORE_REASON]);
    void (*close)(void *self);
} store_ops;

typedef struct store {
    const store_ops *ops;
    void *self;
    char *path;                       /* for people: without what is secret in it */
    double shortest_nap, longest_nap; /* seconds between two looks */
} store;

typedef struct store_header {
    uint32_t check;   /* the caller's word */
    uint64_t session; /* whose file it is */
    uint64_t size;    /* bytes behind the header */
} store_header;

/* A directory, or a place that begins with http://, https://, s3+http:// or s3+https://. TW_ERROR_IO: there is no such
 * folder. */
tw_status store_open(const char *path, store *at);
void store_close(store *at);

/* A server that stands still is waited for `seconds`, and a little. TW_ERROR_IO names the file and the reason. */
tw_status store_write(const store *at, const char *name, const store_header *header, const void *bytes, double seconds);
/* Reads at most `capacity` bytes; `bytes` may be overwritten even where the file is not whole. */
store_found store_read(const store *at, const char *name, void *bytes, size_t capacity, double seconds,
                       store_header *header);

/* The two. They set ops, self and the naps; the path is set. */
tw_status store_open_directory(const char *path, store *at);
tw_status store_open_http(const char *url, store *at);
int store_is_http(const char *path);

#endif
