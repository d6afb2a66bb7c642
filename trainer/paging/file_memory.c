#include "file_memory.h"
#include "pages.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <thinwire/thinwire.h>
#include <unistd.h>

enum { LARGE = 256 << 10 };

typedef struct block {
    struct block *next;
    void *at;
    size_t bytes;
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *blocks;
static char folder[4096];

/* Reserves more than that, and gives back what is not needed. */
static void *reserve(size_t alignment, size_t bytes)
{
    char *at = mmap(NULL, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return NULL;
    const size_t before = (alignment - (uintptr_t)at % alignment) % alignment;
    if (before) munmap(at, before);
    munmap(at + before + bytes, alignment - before);
    return at + before;
}

static int make_file(size_t bytes)
{
    char path[sizeof folder + 32];
    snprintf(path, sizeof path, "%s/.thinwire-memory-XXXXXX", folder);
    int file = mkostemp(path, O_CLOEXEC);
    if (file < 0) return file;
    unlink(path);
    if (posix_fallocate(file, 0, (off_t)bytes) == 0) return file;
    close(file);
    return -1;
}

static void *map_file(void *at, size_t bytes)
{
    int file = make_file(bytes);
    if (file < 0) return NULL;
    void *mapped = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    close(file);
    return mapped == MAP_FAILED ? NULL : mapped;
}

static void *take_block(size_t alignment, size_t bytes)
{
    block *made = malloc(sizeof *made);
    void *at = made ? reserve(alignment, bytes) : NULL;
    if (!at || !map_file(at, bytes)) {
        if (at) munmap(at, bytes);
        free(made);
        return NULL;
    }
    *made = (block){blocks, at, bytes};
    blocks = made;
    return at;
}

static void *file_memory_allocate(void *context, size_t alignment, size_t bytes)
{
    const size_t page = pages_up(1);
    (void)context;
    pthread_mutex_lock(&lock);
    const int large = *folder && bytes >= LARGE;
    void *at = large ? take_block(alignment < page ? page : alignment, pages_up(bytes)) : NULL;
    pthread_mutex_unlock(&lock);
    return large ? at : aligned_alloc(alignment, bytes);
}

/* NULL: it is in memory. */
static block *find_block(const void *at)
{
    block **link = &blocks, *found;
    while (*link && (*link)->at != at) link = &(*link)->next;
    found = *link;
    if (found) *link = found->next;
    return found;
}

static void file_memory_release(void *context, void *at)
{
    (void)context;
    pthread_mutex_lock(&lock);
    block *own = find_block(at);
    pthread_mutex_unlock(&lock);
    if (own)
        munmap(at, own->bytes);
    else
        free(at);
    free(own);
}

void file_memory_install(void)
{
    static const tw_allocator allocator = {
        .struct_size = sizeof allocator, .allocate = file_memory_allocate, .release = file_memory_release};
    (void)tw_set_allocator(&allocator);
    pages_leave_unreserved();
}

void file_memory_use(const char *where)
{
    pthread_mutex_lock(&lock);
    snprintf(folder, sizeof folder, "%s", where ? where : "");
    pthread_mutex_unlock(&lock);
}
