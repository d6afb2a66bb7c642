/* buffer.c - memory for activations. Large pages spare the processor a table walk for nearly every row. */
#include "buffer.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { LARGE_PAGE = 2 << 20, CACHE_LINE = 64 };

tw_status nn_buffer_reserve(nn_buffer *buffer, size_t count)
{
    if (count <= buffer->capacity) return TW_OK;
    nn_buffer_free(buffer);
    if (count > (size_t)-1 / sizeof(float) - LARGE_PAGE)
        return tw_fail(TW_ERROR_MEMORY, "no memory for activations: %zu values", count);
    size_t alignment = count * sizeof(float) >= LARGE_PAGE ? LARGE_PAGE : CACHE_LINE;
    size_t bytes = (count * sizeof(float) + alignment - 1) / alignment * alignment;
    buffer->values = aligned_alloc(alignment, bytes);
    if (!buffer->values) return tw_fail(TW_ERROR_MEMORY, "no memory for activations: %zu MB", bytes >> 20);
    if (alignment == LARGE_PAGE) madvise(buffer->values, bytes, MADV_HUGEPAGE);
    buffer->capacity = bytes / sizeof(float);
    return TW_OK;
}

void nn_buffer_free(nn_buffer *buffer)
{
    free(buffer->values);
    *buffer = (nn_buffer){0};
}
