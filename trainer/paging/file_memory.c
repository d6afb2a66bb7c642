#include "file_memory.h"
#include "pages.h"
#include <fcntl.h>
#include <pthread.h>
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

static void *map_file(size_t bytes)
{
    char path[sizeof folder + 32];
    snprintf(path, sizeof path, "%s/.thinwire-memory-XXXXXX", folder);
    int file = mkostemp(path, O_CLOEXEC);
    if (file < 0) return MAP_FAILED;
    unlink(path);
    void *at = posix_fallocate(file, 0, (off_t)bytes) == 0
                   ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                   : MAP_FAILED;
    close(file);
    return at;
}

/* On pages, which is alignment enough for all but huge pages. */
static void *take_block(size_t bytes)
{
    block *made = malloc(sizeof *made);
    void *at = made ? map_file(pages_up(bytes)) : MAP_FAILED;
    if (at == MAP_FAILED) {
        free(made);
        return NULL;
    }
    *made = (block){blocks, at, pages_up(bytes)};
    blocks = made;
    return at;
}

static void *file_memory_allocate(void *context, size_t alignment, size_t bytes)
{
    (void)context;
    pthread_mutex_lock(&lock);
    int large = *folder && bytes >= LARGE && alignment <= pages_up(1);
    void *at = large ? take_block(bytes) : NULL;
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
}

void file_memory_use(const char *where)
{
    pthread_mutex_lock(&lock);
    snprintf(folder, sizeof folder, "%s", where ? where : "");
    pthread_mutex_unlock(&lock);
}
