/* folder - thinwire over files in a shared folder, for machines that cannot reach each other.
 *
 * A message is a file, "m-FROM-TO-CHANNEL-NUMBER", which the receiver removes. Numbers count the messages of a channel
 * from one rank to another, so that they are read in their order, whichever comes first. Nobody is woken: who waits
 * looks again, after ever longer naps. A rank that leaves says so, because of whom, and how many messages of each
 * channel it has sent, by a file, "gone-RANK", which may come before these: what copies folders begins with the small
 * ones. One that dies says nothing, and the deadline does. */
#include "bytes.h"
#include "check.h"
#include "meeting.h"
#include "store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <thinwire/thinwire_folder.h>
#include <thinwire/thinwire_plugin.h>

#define SEND_SECONDS 60.0 /* a server that stands still is waited for, since no deadline is told with a send */
#define FAREWELL_SECONDS 5.0

enum {
    BY_ITSELF = 1,
    RECORD = 16,            /* bytes of a farewell for a channel: to whom, which, how many messages */
    MOST_RECORDS = 16 << 20 /* and for all of them */
};

typedef enum outcome { PENDING, DONE, TOO_LONG } outcome;

typedef struct flow flow;

/* A send is over when it begins: its bytes are in the folder. */
typedef struct request {
    struct request *next; /* of a flow's receives */
    flow *from;           /* NULL: a send, or a receive that is over */
    int peer;
    void *dst;
    size_t size; /* room; in the end, the message's bytes */
    uint32_t check;
    outcome outcome;
    int saw_part; /* of the message that it waits for, and no more */
    int lost;     /* nobody will send it any more: as why_gone, also for a wait that follows a poll at once */
} request;

/* The messages of a channel between this rank and another. */
struct flow {
    flow *next;
    int peer;
    unsigned channel;
    unsigned long long sent, received;
    unsigned long long written; /* of those that were sent, the first ones, whose files are in the folder */
    request *oldest;            /* receives that have no message yet, in their order */
};

typedef struct transport {
    store at;
    int rank;
    uint64_t session;
    _Atomic int has_left;
    pthread_mutex_t lock; /* of the flows and their receives */
    flow *flows;
} transport;

/* ---- names ---- */

static void name_message(int from, int to, unsigned channel, unsigned long long number, char name[STORE_NAME])
{
    snprintf(name, STORE_NAME, "m-%d-%d-%u-%llu", from, to, channel, number);
}

static void name_farewell(int rank, char name[STORE_NAME])
{
    snprintf(name, STORE_NAME, "gone-%d", rank);
}

/* ---- farewells ---- */

typedef struct farewell {
    int why; /* 0: the rank is there. BY_ITSELF, or behind it 1 and the rank because of which it has left */
    unsigned char *records;
    size_t size;
} farewell;

/* Its records are the caller's to free. */
static farewell read_farewell(const transport *me, int peer, double seconds)
{
    char name[STORE_NAME];
    store_header header;
    farewell read = {.why = 0};
    name_farewell(peer, name);
    store_found found = store_read(&me->at, name, NULL, 0, seconds, &header);
    if (found == STORE_LONG && header.size <= MOST_RECORDS) {
        read.size = (size_t)header.size;
        read.records = malloc(read.size);
        found = read.records ? store_read(&me->at, name, read.records, read.size, seconds, &header) : STORE_ABSENT;
    }
    if (found == STORE_WHOLE && header.session == me->session && header.size == read.size)
        read.why = BY_ITSELF + (header.check <= FOLDER_RANKS ? (int)header.check : 0);
    return read;
}

static int why_gone(const transport *me, int peer, double seconds)
{
    farewell read = read_farewell(me, peer, seconds);
    free(read.records);
    return read.why;
}

static unsigned long long sent_by(const farewell *read, int to, unsigned channel)
{
    for (size_t at = 0; at + RECORD <= read->size; at += RECORD)
        if (tw_get(read->records + at, 4) == (uint64_t)to && tw_get(read->records + at + 4, 4) == channel)
            return tw_get(read->records + at + 8, 8);
    return 0;
}

/* Under the lock. Without memory it lists nothing as sent. */
static unsigned char *list_records(const transport *me, size_t *size)
{
    size_t count = 0;
    for (const flow *one = me->flows; one; one = one->next) count++;
    unsigned char *records = count ? malloc(count * RECORD) : NULL, *at = records;
    for (const flow *one = me->flows; records && one; one = one->next, at += RECORD) {
        tw_put(at, (uint64_t)one->peer, 4);
        tw_put(at + 4, one->channel, 4);
        tw_put(at + 8, one->written, 8);
    }
    *size = records ? count * RECORD : 0;
    return records;
}

/* ---- flows ---- */

/* Under the lock. NULL: no memory. */
static flow *find_flow(transport *me, int peer, unsigned channel)
{
    flow *one = me->flows;
    while (one && !(one->peer == peer && one->channel == channel)) one = one->next;
    if (one) return one;
    one = calloc(1, sizeof *one);
    if (!one) return NULL;
    *one = (flow){.next = me->flows, .peer = peer, .channel = channel};
    return me->flows = one;
}

static tw_status no_memory(void)
{
    return tw_fail(TW_ERROR_MEMORY, "no memory for a message");
}

static request **end_of(request **link)
{
    while (*link) link = &(*link)->next;
    return link;
}

static void take_out(request *one)
{
    if (!one->from) return;
    request **link = &one->from->oldest;
    while (*link != one) link = &(*link)->next;
    *link = one->next;
    one->from = NULL;
}

/* Gives the messages that are there to the receives that wait, oldest first. Under the lock. */
static void progress(transport *me, flow *from, double seconds)
{
    while (from->oldest) {
        char name[STORE_NAME];
        store_header header;
        request *one = from->oldest;
        name_message(from->peer, me->rank, from->channel, from->received, name);
        store_found found = store_read(&me->at, name, one->dst, one->size, seconds, &header);
        one->saw_part = found == STORE_PARTIAL;
        if (found == STORE_ABSENT || found == STORE_PARTIAL || header.session != me->session) return;
        one->outcome = found == STORE_WHOLE ? DONE : TOO_LONG;
        one->size = header.size;
        one->check = header.check;
        take_out(one);
        from->received++;
        me->at.ops->remove(me->at.self, name);
    }
}

static outcome look(transport *me, request *one, double seconds)
{
    pthread_mutex_lock(&me->lock);
    if (one->from) progress(me, one->from, seconds);
    outcome now = one->outcome;
    pthread_mutex_unlock(&me->lock);
    return now;
}

/* Whether its message had been sent before that farewell, so that it will come. */
static int was_sent(transport *me, const request *one, const farewell *read)
{
    pthread_mutex_lock(&me->lock);
    const flow *from = one->from;
    unsigned long long number = from ? from->received : 0;
    for (const request *before = from ? from->oldest : one; before != one; before = before->next) number++;
    const int was = !from || number < sent_by(read, me->rank, from->channel);
    pthread_mutex_unlock(&me->lock);
    return was;
}

/* As why_gone, but 0 where the message that is waited for is on its way. */
static int why_lost(transport *me, const request *one, double seconds)
{
    farewell read = read_farewell(me, one->peer, seconds);
    const int why = read.why && !was_sent(me, one, &read) ? read.why : 0;
    free(read.records);
    return why;
}

/* What it has become within `seconds`. */
static outcome wait_for(transport *me, request *one, double seconds)
{
    double end = tw_clock() + seconds, nap = 0;
    outcome now;
    while ((now = look(me, one, end - tw_clock())) == PENDING && !one->lost && tw_clock() < end) {
        one->lost = me->has_left ? BY_ITSELF : why_lost(me, one, end - tw_clock());
        /* It looks once more: its message may have come before the farewell was read. */
        if (!one->lost) folder_nap(&me->at, &nap, end);
    }
    return now;
}

/* ---- the transport ---- */

static void note_written(transport *me, flow *to, unsigned long long number)
{
    pthread_mutex_lock(&me->lock);
    if (to->written == number) to->written++;
    pthread_mutex_unlock(&me->lock);
}

static tw_status folder_start_send(void *self, int peer, unsigned channel, const void *src, size_t size, uint32_t check,
                                   void **handle)
{
    transport *me = self;
    char name[STORE_NAME];
    const store_header header = {check, me->session, size};
    request *made = calloc(1, sizeof *made);
    pthread_mutex_lock(&me->lock);
    flow *to = made ? find_flow(me, peer, channel) : NULL;
    const unsigned long long number = to ? to->sent++ : 0;
    pthread_mutex_unlock(&me->lock);
    name_message(me->rank, peer, channel, number, name);
    tw_status status = to ? store_write(&me->at, name, &header, src, SEND_SECONDS) : no_memory();
    if (status == TW_OK) note_written(me, to, number);
    if (status != TW_OK) {
        free(made);
        return status;
    }
    *made = (request){.peer = peer, .size = size, .check = check, .outcome = DONE};
    *handle = made;
    return TW_OK;
}

static tw_status folder_start_recv(void *self, int peer, unsigned channel, void *dst, size_t capacity, void **handle)
{
    transport *me = self;
    request *made = calloc(1, sizeof *made);
    pthread_mutex_lock(&me->lock);
    flow *from = made ? find_flow(me, peer, channel) : NULL;
    if (from) {
        *made = (request){.from = from, .peer = peer, .dst = dst, .size = capacity};
        *end_of(&from->oldest) = made;
    }
    pthread_mutex_unlock(&me->lock);
    if (from) {
        *handle = made;
        return TW_OK;
    }
    free(made);
    return no_memory();
}

static tw_status explain(const transport *me, const request *one, outcome now, double timeout)
{
    char reason[STORE_REASON];
    if (now == TOO_LONG)
        return tw_fail(
            TW_ERROR_PACKET,
            "rank %d sent a message of %zu bytes, for which there is no room: every rank must pass the same count",
            one->peer, one->size);
    if (me->has_left) return tw_fail(TW_ERROR_PEER, "this rank, %d, has left the group in %s", me->rank, me->at.path);
    if (one->lost > BY_ITSELF)
        return tw_fail(TW_ERROR_PEER, "rank %d failed: rank %d gave up the group in %s because of it",
                       one->lost - BY_ITSELF - 1, one->peer, me->at.path);
    if (one->lost) return tw_fail(TW_ERROR_PEER, "rank %d has left the group in %s", one->peer, me->at.path);
    if (one->saw_part)
        return tw_fail(TW_ERROR_PEER, "the message of rank %d in %s is not whole after %g seconds", one->peer,
                       me->at.path, timeout);
    me->at.ops->tell(me->at.self, reason);
    return tw_fail(TW_ERROR_PEER, "no message of rank %d came to %s within %g seconds%s", one->peer, me->at.path,
                   timeout, reason);
}

static tw_status folder_wait(void *self, void *handle, double timeout, size_t *size, uint32_t *check)
{
    transport *me = self;
    request *one = handle;
    wait_for(me, one, timeout);
    pthread_mutex_lock(&me->lock);
    take_out(one);
    outcome now = one->outcome; /* another thread may have read it meanwhile */
    pthread_mutex_unlock(&me->lock);
    *size = one->size;
    *check = one->check;
    tw_status status = now == DONE ? TW_OK : explain(me, one, now, timeout);
    free(one);
    return status;
}

static int folder_poll(void *self, void *handle, double timeout)
{
    request *one = handle;
    return wait_for(self, one, timeout) != PENDING || one->lost;
}

/* 1 and a rank; 0: it is this rank that goes. Where the peer gave up because of another, that one is named on. */
static uint32_t because_of(const transport *me, int peer)
{
    int why = why_gone(me, peer, FAREWELL_SECONDS), because = why > BY_ITSELF ? why - BY_ITSELF : 1 + peer;
    return because == 1 + me->rank ? 0 : (uint32_t)because;
}

/* peer: because of whom; -1: of none. */
static void folder_go(transport *me, int peer)
{
    char name[STORE_NAME];
    if (atomic_exchange(&me->has_left, 1)) return;
    store_header header = {peer < 0 ? 0 : because_of(me, peer), me->session, 0};
    pthread_mutex_lock(&me->lock);
    size_t size;
    unsigned char *records = list_records(me, &size);
    pthread_mutex_unlock(&me->lock);
    header.size = size;
    name_farewell(me->rank, name);
    store_write(&me->at, name, &header, records, FAREWELL_SECONDS);
    free(records);
}

static void folder_leave(void *self)
{
    folder_go(self, -1);
}

static void folder_leave_because_of(void *self, int peer)
{
    folder_go(self, peer);
}

static void folder_destroy(void *self)
{
    transport *me = self;
    folder_leave(me);
    while (me->flows) {
        flow *next = me->flows->next;
        free(me->flows);
        me->flows = next;
    }
    pthread_mutex_destroy(&me->lock);
    store_close(&me->at);
    free(me);
}

static const tw_transport_ops folder_ops = {.struct_size = sizeof(tw_transport_ops),
                                            .version = TW_TRANSPORT_VERSION,
                                            .name = "folder",
                                            .start_send = folder_start_send,
                                            .start_recv = folder_start_recv,
                                            .wait = folder_wait,
                                            .poll = folder_poll,
                                            .leave = folder_leave,
                                            .destroy = folder_destroy,
                                            .leave_because_of = folder_leave_because_of};

/* ---- joining ---- */

static void remove_own(const store *at, int rank)
{
    char prefix[STORE_NAME];
    snprintf(prefix, sizeof prefix, "m-%d-", rank);
    at->ops->remove_all(at->self, prefix);
    snprintf(prefix, sizeof prefix, ".m-%d-", rank);
    at->ops->remove_all(at->self, prefix);
}

static tw_status check_group(int rank, int size, double seconds)
{
    if (size < 1 || size > FOLDER_RANKS || rank < 0 || rank >= size)
        return tw_fail(TW_ERROR_ARGUMENT, "rank %d of %d in a folder: want 1 to %d ranks, and each a number from 0 on",
                       rank, size, FOLDER_RANKS);
    if (!(seconds > 0 && seconds <= 1e9))
        return tw_fail(TW_ERROR_ARGUMENT, "a deadline of %g seconds: want more than 0, at most 1e9", seconds);
    return TW_OK;
}

tw_status tw_folder_join(const char *path, int rank, int size, double seconds, tw_folder_stopped stopped, void *context,
                         tw_comm **comm)
{
    const folder_limits limits = {seconds, stopped, context};
    store at;
    uint64_t session;
    TRY(tw_given(path, "path"));
    TRY(tw_given(comm, "comm"));
    TRY(check_group(rank, size, seconds));
    TRY(store_open(path, &at));
    tw_status status = folder_meet(&at, rank, size, &limits, &session);
    transport *made = status == TW_OK ? calloc(1, sizeof *made) : NULL;
    if (!made) {
        store_close(&at);
        return status == TW_OK ? no_memory() : status;
    }
    remove_own(&at, rank); /* no earlier: whoever meets nobody may be a stray beside a group that runs */
    *made = (transport){.at = at, .rank = rank, .session = session};
    pthread_mutex_init(&made->lock, NULL);
    return tw_comm_create_custom(&folder_ops, made, rank, size, comm);
}
