#include "pool.h"

#include "error.h"
#include "memory.h"

#include <string.h>

enum { ITEMS = 512 };

struct tw_slab {
    tw_slab *next;
    max_align_t items[];
};

void tw_pool_give(tw_pool *pool, void *item)
{
    memcpy(item, &pool->spare, sizeof pool->spare);
    pool->spare = item;
}

static tw_status add_slab(tw_pool *pool)
{
    tw_slab *slab;
    TW_TRY(tw_allocate_unset(sizeof *slab + ITEMS * pool->size, &slab));
    slab->next = pool->slabs;
    pool->slabs = slab;
    for (size_t i = ITEMS; i-- > 0;) tw_pool_give(pool, (char *)slab->items + i * pool->size);
    return TW_OK;
}

tw_status tw_pool_take(tw_pool *pool, void *item)
{
    if (!pool->spare) TW_TRY(add_slab(pool));
    void *taken = pool->spare;
    memcpy(&pool->spare, taken, sizeof pool->spare);
    memset(taken, 0, pool->size);
    memcpy(item, &taken, sizeof taken);
    return TW_OK;
}

void tw_pool_free(tw_pool *pool)
{
    while (pool->slabs) {
        tw_slab *slab = pool->slabs;
        pool->slabs = slab->next;
        tw_free(slab);
    }
    pool->spare = NULL;
}
