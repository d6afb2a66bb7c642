#include "blocks.h"

#include <stdlib.h>
#include <string.h>

enum { SMALLEST = 6 };
#define MOST_KEPT ((size_t)256 << 20)

void tw_blocks_create(tw_blocks *blocks)
{
    *blocks = (tw_blocks){.kept = 0};
    pthread_mutex_init(&blocks->lock, NULL); /* does not fail with default attributes */
}

void tw_blocks_destroy(tw_blocks *blocks)
{
    for (int order = 0; order < TW_BLOCK_ORDERS; order++)
        while (blocks->spare[order]) {
            tw_block *block = blocks->spare[order];
            blocks->spare[order] = block->next;
            free(block);
        }
    pthread_mutex_destroy(&blocks->lock);
}

static size_t room_of(int order)
{
    return (size_t)1 << order;
}

static tw_block *take_spare(tw_blocks *blocks, int order)
{
    pthread_mutex_lock(&blocks->lock);
    tw_block *block = blocks->spare[order];
    if (block) {
        blocks->spare[order] = block->next;
        blocks->kept -= room_of(order);
    }
    pthread_mutex_unlock(&blocks->lock);
    return block;
}

tw_block *tw_blocks_take(tw_blocks *blocks, size_t size)
{
    int order = SMALLEST;
    if (size > SIZE_MAX / 4) return NULL;
    while (room_of(order) < size) order++;
    tw_block *block = take_spare(blocks, order);
    if (!block) block = aligned_alloc(sizeof *block, sizeof *block + room_of(order));
    if (block) *block = (tw_block){.order = order, .holders = 1};
    return block;
}

/* 1 when it was the last of its holders. */
static int blocks_let_go(tw_blocks *blocks, tw_block *block)
{
    if (--block->holders) return 0;
    if (blocks->recent == block) blocks->recent = NULL;
    return 1;
}

void tw_blocks_give(tw_blocks *blocks, tw_block *block)
{
    size_t room = room_of(block->order);
    pthread_mutex_lock(&blocks->lock);
    int free_now = blocks_let_go(blocks, block), keeps = free_now && blocks->kept + room <= MOST_KEPT;
    if (keeps) {
        block->next = blocks->spare[block->order];
        blocks->spare[block->order] = block;
        blocks->kept += room;
    }
    pthread_mutex_unlock(&blocks->lock);
    if (free_now && !keeps) free(block);
}

static tw_block *hold_recent(tw_blocks *blocks, const void *src, size_t size)
{
    pthread_mutex_lock(&blocks->lock);
    tw_block *recent = blocks->recent;
    int same = recent && recent->unwaited && recent->src == src && recent->size == size;
    if (same) {
        recent->holders++;
        recent->unwaited++;
    }
    pthread_mutex_unlock(&blocks->lock);
    return same ? recent : NULL;
}

static void set_recent(tw_blocks *blocks, tw_block *copy)
{
    pthread_mutex_lock(&blocks->lock);
    blocks->recent = copy;
    pthread_mutex_unlock(&blocks->lock);
}

tw_block *tw_blocks_copy(tw_blocks *blocks, const void *src, size_t size, uint32_t check)
{
    tw_block *copy = hold_recent(blocks, src, size);
    if (copy) return copy;
    copy = tw_blocks_take(blocks, size);
    if (!copy) return NULL;
    copy->src = src;
    copy->size = size;
    copy->check = check;
    copy->unwaited = 1;
    if (size) memcpy(copy->bytes, src, size);
    set_recent(blocks, copy);
    return copy;
}

void tw_blocks_forget(tw_blocks *blocks, tw_block *copy)
{
    pthread_mutex_lock(&blocks->lock);
    copy->unwaited--;
    pthread_mutex_unlock(&blocks->lock);
}
