/* row_store.h - room for the features of a corpus, however large: so many bytes of memory, and behind them a temporary
 * file whose pages the system holds while there is room for them. The file is in the folder that TMPDIR names, else in
 * /tmp; it has no name, and so is gone with the process. */
#ifndef TRAINER_ROW_STORE_H
#define TRAINER_ROW_STORE_H

#include <stddef.h>
#include <thinwire/thinwire.h>

typedef struct row_store row_store;

/* `option` is what a person raises `most_bytes` with, for the texts. */
tw_status row_store_create(size_t most_bytes, const char *option, row_store **store);
/* NULL is none. */
void row_store_destroy(row_store *store);

/* Room for `count` floats, which lasts as long as the store. TW_ERROR_MEMORY; TW_ERROR_IO where the file cannot be made
 * or its disk is full. */
tw_status row_store_take(row_store *store, size_t count, float **rows);

/* Bytes of what was taken that are in the file. */
size_t row_store_filed(const row_store *store);

#endif
