/* pool.h - many small things of one size, taken and given back often, freed together. */
#ifndef TW_BASE_POOL_H
#define TW_BASE_POOL_H

#include <thinwire/thinwire.h>

typedef struct tw_slab tw_slab;

typedef struct tw_pool {
    size_t size; /* of an item; set it, the rest zero */
    void *spare; /* each holds the next's address */
    tw_slab *slabs;
} tw_pool;

/* The item is zeroed. */
tw_status tw_pool_take(tw_pool *pool, void *item);
void tw_pool_give(tw_pool *pool, void *item);
/* Frees all items, given back or not. */
void tw_pool_free(tw_pool *pool);

#endif
