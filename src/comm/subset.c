#include "subset.h"

#include "error.h"
#include "held.h"
#include "memory.h"
#include "pool.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The first look comes after this part of the whole comm's timeout, or after a second; the pauses between looks double
 * up to another part. So waiting for a message as long as is usual costs nothing. */
#define FIRST_LOOK 0.0625
#define LATEST_FIRST_LOOK 1.0
#define LONGEST_LOOK 0.125

/* One rank of a subset: what the transport calls self. */
typedef struct member {
    tw_comm *whole;
    tw_mutex mutex;   /* guards the pool */
    tw_pool messages; /* under way */
    unsigned first_channel;
    tw_numbers *numbers; /* of the whole, its channels' among them; NULL: nobody may use these again */
    tw_watch watch;      /* look = NULL: there is none */
    int ranks[];         /* in the whole; after them what texts call them, where that is something else */
} member;

typedef struct message {
    void *request; /* the whole's */
    int peer, outgoing;
    size_t size;    /* to send, or room to receive */
    uint32_t check; /* a send's */
} message;

static tw_status subset_take_message(member *me, message **taken)
{
    tw_mutex_lock(&me->mutex);
    tw_status status = tw_pool_take(&me->messages, taken);
    tw_mutex_unlock(&me->mutex);
    return status;
}

static void give_message(member *me, message *one)
{
    tw_mutex_lock(&me->mutex);
    tw_pool_give(&me->messages, one);
    tw_mutex_unlock(&me->mutex);
}

static tw_status subset_start(member *me, unsigned channel, message what, const void *src, void *dst, void **handle)
{
    tw_comm *whole = me->whole;
    unsigned number = me->first_channel + channel;
    message *kept;
    TW_TRY(subset_take_message(me, &kept));
    *kept = what;
    tw_status status =
        what.outgoing
            ? whole->ops.start_send(whole->self, what.peer, number, src, what.size, what.check, &kept->request)
            : whole->ops.start_recv(whole->self, what.peer, number, dst, what.size, &kept->request);
    if (status == TW_OK) {
        tw_numbers_started(me->numbers, what.outgoing);
        *handle = kept;
        return TW_OK;
    }
    give_message(me, kept);
    if (status == TW_ERROR_PEER && me->watch.lost) me->watch.lost(me->watch.context, what.peer);
    return status;
}

static tw_status subset_start_send(void *self, int peer, unsigned channel, const void *src, size_t size, uint32_t check,
                                   void **handle)
{
    member *me = self;
    message what = {.peer = me->ranks[peer], .outgoing = 1, .size = size, .check = check};
    return subset_start(me, channel, what, src, NULL, handle);
}

static tw_status subset_start_recv(void *self, int peer, unsigned channel, void *dst, size_t capacity, void **handle)
{
    member *me = self;
    return subset_start(me, channel, (message){.peer = me->ranks[peer], .size = capacity}, NULL, dst, handle);
}

static int subset_poll_request(void *self, void *handle, double timeout)
{
    const member *me = self;
    return me->whole->ops.poll(me->whole->self, ((message *)handle)->request, timeout);
}

/* Until the message is there, or the watch has seen enough. */
static tw_status watch_over(const member *me, const message *one)
{
    double pause = fmin(FIRST_LOOK * me->whole->timeout, LATEST_FIRST_LOOK);
    for (int is_first = 1; !me->whole->ops.poll(me->whole->self, one->request, pause); is_first = 0) {
        TW_TRY(me->watch.look(me->watch.context, one->peer, is_first));
        pause = fmin(2 * pause, LONGEST_LOOK * me->whole->timeout);
    }
    return TW_OK;
}

static void count(const member *me, const message *one, size_t size)
{
    tw_counters_add(&me->whole->counters, one->outgoing, size);
    if (me->watch.counters) tw_counters_add(me->watch.counters, one->outgoing, size);
}

static tw_status wait_whole(const member *me, const message *one, double timeout, size_t *size, uint32_t *check)
{
    tw_status status = me->whole->ops.wait(me->whole->self, one->request, timeout, size, check);
    tw_numbers_ended(me->numbers, one->outgoing, status);
    return status;
}

static tw_status subset_wait_request(void *self, void *handle, double timeout, size_t *size, uint32_t *check)
{
    const member *me = self;
    message one = *(message *)handle;
    int watched = me->watch.look && timeout > 0;
    give_message(self, handle);
    tw_status seen = watched ? watch_over(me, &one) : TW_OK;
    if (seen != TW_OK) {
        char text[TW_REASON_BYTES];
        snprintf(text, sizeof text, "%s", tw_last_error());
        (void)wait_whole(me, &one, 0, size, check);
        return tw_fail(seen, "%s", text);
    }
    tw_status status = wait_whole(me, &one, watched ? 0 : timeout, size, check);
    if (status == TW_OK)
        count(me, &one, one.outgoing ? one.size : *size);
    else if (status == TW_ERROR_PEER && watched)
        me->watch.lost(me->watch.context, one.peer);
    return status;
}

static uint64_t signs(void *self, int peer, int ask)
{
    const member *me = self;
    return me->whole->ops.signs(me->whole->self, me->ranks[peer], ask);
}

static int is_busy(void *self, int peer, const char **where)
{
    const member *me = self;
    return me->whole->ops.is_busy(me->whole->self, me->ranks[peer], where);
}

static void subset_leave(void *self)
{
    const member *me = self;
    if (!me->watch.look) tw_comm_withdraw(me->whole, -1);
}

static void subset_leave_because_of(void *self, int peer)
{
    const member *me = self;
    if (!me->watch.look) tw_comm_withdraw(me->whole, me->ranks[peer]);
}

static void subset_destroy(void *self)
{
    member *me = self;
    tw_pool_free(&me->messages);
    tw_mutex_destroy(&me->mutex);
    tw_comm_release(me->whole);
    tw_free(me);
}

tw_status tw_comm_create_subset(tw_comm *whole, const int *ranks, int count, unsigned first_channel,
                                const tw_watch *watch, tw_comm **subset)
{
    const tw_transport_ops ops = {.struct_size = sizeof(tw_transport_ops),
                                  .version = TW_TRANSPORT_VERSION,
                                  .name = whole->ops.name,
                                  .start_send = subset_start_send,
                                  .start_recv = subset_start_recv,
                                  .wait = subset_wait_request,
                                  .poll = subset_poll_request,
                                  .leave = subset_leave,
                                  .destroy = subset_destroy,
                                  .signs = whole->ops.signs ? signs : NULL,
                                  .leave_because_of = subset_leave_because_of,
                                  .is_busy = whole->ops.is_busy ? is_busy : NULL,
                                  .is_told_of = whole->ops.is_told_of};
    member *me;
    int own = 0;
    int lists = whole->names ? 2 : 1;
    TW_TRY(tw_allocate(1, sizeof *me + (size_t)(lists * count) * sizeof *ranks, &me));
    tw_status status = tw_mutex_create(&me->mutex);
    if (status != TW_OK) {
        tw_free(me);
        return status;
    }
    me->messages.size = sizeof(message);
    me->whole = whole;
    tw_comm_hold(whole);
    me->first_channel = first_channel;
    me->numbers = tw_numbers_with(whole, first_channel);
    if (watch) me->watch = *watch;
    memcpy(me->ranks, ranks, (size_t)count * sizeof *ranks);
    for (int i = 0; whole->names && i < count; i++) me->ranks[count + i] = whole->names[ranks[i]];
    while (ranks[own] != whole->rank) own++;
    TW_TRY(tw_comm_create_custom(&ops, me, own, count, subset));
    (*subset)->names = me->ranks + (whole->names ? count : 0);
    (*subset)->whole = watch ? NULL : whole;
    (*subset)->timeout = watch ? (double)INFINITY : whole->timeout;
    (*subset)->patience = whole->patience;
    return TW_OK;
}

/* Each of them once, and this rank. */
static tw_status check_ranks(const tw_comm *comm, const int *ranks, int count)
{
    char *is_in;
    tw_status status = TW_OK;
    TW_TRY(tw_allocate((size_t)comm->size, 1, &is_in));
    for (int i = 0; i < count && status == TW_OK; i++)
        if (ranks[i] < 0 || ranks[i] >= comm->size || is_in[ranks[i]]++)
            status = tw_fail(TW_ERROR_ARGUMENT, "ranks[%d] is %d: want each of 0 to %d once at most", i, ranks[i],
                             comm->size - 1);
    if (status == TW_OK && !is_in[comm->rank])
        status = tw_fail(TW_ERROR_ARGUMENT, "rank %d is not among the %d of the comm that it makes", comm->rank, count);
    tw_free(is_in);
    return status;
}

tw_status tw_comm_create_part(tw_comm *comm, const int *ranks, int count, tw_comm **part)
{
    TW_TRY(tw_comm_need(comm));
    TW_TRY(tw_need(ranks, "ranks"));
    TW_TRY(tw_need(part, "part"));
    tw_status status = check_ranks(comm, ranks, count);
    if (status == TW_ERROR_ARGUMENT) return status;
    if (comm->separated)
        return tw_fail(TW_ERROR_ORDER, "some ranks of this comm have a comm already; two would share messages");
    if (status == TW_OK) status = tw_comm_create_subset(comm, ranks, count, tw_numbers_end(comm), NULL, part);
    if (status != TW_OK) return tw_channel_give_up(comm->channel, status); /* the others count on it */
    (*part)->names = NULL; /* the caller's comm: its ranks are numbered anew */
    comm->separated = 1;
    return TW_OK;
}
