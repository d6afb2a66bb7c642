#include "hosts.h"

#include "error.h"
#include "memory.h"
#include "subset.h"

tw_status tw_hosts_check(int workers, int per_host)
{
    if (workers % per_host == 0) return TW_OK;
    return tw_fail(TW_ERROR_SPEC,
                   "per_host=%d does not divide the %d workers: every host must have as many; %d workers would do",
                   per_host, workers, (workers / per_host + 1) * per_host);
}

/* The comm of `count` of the ranks, from `rank` on, `stride` apart. */
static tw_status create_subset(tw_comm *comm, int rank, int stride, int count, unsigned number, tw_comm **subset)
{
    int *ranks;
    TW_TRY(tw_allocate((size_t)count, sizeof *ranks, &ranks));
    for (int i = 0; i < count; i++) ranks[i] = rank + i * stride;
    tw_status status = tw_comm_create_subset(comm, ranks, count, number, NULL, subset);
    tw_free(ranks);
    return status;
}

tw_status tw_hosts_create_members(tw_comm *whole, int per_host, unsigned number, tw_comm **members)
{
    return create_subset(whole, tw_comm_rank(whole) / per_host * per_host, 1, per_host, number, members);
}

tw_status tw_hosts_create_firsts(tw_comm *whole, int per_host, unsigned number, tw_comm **firsts)
{
    return create_subset(whole, 0, per_host, tw_comm_size(whole) / per_host, number, firsts);
}
