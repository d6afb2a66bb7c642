/* blocks.h - the memory that MPI sends from and receives into.
 *
 * A message that was given up cannot be taken back from MPI once its peer has met it: MPI goes on to read or write its
 * bytes, whenever the peer gets to it. So no memory of the caller's is ever lent to MPI. Each message has a block,
 * which stays until MPI is done with it. Fresh memory costs a page fault every four kilobytes, more than the copy, so
 * blocks are kept for the next message. */
#ifndef TW_COMM_SHARED_BLOCKS_H
#define TW_COMM_SHARED_BLOCKS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum { TW_BLOCK_ORDERS = 64 };

typedef struct tw_block {
    struct tw_block *next;
    int order;             /* 2^order bytes of room */
    int holders, unwaited; /* requests that hold it; of them, sends whose src nobody may write to yet */
    const void *src;       /* what it is a copy of; NULL: nothing */
    size_t size;
    unsigned char unused[20];
    uint32_t check; /* a message: its word, and its bytes */
    unsigned char bytes[];
} tw_block;

_Static_assert(offsetof(tw_block, bytes) == 64, "the bytes lie on a line of the cache, the word just before them");

typedef struct tw_blocks {
    pthread_mutex_t lock;
    tw_block *spare[TW_BLOCK_ORDERS]; /* by order */
    tw_block *recent;                 /* the last copy */
    size_t kept;                      /* bytes in the spare ones */
} tw_blocks;

void tw_blocks_create(tw_blocks *blocks);
/* Frees the spare ones. */
void tw_blocks_destroy(tw_blocks *blocks);

/* A block with room for `size` bytes; NULL: no memory. What is not written to takes none, in a fresh one. */
tw_block *tw_blocks_take(tw_blocks *blocks, size_t size);
void tw_blocks_give(tw_blocks *blocks, tw_block *block);

/* A block with a copy of a message to send. What goes to many at once is copied once. */
tw_block *tw_blocks_copy(tw_blocks *blocks, const void *src, size_t size, uint32_t check);
/* One of its sends has been waited for, or was not started. */
void tw_blocks_forget(tw_blocks *blocks, tw_block *copy);

#endif
