#include "memory.h"

#include "error.h"
#include "sized.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20 };
#define MOST_BYTES (SIZE_MAX - 2 * (size_t)HUGE_PAGE) /* what can still be rounded up */

static _Thread_local long fail_countdown;

void tw_fail_allocation(long n)
{
    fail_countdown = n;
}

/* ---- how much of it is in use, while somebody asks --------------------------------------------------------------- */

typedef struct known_block {
    const void *at;
    size_t bytes;
} known_block;

static pthread_mutex_t knowing = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic int watchers;
static known_block *known; /* the C library's: the blocks of an own allocator are counted in it */
static size_t known_count, known_room, watched;

static void knowing_hold(void)
{
    pthread_mutex_lock(&knowing);
}

static void knowing_let_go(void)
{
    pthread_mutex_unlock(&knowing);
}

/* A thread that took a block while another one forked is not in the child, which would wait for it for ever. */
static void knowing_watch_forks(void)
{
    pthread_atfork(knowing_hold, knowing_let_go, knowing_let_go);
}

/* One for which the list has no room is not counted, nor is one that comes here when nobody watches any more. */
static void know_block(const void *block, size_t bytes)
{
    if (!watchers) return;
    knowing_hold();
    if (watchers && known_count == known_room) {
        size_t room = 2 * known_room + 64;
        known_block *larger = realloc(known, room * sizeof *known);
        if (larger) known = larger;
        if (larger) known_room = room;
    }
    if (known_count < known_room) {
        known[known_count++] = (known_block){block, bytes};
        watched += bytes;
    }
    knowing_let_go();
}

/* From the newest on, which are given back first. */
static void forget_block(const void *block)
{
    if (!watchers || !block) return;
    knowing_hold();
    for (size_t i = known_count; i-- > 0;)
        if (known[i].at == block) {
            watched -= known[i].bytes;
            known[i] = known[--known_count];
            break;
        }
    knowing_let_go();
}

void tw_memory_watch(void)
{
    pthread_once(&once, knowing_watch_forks);
    watchers++;
}

size_t tw_memory_watched(void)
{
    knowing_hold();
    size_t bytes = watched;
    knowing_let_go();
    return bytes;
}

void tw_memory_unwatch(void)
{
    knowing_hold();
    if (--watchers == 0) {
        free(known);
        known = NULL;
        known_count = known_room = watched = 0;
    }
    knowing_let_go();
}

/* ---- whose memory it is ------------------------------------------------------------------------------------------ */

static tw_allocator custom;       /* allocate is NULL: the C library's */
static _Atomic int has_allocated; /* now it cannot change any more */

tw_status tw_set_allocator(const tw_allocator *allocator)
{
    tw_allocator given;
    TW_TRY(tw_need(allocator, "allocator"));
    TW_TRY(tw_read_sized(&given, sizeof given, allocator, "tw_allocator"));
    if (!given.allocate || !given.release)
        return tw_fail(TW_ERROR_ARGUMENT, "an allocator has both functions, allocate and release");
    if (has_allocated)
        return tw_fail(TW_ERROR_ORDER, "the library has allocated memory already: set the allocator before that");
    custom = given;
    return TW_OK;
}

static void *obtain(size_t alignment, size_t bytes)
{
    if (!has_allocated) has_allocated = 1;
    return custom.allocate ? custom.allocate(custom.context, alignment, bytes) : aligned_alloc(alignment, bytes);
}

void tw_free(void *block)
{
    forget_block(block);
    if (custom.release && block)
        custom.release(custom.context, block);
    else
        free(block);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static tw_status allocate(size_t bytes, size_t alignment, void **block)
{
    int refused = fail_countdown > 0 && --fail_countdown == 0;
    size_t rounded = bytes > MOST_BYTES ? 0 : (bytes + alignment - 1) / alignment * alignment;
    *block = refused || bytes > MOST_BYTES ? NULL : obtain(alignment, rounded ? rounded : alignment);
    if (!*block) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu bytes", bytes);
    know_block(*block, bytes);
    return TW_OK;
}

/* The advice is a hint: refusal costs only speed. */
static tw_status allocate_pages(size_t bytes, size_t page, int advice, void *pointer)
{
    void *block;
    int is_large = bytes >= 2 * (size_t)HUGE_PAGE;
    TW_TRY(allocate(bytes, is_large ? page : ALIGNMENT, &block));
    if (is_large && !custom.allocate) madvise(block, bytes, advice);
    memcpy(pointer, &block, sizeof block);
    return TW_OK;
}

tw_status tw_allocate_unset(size_t bytes, void *pointer)
{
    return allocate_pages(bytes, HUGE_PAGE, MADV_HUGEPAGE, pointer);
}

tw_status tw_allocate_sparse(size_t bytes, void *pointer)
{
    return allocate_pages(bytes, (size_t)sysconf(_SC_PAGESIZE), MADV_NOHUGEPAGE, pointer);
}

void tw_discard(void *block, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)block;
    uintptr_t first = (start + page - 1) / page * page, end = (start + bytes) / page * page;
    if (block && end > first && !custom.allocate) madvise((char *)block + (first - start), end - first, MADV_DONTNEED);
}

tw_status tw_allocate(size_t count, size_t size, void *pointer)
{
    void *block = NULL;
    if (size && count > MOST_BYTES / size)
        return tw_fail(TW_ERROR_MEMORY, "%zu elements of %zu bytes are more than this machine can address", count,
                       size);
    TW_TRY(tw_allocate_unset(count * size, &block));
    memset(block, 0, count * size);
    memcpy(pointer, &block, sizeof block);
    return TW_OK;
}

tw_status tw_resize(void *pointer, size_t old_bytes, size_t new_bytes)
{
    void *old, *block = NULL;
    memcpy(&old, pointer, sizeof old);
    TW_TRY(tw_allocate(new_bytes, 1, &block));
    if (old) memcpy(block, old, old_bytes < new_bytes ? old_bytes : new_bytes);
    tw_free(old);
    memcpy(pointer, &block, sizeof block);
    return TW_OK;
}

tw_status tw_copy_string(const char *string, char **copy)
{
    size_t bytes = strlen(string) + 1;
    TW_TRY(tw_allocate(bytes, 1, copy));
    memcpy(*copy, string, bytes);
    return TW_OK;
}
