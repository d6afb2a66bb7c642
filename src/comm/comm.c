/* The comm object and its public collectives, which run on a channel of the comm's own. */
#include "channel.h"
#include "error.h"
#include "held.h"
#include "memory.h"
#include "sized.h"

#define DEFAULT_TIMEOUT 600.0
#define LONGEST_TIMEOUT 1e9 /* seconds; a clock still resolves microseconds there */

enum { COMM_OWN = 2 /* of its users: the owner and the comm's own channel */ };

static tw_status check_custom(const tw_transport_ops *ops, int rank, int size, tw_comm **comm)
{
    if (!ops->name || !ops->start_send || !ops->start_recv || !ops->wait || !ops->poll)
        return tw_fail(TW_ERROR_ARGUMENT, "a transport must fill every field of tw_transport_ops that is not optional");
    if (ops->memory != TW_MEMORY_HOST)
        return tw_fail(TW_ERROR_UNSUPPORTED,
                       "transport %s is for memory of kind %d; this thinwire has host memory alone", ops->name,
                       (int)ops->memory);
    if (size < 1 || size > TW_MAX_RANKS || rank < 0 || rank >= size)
        return tw_fail(TW_ERROR_ARGUMENT, "rank %d of %d: want 1 to %d ranks, counted from 0", rank, size,
                       TW_MAX_RANKS);
    return tw_need(comm, "comm");
}

static tw_status comm_create(const tw_transport_ops *ops, void *self, int rank, int size, tw_comm **comm)
{
    tw_comm *made;
    TW_TRY(tw_allocate(1, sizeof *made, &made));
    *made = (tw_comm){.ops = *ops, .self = self, .rank = rank, .size = size, .timeout = DEFAULT_TIMEOUT, .users = 1};
    tw_status status = tw_process_note(&made->process);
    if (status == TW_OK) status = tw_mutex_create(&made->mutex);
    if (status == TW_OK) {
        status = tw_channel_create_wide(made, 1, &made->channel); /* the other is for agreeing: again.c */
        if (status != TW_OK) tw_mutex_destroy(&made->mutex);
    }
    if (status == TW_OK)
        *comm = made;
    else
        tw_free(made);
    return status;
}

/* Of a table of another version nothing can be said, not even where destroy is. */
static tw_status read_ops(const tw_transport_ops *given, tw_transport_ops *ops)
{
    TW_TRY(tw_need(given, "ops"));
    TW_TRY(tw_read_sized(ops, sizeof *ops, given, "tw_transport_ops"));
    if (ops->version != TW_TRANSPORT_VERSION || !ops->destroy)
        return tw_fail(TW_ERROR_ARGUMENT, "not a transport of version %d", TW_TRANSPORT_VERSION);
    return TW_OK;
}

tw_status tw_comm_create_custom(const tw_transport_ops *ops, void *self, int rank, int size, tw_comm **comm)
{
    tw_transport_ops known;
    TW_TRY(read_ops(ops, &known));
    tw_status status = check_custom(&known, rank, size, comm);
    if (status == TW_OK) status = comm_create(&known, self, rank, size, comm);
    if (status != TW_OK) known.destroy(self);
    return status;
}

/* What was made on it may be in the middle of a call, and fails from now on. */
void tw_comm_destroy(tw_comm *comm)
{
    if (!comm || tw_process_is_child(comm->process)) return;
    if (comm->users > COMM_OWN) tw_channel_leave(comm->channel);
    tw_channel_destroy(comm->channel);
    tw_comm_release(comm);
}

void tw_comm_leave(tw_comm *comm)
{
    if (comm && !tw_process_is_child(comm->process)) tw_channel_leave(comm->channel);
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

tw_status tw_comm_traffic(const tw_comm *comm, tw_traffic *traffic)
{
    TW_TRY(tw_comm_need(comm));
    TW_TRY(tw_need(traffic, "traffic"));
    tw_traffic now = tw_counters_read(&comm->counters);
    return tw_copy_sized(traffic, &now, sizeof now, "tw_traffic");
}

tw_status tw_comm_set_timeout(tw_comm *comm, double seconds)
{
    TW_TRY(tw_comm_need(comm));
    if (!(seconds > 0 && seconds <= LONGEST_TIMEOUT))
        return tw_fail(TW_ERROR_ARGUMENT, "a timeout of %g seconds: want more than 0, at most %g", seconds,
                       LONGEST_TIMEOUT);
    comm->timeout = seconds;
    return TW_OK;
}

tw_status tw_comm_set_patience(tw_comm *comm, double seconds)
{
    TW_TRY(tw_comm_need(comm));
    if (!(seconds >= 0 && seconds <= LONGEST_TIMEOUT))
        return tw_fail(TW_ERROR_ARGUMENT, "a patience of %g seconds: want 0, for the default, to %g", seconds,
                       LONGEST_TIMEOUT);
    comm->patience = seconds;
    return TW_OK;
}

double tw_comm_timeout(const tw_comm *comm)
{
    return comm ? comm->timeout : 0;
}

double tw_comm_patience(const tw_comm *comm)
{
    return comm ? comm->patience : 0;
}

tw_status tw_comm_lend(const tw_comm *comm, tw_transport_ops *ops, void **self)
{
    TW_TRY(tw_comm_need(comm));
    TW_TRY(tw_need(ops, "ops"));
    TW_TRY(tw_need(self, "self"));
    TW_TRY(tw_channel_check(comm->channel));
    TW_TRY(tw_copy_sized(ops, &comm->ops, sizeof comm->ops, "tw_transport_ops"));
    *self = comm->self;
    return TW_OK;
}

static tw_status check_data(const tw_comm *comm, const void *data, const char *argument, size_t count, size_t largest)
{
    TW_TRY(tw_comm_need(comm));
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
