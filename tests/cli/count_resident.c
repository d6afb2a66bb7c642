/* Preloaded into a program that trains with a budget of memory: asks the system how much it has in memory of arrays
 * that are shut (PROT_NONE) at times, whenever a part of one is about to go. At its end it writes the most, in bytes,
 * to the file RESIDENT_TO. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 64, PAGES = 4096 };

static struct {
    char *at;
    size_t bytes;
} arrays[MOST];

static size_t count, most;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The whole of an array is shut before parts of it are opened. */
static void know(char *at, size_t bytes)
{
    for (size_t i = 0; i < count; i++)
        if (at >= arrays[i].at && at + bytes <= arrays[i].at + arrays[i].bytes) return;
    if (count == MOST) abort();
    arrays[count].at = at;
    arrays[count++].bytes = bytes;
}

static size_t resident_of(char *at, size_t bytes)
{
    static unsigned char pages[PAGES];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t resident = 0;
    for (size_t done = 0, some; done < bytes; done += some) {
        some = bytes - done < PAGES * page ? bytes - done : PAGES * page;
        if (mincore(at + done, some, pages) != 0) return 0; /* it is gone */
        for (size_t i = 0; i < (some + page - 1) / page; i++) resident += (pages[i] & 1) * page;
    }
    return resident;
}

static void look(void)
{
    size_t resident = 0;
    for (size_t i = 0; i < count; i++) resident += resident_of(arrays[i].at, arrays[i].bytes);
    if (resident > most) most = resident;
}

/* What is opened is opened under the lock, too, so that nothing is counted where it was and where it is. */
__attribute__((visibility("default"))) int mprotect(void *at, size_t bytes, int way)
{
    static int (*next)(void *, size_t, int);
    pthread_mutex_lock(&lock);
    if (!next) next = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "mprotect");
    if (way == PROT_NONE) know(at, bytes);
    const int failed = next(at, bytes, way);
    pthread_mutex_unlock(&lock);
    return failed;
}

__attribute__((visibility("default"))) int madvise(void *at, size_t bytes, int advice)
{
    static int (*next)(void *, size_t, int);
    pthread_mutex_lock(&lock);
    if (!next) next = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "madvise");
    look();
    const int failed = next(at, bytes, advice);
    pthread_mutex_unlock(&lock);
    return failed;
}

__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("RESIDENT_TO");
    FILE *file = path && count ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%zu\n", most);
    fclose(file);
}
