/* threads - a group of ranks inside one process.
 *
 * Every rank has a mailbox, where requests to send to it and its own requests to receive meet. The second of a pair to
 * come copies the data, straight from the sender's buffer into the receiver's, outside of every lock. A request that
 * found no partner waits in the mailbox; its owner sleeps on a condition of its own rank, which is woken only for what
 * somebody is waiting for. No thread ever holds two locks. */
#include "channel.h"

#include "error.h"
#include "memory.h"

#include <stdatomic.h>
#include <string.h>

enum { BUCKETS = 32, BY_ITSELF = 1 };

typedef enum outcome { PENDING = 0, DONE, TOO_LONG, GONE, LATE } outcome;

typedef struct request {
    struct request *next; /* in its mailbox, or among the spare ones */
    int sender, receiver, is_send;
    unsigned channel;
    const void *src; /* a send's */
    void *dst;       /* a receive's */
    size_t size;     /* bytes to send, or room to receive; in the end, the message's */
    uint32_t check;  /* the message's word */
    outcome outcome; /* this and `awaited` are guarded by the mutex of the owner's rank */
    int awaited;
} request;

typedef struct endpoint {
    tw_mutex mutex;
    tw_condition condition;    /* some request of this rank has its outcome */
    request *mailbox[BUCKETS]; /* by sender: requests without a partner, oldest first */
    request *spare;
    _Atomic int gone; /* BY_ITSELF, or behind it 1 and the rank because of which; 0: it is there */
} endpoint;

typedef struct group {
    int size;
    _Atomic int references;
    endpoint *endpoints;
} group;

/* One rank of a group: what the transport calls self. */
typedef struct seat {
    group *group;
    int rank;
} seat;

/* --- requests ------------------------------------------------------------------------------------------------ */

static endpoint *home_of(const group *all, const request *one)
{
    return &all->endpoints[one->is_send ? one->sender : one->receiver];
}

static tw_status take_request(endpoint *home, request **taken)
{
    tw_mutex_lock(&home->mutex);
    request *one = home->spare;
    if (one) home->spare = one->next;
    tw_mutex_unlock(&home->mutex);
    if (!one) TW_TRY(tw_allocate(1, sizeof *one, &one));
    *taken = one;
    return TW_OK;
}

static void give_request(endpoint *home, request *one)
{
    tw_mutex_lock(&home->mutex);
    one->next = home->spare;
    home->spare = one;
    tw_mutex_unlock(&home->mutex);
}

/* The request is its owner's again once this returns: it may be used for something else already. */
static void end_request(const group *all, request *one, outcome result, size_t size)
{
    endpoint *home = home_of(all, one);
    tw_mutex_lock(&home->mutex);
    one->size = size;
    one->outcome = result;
    if (one->awaited) tw_condition_wake_all(&home->condition);
    tw_mutex_unlock(&home->mutex);
}

static void deliver(const group *all, request *send, request *receive)
{
    size_t size = send->size;
    int fits = size <= receive->size;
    receive->check = send->check;
    if (fits && size) memcpy(receive->dst, send->src, size);
    end_request(all, send, DONE, size);
    end_request(all, receive, fits ? DONE : TOO_LONG, size);
}

/* --- mailboxes ----------------------------------------------------------------------------------------------- */

/* The link to the oldest request that `one` can pair with; the link at the end when there is none. */
static request **find_partner(endpoint *box, const request *one)
{
    request **link = &box->mailbox[one->sender % BUCKETS];
    while (*link &&
           !((*link)->sender == one->sender && (*link)->channel == one->channel && (*link)->is_send != one->is_send))
        link = &(*link)->next;
    return link;
}

/* Pairs the request or leaves it in the receiver's mailbox. 0 when one of the two ranks is gone. */
static int post(const group *all, request *one)
{
    endpoint *box = &all->endpoints[one->receiver];
    request *partner = NULL;
    tw_mutex_lock(&box->mutex);
    /* leave() marks the rank before it looks through the mailboxes: whoever still reads 0 here is found there. */
    int alive = !all->endpoints[one->sender].gone && !box->gone;
    if (alive) {
        request **link = find_partner(box, one);
        partner = *link;
        *link = partner ? partner->next : one;
    }
    tw_mutex_unlock(&box->mutex);
    if (partner) deliver(all, one->is_send ? one : partner, one->is_send ? partner : one);
    return alive;
}

/* Takes a request back. 0 when it is too late for that: it has been paired and will have its outcome in a moment. */
static int withdraw(const group *all, request *one)
{
    endpoint *box = &all->endpoints[one->receiver];
    tw_mutex_lock(&box->mutex);
    request **link = &box->mailbox[one->sender % BUCKETS];
    while (*link && *link != one) link = &(*link)->next;
    int found = *link != NULL;
    if (found) *link = one->next;
    tw_mutex_unlock(&box->mutex);
    return found;
}

/* Ends every request in a mailbox that has to do with `rank`. */
static void clear_mailbox(const group *all, endpoint *box, int rank)
{
    request *ended = NULL;
    tw_mutex_lock(&box->mutex);
    for (int b = 0; b < BUCKETS; b++)
        for (request **link = &box->mailbox[b]; *link;) {
            request *one = *link;
            if (one->sender != rank && one->receiver != rank) {
                link = &one->next;
                continue;
            }
            *link = one->next;
            one->next = ended;
            ended = one;
        }
    tw_mutex_unlock(&box->mutex);
    while (ended) {
        request *one = ended;
        ended = one->next;
        end_request(all, one, GONE, 0);
    }
}

/* The rank takes no more part: whoever waits for it, now or later, is told. */
static void threads_go(const seat *me, int why)
{
    const group *all = me->group;
    if (!atomic_compare_exchange_strong(&all->endpoints[me->rank].gone, &(int){0}, why)) return;
    for (int r = 0; r < all->size; r++) clear_mailbox(all, &all->endpoints[r], me->rank);
}

static void threads_leave(void *self)
{
    threads_go(self, BY_ITSELF);
}

/* Where the peer gave up because of another, that one is named on; because of this one, it is this rank that goes. */
static void threads_leave_because_of(void *self, int peer)
{
    const seat *me = self;
    int why = me->group->endpoints[peer].gone;
    if (why <= BY_ITSELF) why = BY_ITSELF + 1 + peer;
    threads_go(me, why == BY_ITSELF + 1 + me->rank ? BY_ITSELF : why);
}

/* --- the transport ------------------------------------------------------------------------------------------- */

static tw_status fail_request(const seat *me, int peer, outcome result, double timeout)
{
    int gone = me->group->endpoints[peer].gone;
    switch (result) {
    case LATE:
        return tw_fail(TW_ERROR_PEER, "rank %d did not answer rank %d within %g seconds", peer, me->rank, timeout);
    case TOO_LONG:
        return tw_fail(TW_ERROR_PACKET,
                       "rank %d sent rank %d a message larger than was agreed: every rank must pass the same count",
                       peer, me->rank);
    default:
        if (gone > BY_ITSELF)
            return tw_fail(TW_ERROR_PEER, "rank %d failed: rank %d gave up the group because of it",
                           gone - BY_ITSELF - 1, peer);
        if (gone) return tw_fail(TW_ERROR_PEER, "rank %d has left the group", peer);
        return tw_fail(TW_ERROR_PEER, "this rank, %d, gave up on the group after a failure on another channel",
                       me->rank);
    }
}

static tw_status threads_start(seat *me, int peer, request what, void **handle)
{
    endpoint *home = &me->group->endpoints[me->rank];
    request *one;
    TW_TRY(take_request(home, &one));
    *one = what;
    if (!post(me->group, one)) {
        give_request(home, one);
        return fail_request(me, peer, GONE, 0);
    }
    *handle = one;
    return TW_OK;
}

static tw_status threads_start_send(void *self, int peer, unsigned channel, const void *src, size_t size,
                                    uint32_t check, void **handle)
{
    seat *me = self;
    request what = {.sender = me->rank, .receiver = peer, .is_send = 1, .channel = channel, .src = src, .size = size};
    what.check = check;
    return threads_start(me, peer, what, handle);
}

static tw_status threads_start_recv(void *self, int peer, unsigned channel, void *dst, size_t capacity, void **handle)
{
    seat *me = self;
    request what = {.sender = peer, .receiver = me->rank, .channel = channel, .dst = dst, .size = capacity};
    return threads_start(me, peer, what, handle);
}

/* PENDING when the deadline passed first. */
static outcome sleep_until_settled(endpoint *home, request *one, double deadline)
{
    tw_mutex_lock(&home->mutex);
    one->awaited = 1;
    while (one->outcome == PENDING && tw_condition_wait_until(&home->condition, &home->mutex, deadline)) {
    }
    outcome result = one->outcome;
    tw_mutex_unlock(&home->mutex);
    return result;
}

static int threads_poll_request(void *self, void *handle, double timeout)
{
    const seat *me = self;
    endpoint *home = &me->group->endpoints[me->rank];
    return sleep_until_settled(home, handle, tw_clock() + timeout) != PENDING;
}

static tw_status threads_wait_request(void *self, void *handle, double timeout, size_t *size, uint32_t *check)
{
    seat *me = self;
    request *one = handle;
    endpoint *home = &me->group->endpoints[me->rank];
    int peer = one->is_send ? one->receiver : one->sender;
    double deadline = tw_clock() + timeout;
    outcome result;
    while ((result = sleep_until_settled(home, one, deadline)) == PENDING) {
        if (withdraw(me->group, one)) {
            result = LATE;
            break;
        }
        deadline = tw_clock() + 1; /* a peer is copying it at this moment */
    }
    request ended = *one;
    give_request(home, one);
    if (result != DONE) return fail_request(me, peer, result, timeout);
    *size = ended.size;
    *check = ended.check;
    return TW_OK;
}

/* --- the group ----------------------------------------------------------------------------------------------- */

static void threads_release(group *all)
{
    if (atomic_fetch_sub(&all->references, 1) > 1) return;
    for (int r = 0; r < all->size; r++) {
        endpoint *rank = &all->endpoints[r];
        tw_condition_destroy(&rank->condition);
        tw_mutex_destroy(&rank->mutex);
        while (rank->spare) {
            request *one = rank->spare;
            rank->spare = one->next;
            tw_free(one);
        }
    }
    tw_free(all->endpoints);
    tw_free(all);
}

static void threads_destroy(void *self)
{
    seat *me = self;
    threads_leave(me);
    threads_release(me->group);
    tw_free(me);
}

static const tw_transport_ops threads = {.struct_size = sizeof(tw_transport_ops),
                                         .version = TW_TRANSPORT_VERSION,
                                         .name = "threads",
                                         .start_send = threads_start_send,
                                         .start_recv = threads_start_recv,
                                         .wait = threads_wait_request,
                                         .poll = threads_poll_request,
                                         .leave = threads_leave,
                                         .destroy = threads_destroy,
                                         .leave_because_of = threads_leave_because_of};

static tw_status create_endpoint(endpoint *rank)
{
    TW_TRY(tw_mutex_create(&rank->mutex));
    tw_status status = tw_condition_create(&rank->condition);
    if (status != TW_OK) tw_mutex_destroy(&rank->mutex);
    return status;
}

/* With one reference, the caller's. */
static tw_status create_group(int size, group **created)
{
    group *all;
    TW_TRY(tw_allocate(1, sizeof *all, &all));
    all->references = 1;
    tw_status status = tw_allocate((size_t)size, sizeof *all->endpoints, &all->endpoints);
    while (status == TW_OK && all->size < size) {
        status = create_endpoint(&all->endpoints[all->size]);
        if (status == TW_OK) all->size++;
    }
    if (status == TW_OK)
        *created = all;
    else
        threads_release(all);
    return status;
}

static tw_status threads_join(group *all, int rank, tw_comm **comm)
{
    seat *me;
    TW_TRY(tw_allocate(1, sizeof *me, &me));
    *me = (seat){all, rank};
    atomic_fetch_add(&all->references, 1);
    return tw_comm_create_custom(&threads, me, rank, all->size, comm);
}

static tw_status join_all(group *all, tw_comm **comms)
{
    for (int r = 0; r < all->size; r++) {
        tw_status status = threads_join(all, r, &comms[r]);
        if (status == TW_OK) continue;
        while (r--) tw_comm_destroy(comms[r]);
        return status;
    }
    return TW_OK;
}

tw_status tw_comm_create_threads(int size, tw_comm **comms)
{
    group *all;
    tw_comm **made;
    TW_TRY(tw_need(comms, "comms"));
    if (size < 1 || size > TW_MAX_RANKS)
        return tw_fail(TW_ERROR_ARGUMENT, "a group of %d threads: want 1 to %d", size, TW_MAX_RANKS);
    TW_TRY(create_group(size, &all));
    tw_status status = tw_allocate((size_t)size, sizeof *made, &made);
    if (status == TW_OK) {
        status = join_all(all, made);
        if (status == TW_OK) memcpy(comms, made, (size_t)size * sizeof *made);
        tw_free(made);
    }
    threads_release(all);
    return status;
}
