/* memory.h - the only allocator of the library. */
#ifndef TW_BASE_MEMORY_H
#define TW_BASE_MEMORY_H

#include <thinwire/thinwire.h>

/* `count` zeroed elements of `size` bytes, aligned to 64 bytes (to 2 MiB, and asked of the kernel as huge pages, when
 * large: streaming over 4 KiB pages costs a tenth of the bandwidth). Writes *pointer only on success;
 * TW_ERROR_MEMORY also when count * size overflows. count = 0 gives a valid pointer. */
tw_status tw_allocate(size_t count, size_t size, void *pointer);

/* The same for `bytes` bytes of any content: of a large block, only the pages that are written to take memory. */
tw_status tw_allocate_unset(size_t bytes, void *pointer);

/* The same without huge pages, for large blocks of which little is written. */
tw_status tw_allocate_sparse(size_t bytes, void *pointer);

/* The content of a block is of no more use: its pages are the system's until they are written again. */
void tw_discard(void *block, size_t bytes);

/* Grows or shrinks a block of tw_allocate, keeping the first min(old_bytes, new_bytes). *pointer may be NULL. On
 * failure the old block stays. New bytes are zero. */
tw_status tw_resize(void *pointer, size_t old_bytes, size_t new_bytes);

/* Frees a block of tw_allocate; NULL is fine. */
void tw_free(void *block);

/* A copy of a string, in a block of its own. */
tw_status tw_copy_string(const char *string, char **copy);

/* Between the two, tw_memory_watched is how many bytes were asked for in blocks that were taken since the first of them
 * and are still there, on any thread. That is exact, where the C library counts what it rounds and aligns as well. Each
 * tw_memory_watch has a tw_memory_unwatch; what several watch together is counted from the first on. */
void tw_memory_watch(void);
size_t tw_memory_watched(void);
void tw_memory_unwatch(void);

/* For tests: the n-th allocation from now fails (0: none does). Per thread. */
void tw_fail_allocation(long n);

#endif
