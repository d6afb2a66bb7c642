#include "row_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "error.h"

/* Of a piece, at least; a whole number of pages of every system. */
#define HELD_PIECE ((size_t)4 << 20)
#define FILED_PIECE ((size_t)64 << 20)
#define PAGE ((size_t)64 << 10)

typedef struct piece {
    struct piece *next;
    unsigned char *bytes;
    size_t size, used;
    bool filed;
} piece;

struct row_store {
    size_t most, held; /* bytes of pieces in memory */
    size_t end, filed; /* of the file, and what was taken of it */
    const char *option;
    int file; /* -1: none is needed so far */
    piece *last;
};

tw_status row_store_create(size_t most_bytes, const char *option, row_store **store)
{
    *store = malloc(sizeof **store);
    if (!*store) return tw_fail(TW_ERROR_MEMORY, "no memory for features");
    **store = (row_store){.most = most_bytes, .option = option, .file = -1};
    return TW_OK;
}

void row_store_destroy(row_store *store)
{
    if (!store) return;
    for (piece *one = store->last, *next; one; one = next) {
        next = one->next;
        if (one->filed)
            munmap(one->bytes, one->size);
        else
            free(one->bytes);
        free(one);
    }
    if (store->file >= 0) close(store->file);
    free(store);
}

size_t row_store_filed(const row_store *store)
{
    return store->filed;
}

/* --- the file ------------------------------------------------------------------------------------------------- */

static const char *folder(void)
{
    const char *chosen = getenv("TMPDIR");
    return chosen && *chosen ? chosen : "/tmp";
}

/* Not every file system makes files that never had a name. */
static int open_nameless(void)
{
    char path[4096];
    int file = open(folder(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file >= 0) return file;
    if (snprintf(path, sizeof path, "%s/thinwire-XXXXXX", folder()) >= (int)sizeof path) return -1;
    file = mkostemp(path, O_CLOEXEC);
    if (file >= 0) unlink(path);
    return file;
}

static tw_status row_store_refuse(const row_store *store, int error)
{
    return tw_fail(TW_ERROR_IO,
                   "features beyond %.6g MiB go to a temporary file, and %s has no room for them (%s): TMPDIR chooses "
                   "another folder, %s keeps more of them in memory",
                   (double)store->most / (1 << 20), folder(), strerror(error), store->option);
}

/* Room on the disk is taken before anything is written through the map, where a full one would end the process. */
static tw_status map_piece(row_store *store, piece *one)
{
    if (store->file < 0 && (store->file = open_nameless()) < 0) return row_store_refuse(store, errno);
    int error = posix_fallocate(store->file, (off_t)store->end, (off_t)one->size);
    if (error) return row_store_refuse(store, error);
    void *bytes = mmap(NULL, one->size, PROT_READ | PROT_WRITE, MAP_SHARED, store->file, (off_t)store->end);
    if (bytes == MAP_FAILED) return row_store_refuse(store, errno);
    one->bytes = bytes;
    one->filed = true;
    store->end += one->size;
    return TW_OK;
}

/* --- pieces --------------------------------------------------------------------------------------------------- */

static size_t larger_of(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* In memory as long as it keeps to the limit, with what is left of that. */
static tw_status fill_piece(row_store *store, piece *one, size_t bytes)
{
    size_t left = store->most - store->held;
    if (bytes > left) {
        one->size = (larger_of(bytes, FILED_PIECE) + PAGE - 1) / PAGE * PAGE;
        return map_piece(store, one);
    }
    one->size = larger_of(bytes, left < HELD_PIECE ? left : HELD_PIECE);
    one->bytes = malloc(one->size);
    if (!one->bytes) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu bytes of features", one->size);
    store->held += one->size;
    return TW_OK;
}

static tw_status add_piece(row_store *store, size_t bytes)
{
    piece *one = calloc(1, sizeof *one);
    if (!one) return tw_fail(TW_ERROR_MEMORY, "no memory for features");
    tw_status status = fill_piece(store, one, bytes);
    if (status != TW_OK) {
        free(one);
        return status;
    }
    one->next = store->last;
    store->last = one;
    return TW_OK;
}

tw_status row_store_take(row_store *store, size_t count, float **rows)
{
    size_t bytes = count * sizeof **rows;
    if (!store->last || store->last->size - store->last->used < bytes) TW_TRY(add_piece(store, bytes));
    *rows = (float *)(void *)(store->last->bytes + store->last->used);
    store->last->used += bytes;
    if (store->last->filed) store->filed += bytes;
    return TW_OK;
}
