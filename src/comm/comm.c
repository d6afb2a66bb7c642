/* The comm object and its public collectives, which run on a channel of the comm's own. */
#include "channel.h"

#include "error.h"
#include "memory.h"

#define DEFAULT_TIMEOUT 600.0
#define LONGEST_TIMEOUT 1e9 /* seconds; a clock still resolves microseconds there */

static tw_status check_custom(const tw_transport_ops *ops, int rank, int size, tw_comm **comm)
{
    if (!ops->name || !ops->start_send || !ops->start_recv || !ops->wait || !ops->poll)
        return tw_fail(TW_ERROR_ARGUMENT, "a transport must fill every field of tw_transport_ops but leave");
    if (size < 1 || size > TW_MAX_RANKS || rank < 0 || rank >= size)
        return tw_fail(TW_ERROR_ARGUMENT, "rank %d of %d: want 1 to %d ranks, counted from 0", rank, size,
                       TW_MAX_RANKS);
    return tw_need(comm, "comm");
}

static tw_status create(const tw_transport_ops *ops, void *self, int rank, int size, tw_comm **comm)
{
    tw_comm *made;
    TW_TRY(tw_allocate(1, sizeof *made, &made));
    *made = (tw_comm){.ops = *ops, .self = self, .rank = rank, .size = size, .timeout = DEFAULT_TIMEOUT};
    tw_status status = tw_mutex_create(&made->mutex);
    if (status == TW_OK) {
        status = tw_channel_create(made, &made->channel);
        if (status != TW_OK) tw_mutex_destroy(&made->mutex);
    }
    if (status == TW_OK)
        *comm = made;
    else
        tw_free(made);
    return status;
}

tw_status tw_comm_create_custom(const tw_transport_ops *ops, void *self, int rank, int size, tw_comm **comm)
{
    TW_TRY(tw_need(ops, "ops"));
    /* Of a table of another version nothing can be said, not even where destroy is. */
    if (ops->version != TW_TRANSPORT_VERSION || !ops->destroy)
        return tw_fail(TW_ERROR_ARGUMENT, "not a transport of version %d", TW_TRANSPORT_VERSION);
    tw_status status = check_custom(ops, rank, size, comm);
    if (status == TW_OK) status = create(ops, self, rank, size, comm);
    if (status != TW_OK) ops->destroy(self);
    return status;
}

void tw_comm_leave(const tw_comm *comm)
{
    if (comm->ops.leave) comm->ops.leave(comm->self);
}

void tw_comm_destroy(tw_comm *comm)
{
    if (!comm) return;
    if (comm->maimed) tw_comm_leave(comm);
    comm->ops.destroy(comm->self);
    tw_channel_destroy(comm->channel);
    tw_mutex_destroy(&comm->mutex);
    tw_free(comm);
}

int tw_comm_rank(const tw_comm *comm)
{
    return comm ? comm->rank : 0;
}

int tw_comm_size(const tw_comm *comm)
{
    return comm ? comm->size : 0;
}

const char *tw_comm_transport(const tw_comm *comm)
{
    return comm ? comm->ops.name : "";
}

tw_traffic tw_comm_traffic(const tw_comm *comm)
{
    return comm ? tw_counters_read(&comm->counters) : (tw_traffic){0};
}

tw_status tw_comm_set_timeout(tw_comm *comm, double seconds)
{
    TW_TRY(tw_need(comm, "comm"));
    if (!(seconds > 0 && seconds <= LONGEST_TIMEOUT))
        return tw_fail(TW_ERROR_ARGUMENT, "a timeout of %g seconds: want more than 0, at most %g", seconds,
                       LONGEST_TIMEOUT);
    comm->timeout = seconds;
    return TW_OK;
}

static tw_status check_data(const tw_comm *comm, const void *data, const char *argument, size_t count, size_t largest)
{
    TW_TRY(tw_need(comm, "comm"));
    if (count) TW_TRY(tw_need(data, argument));
    if (count > largest) return tw_fail(TW_ERROR_ARGUMENT, "%zu is not a possible count", count);
    return TW_OK;
}

tw_status tw_comm_barrier(tw_comm *comm)
{
    TW_TRY(check_data(comm, NULL, "", 0, 0));
    return tw_channel_barrier(comm->channel);
}

tw_status tw_comm_allreduce(tw_comm *comm, float *values, size_t count)
{
    TW_TRY(check_data(comm, values, "values", count, SIZE_MAX / 2 / sizeof *values));
    return tw_channel_allreduce(comm->channel, TW_F32, values, count);
}

tw_status tw_comm_broadcast(tw_comm *comm, int root, void *data, size_t size)
{
    TW_TRY(check_data(comm, data, "data", size, SIZE_MAX));
    if (root < 0 || root >= comm->size)
        return tw_fail(TW_ERROR_ARGUMENT, "root %d is not a rank of this group of %d", root, comm->size);
    return tw_channel_broadcast_into(comm->channel, root, data, size);
}

tw_status tw_comm_allgather(tw_comm *comm, const void *data, size_t size, void *gathered)
{
    TW_TRY(check_data(comm, data, "data", size, SIZE_MAX / TW_MAX_RANKS));
    TW_TRY(check_data(comm, gathered, "gathered", size, SIZE_MAX));
    uintptr_t own = (uintptr_t)data, all = (uintptr_t)gathered;
    if (own < all + size * (size_t)comm->size && all < own + size)
        return tw_fail(TW_ERROR_ARGUMENT, "gathered overlaps data; they must be apart");
    return tw_channel_gather_into(comm->channel, data, size, gathered);
}
