#include "memory.h"

#include "error.h"

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

static tw_status allocate(size_t bytes, size_t alignment, void **block)
{
    int refused = fail_countdown > 0 && --fail_countdown == 0;
    size_t rounded = bytes > MOST_BYTES ? 0 : (bytes + alignment - 1) / alignment * alignment;
    *block = refused || bytes > MOST_BYTES ? NULL : aligned_alloc(alignment, rounded ? rounded : alignment);
    return *block ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for %zu bytes", bytes);
}

/* The advice is a hint: refusal costs only speed. */
static tw_status allocate_pages(size_t bytes, size_t page, int advice, void *pointer)
{
    void *block;
    int is_large = bytes >= 2 * (size_t)HUGE_PAGE;
    TW_TRY(allocate(bytes, is_large ? page : ALIGNMENT, &block));
    if (is_large) madvise(block, bytes, advice);
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
    if (block && end > first) madvise((char *)block + (first - start), end - first, MADV_DONTNEED);
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
