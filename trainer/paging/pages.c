#include "pages.h"
#include <sys/mman.h>
#include <unistd.h>

static int unreserved;

void pages_leave_unreserved(void)
{
    unreserved = 1;
}

size_t pages_down(size_t bytes)
{
    return bytes & ~((size_t)sysconf(_SC_PAGESIZE) - 1);
}

size_t pages_up(size_t bytes)
{
    return pages_down(bytes + (size_t)sysconf(_SC_PAGESIZE) - 1);
}

/* At least a page: no array is at NULL. */
static size_t room_for(size_t count)
{
    return pages_up(count ? count * sizeof(float) : 1);
}

float *pages_take(size_t count)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (unreserved ? MAP_NORESERVE : 0);
    void *at = mmap(NULL, room_for(count), PROT_READ | PROT_WRITE, flags, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

void pages_forget(float *values, size_t begin, size_t end)
{
    const size_t from = pages_up(begin * sizeof *values), to = pages_down(end * sizeof *values);
    if (from < to) madvise((char *)values + from, to - from, MADV_DONTNEED);
}

void pages_give(float *values, size_t count)
{
    if (values) munmap(values, room_for(count));
}
