#include "engine_room.h"
#include "error.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* Each thread in oneDNN wants at most 6 MiB at a time: the first product of matrices, which makes all its kernels. The
 * rest is for what the other threads allocate between the question and the call. */
static const size_t room = (size_t)32 << 20;

static atomic_int engines, limited;

static int has_limit(int resource)
{
    struct rlimit limit;
    return getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

void engine_room_count(int more)
{
    engines += more;
    limited = has_limit(RLIMIT_AS) || has_limit(RLIMIT_DATA);
}

tw_status engine_room(void)
{
    if (!limited) return TW_OK;
    size_t wanted = room * (size_t)engines;
    void *reserved = mmap(NULL, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (reserved == MAP_FAILED)
        return tw_fail(
            TW_ERROR_MEMORY,
            "oneDNN needs %zu MiB of address space to work in, and the process's limit leaves less; raise it "
            "(ulimit -v, ulimit -d)",
            wanted >> 20);
    munmap(reserved, wanted);
    return TW_OK;
}
