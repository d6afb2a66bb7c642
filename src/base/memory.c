#include "memory.h"

#include "error.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20 };
#define MOST_BYTES (SIZE_MAX - 2 * (size_t)HUGE_PAGE) /* what can still be rounded up */

static _Thread_local long fail_countdown;

void tw_fail_allocation(long n)
{
    fail_countdown = n;
}

static void *allocate_aligned(size_t bytes)
{
    if (fail_countdown > 0 && --fail_countdown == 0) return NULL;
    size_t alignment = bytes >= 2 * (size_t)HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
    size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void *block = aligned_alloc(alignment, rounded ? rounded : alignment);
    if (!block) return NULL;
    if (alignment == HUGE_PAGE) madvise(block, rounded, MADV_HUGEPAGE); /* a hint: refusal costs only speed */
    return block;
}

tw_status tw_allocate_unset(size_t bytes, void *pointer)
{
    void *block = bytes <= MOST_BYTES ? allocate_aligned(bytes) : NULL;
    if (!block) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu bytes", bytes);
    memcpy(pointer, &block, sizeof block);
    return TW_OK;
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
    free(old);
    memcpy(pointer, &block, sizeof block);
    return TW_OK;
}

void tw_free(void *block)
{
    free(block);
}

tw_status tw_copy_string(const char *string, char **copy)
{
    size_t bytes = strlen(string) + 1;
    TW_TRY(tw_allocate(bytes, 1, copy));
    memcpy(*copy, string, bytes);
    return TW_OK;
}
