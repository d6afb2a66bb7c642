/* The transport: requests of many threads, and one thread that moves bytes whether or not anybody waits. */
#include "group.h"

#include "children.h"
#include "own_thread.h"

#include <errno.h>
#include <linux/sockios.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 32 };

#define PARTING 10.0
#define LAST_WORDS 0.5 /* instead of it, after a failure */
#define LONGEST_WAIT 1e9

/* --- what a peer says of another ----------------------------------------------------------------------------- */

/* Whoever waits for one that another has waited for in vain does so, too, but for what it had sent before. Where one
 * has gone instead, each sees that by itself, behind what may still be on its way. */
static void give_up(const tcp_group *group, int rank, int teller)
{
    tcp_peer *peer = &group->peers[rank];
    if (rank == group->rank) return;
    tcp_peer_lock(peer);
    tcp_peer_catch_up(peer);
    tcp_peer_leave(peer, 1 + rank, 0, TCP_GIVEN_UP, rank, teller);
    tcp_peer_unlock(peer);
}

/* After a look at what has come from it. */
static void unlock(const tcp_group *group, tcp_peer *peer)
{
    int silent = peer->waited ? peer->because_of : 0;
    tcp_peer_unlock(peer);
    if (silent) give_up(group, silent - 1, peer->rank);
}

/* --- the thread ---------------------------------------------------------------------------------------------- */

static void serve(const tcp_group *group, tcp_stream *stream, uint32_t events)
{
    tcp_peer *peer = stream->peer;
    tcp_peer_lock(peer);
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) tcp_stream_pull(stream);
    if (events & EPOLLOUT)
        tcp_stream_go_on(stream);
    else
        tcp_stream_push(peer); /* what came may have set something free */
    unlock(group, peer);
}

static void *group_run(void *argument)
{
    const tcp_group *group = argument;
    struct epoll_event events[EVENTS];
    for (;;) {
        int count = epoll_wait(group->poller, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            if (!events[i].data.ptr) return NULL;
            serve(group, events[i].data.ptr, events[i].events);
        }
    }
}

/* --- requests ------------------------------------------------------------------------------------------------ */

static tw_status group_start(const tcp_group *group, int rank, unsigned channel, tcp_request what, void **handle)
{
    tcp_peer *peer = &group->peers[rank];
    tcp_flow *flow;
    tcp_request *one = malloc(sizeof *one);
    if (!one) return tw_fail(TW_ERROR_MEMORY, "no memory for a message on channel %u", channel);
    *one = what;
    one->peer = peer;
    tcp_peer_lock(peer);
    tw_status status = TW_OK;
    if (one->is_send && peer->gone) status = tw_fail(peer->why, "%s", peer->text);
    if (status == TW_OK) status = tcp_flow_of(peer, channel, &flow);
    if (status == TW_OK && one->is_send)
        tcp_outbox_post(flow, one);
    else if (status == TW_OK)
        status = tcp_inbox_post(flow, one);
    if (status == TW_OK) tcp_stream_push(peer);
    unlock(group, peer);
    if (status == TW_OK)
        *handle = one;
    else
        free(one);
    return status;
}

static tw_status group_start_send(void *self, int rank, unsigned channel, const void *src, size_t size, uint32_t check,
                                  void **handle)
{
    return group_start(self, rank, channel, (tcp_request){.is_send = 1, .src = src, .size = size, .check = check},
                       handle);
}

static tw_status group_start_recv(void *self, int rank, unsigned channel, void *dst, size_t capacity, void **handle)
{
    return group_start(self, rank, channel, (tcp_request){.dst = dst, .size = capacity}, handle);
}

static struct timespec time_of(double seconds)
{
    double whole = floor(seconds);
    return (struct timespec){(time_t)whole, (long)((seconds - whole) * 1e9)};
}

/* With the peer's lock. */
static void sleep_until_settled(tcp_group *group, tcp_request *one, double timeout)
{
    struct timespec deadline = time_of(tw_clock() + fmin(timeout, LONGEST_WAIT));
    one->awaited = 1;
    if (one->outcome != TCP_PENDING || timeout <= 0) return;
    group->waits.count++;
    while (one->outcome == TCP_PENDING &&
           pthread_cond_timedwait(&one->peer->changed, &one->peer->mutex, &deadline) != ETIMEDOUT) {
    }
    group->waits.ended = tw_clock();
    group->waits.count--;
}

static int group_poll_request(void *self, void *handle, double timeout)
{
    tcp_request *one = handle;
    tcp_peer_lock(one->peer);
    sleep_until_settled(self, one, timeout);
    int over = one->outcome != TCP_PENDING;
    tcp_peer_unlock(one->peer);
    return over;
}

static tw_status group_tell(const tcp_peer *peer, tcp_outcome outcome, double timeout)
{
    if (outcome == TCP_DONE) return TW_OK;
    if (outcome == TCP_PENDING)
        return tw_fail(TW_ERROR_PEER, "rank %d did not answer within %g seconds", peer->rank, timeout);
    if (outcome == TCP_TOO_LONG)
        return tw_fail(TW_ERROR_PACKET,
                       "rank %d sent a message larger than was agreed: every rank must pass the same count",
                       peer->rank);
    return tw_fail(peer->why, "%s", peer->text);
}

/* With the peer's lock. The request's memory is its owner's again, and the request nobody's. */
static void group_release(tcp_request *one, int pending)
{
    if (pending && one->is_send) {
        tcp_outbox_withdraw(one);
        return;
    }
    if (pending) tcp_inbox_withdraw(one);
    free(one);
}

static tw_status group_wait_request(void *self, void *handle, double timeout, size_t *size, uint32_t *check)
{
    tcp_request *one = handle;
    tcp_peer *peer = one->peer;
    tcp_peer_lock(peer);
    sleep_until_settled(self, one, timeout);
    tcp_outcome outcome = one->outcome;
    *size = one->size;
    if (!one->is_send) *check = one->check;
    tw_status status = group_tell(peer, outcome, timeout);
    group_release(one, outcome == TCP_PENDING);
    if (outcome == TCP_PENDING) tcp_stream_push(peer); /* taking back may have something to say */
    unlock(self, peer);
    return status;
}

static uint64_t count_signs(void *self, int rank, int ask)
{
    const tcp_group *group = self;
    tcp_peer *peer = &group->peers[rank];
    tcp_peer_lock(peer);
    uint64_t signs = tcp_peer_signs(peer, ask);
    unlock(group, peer);
    return signs;
}

static int group_is_busy(void *self, int rank, const char **where)
{
    const tcp_group *group = self;
    tcp_peer *peer = &group->peers[rank];
    tcp_peer_lock(peer);
    const int is_busy = tcp_peer_is_busy(peer);
    *where = peer->place ? peer->place : "";
    unlock(group, peer);
    return is_busy;
}

/* --- the end ------------------------------------------------------------------------------------------------- */

/* because_of: a rank, and 1; 0: none. waited: for it, in vain. */
static void leave_all(tcp_group *group, int because_of, int waited)
{
    group->has_left = 1;
    tcp_latecomers_stop(group->latecomers);
    for (int r = 0; r < group->size; r++) {
        tcp_peer *peer = &group->peers[r];
        if (r == group->rank) continue;
        tcp_peer_lock(peer);
        tcp_peer_leave(peer, because_of, waited, "the exchange with rank %d ended because another one failed", r);
        tcp_peer_unlock(peer);
    }
}

static void group_leave(void *self)
{
    leave_all(self, 0, 0);
}

/* Where the peer gave up because of another, that one is named on; because of this one, it is this rank that goes. */
static void group_leave_because_of(void *self, int rank)
{
    tcp_group *group = self;
    tcp_peer *peer = &group->peers[rank];
    tcp_peer_lock(peer);
    int told = peer->because_of, waited = told ? peer->waited : !peer->gone;
    tcp_peer_unlock(peer);
    leave_all(group, !told ? 1 + rank : told == 1 + group->rank ? 0 : told, waited);
}

static void begin_to_part(tcp_peer *peer)
{
    tcp_peer_lock(peer);
    peer->bye_due = peer->closing = 1;
    tcp_stream_push(peer);
    tcp_peer_unlock(peer);
}

/* What was begun goes out. */
static void group_part(tcp_peer *peer, double deadline)
{
    struct timespec at = time_of(deadline);
    tcp_peer_lock(peer);
    while (!peer->shut && !peer->gone && pthread_cond_timedwait(&peer->changed, &peer->mutex, &at) != ETIMEDOUT) {
    }
    tcp_peer_unlock(peer);
}

/* 1 when the peer's machine has all of it, its end included: nothing that we do can take it away any more. */
static int has_arrived(tcp_peer *peer)
{
    int bytes = 0;
    tcp_peer_lock(peer);
    int all = peer->shut || peer->gone;
    for (int s = 0; s < peer->streams && (peer->has_left || !peer->gone); s++)
        if (ioctl(peer->stream[s].fd, SIOCOUTQ, &bytes) == 0 && bytes > 0) all = 0;
    tcp_peer_unlock(peer);
    return all;
}

/* The system tells nobody when the other side has it, so this looks. */
static int see_it_arrive(tcp_peer *peer, double deadline)
{
    int all;
    while (!(all = has_arrived(peer)) && tw_clock() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = 200 * 1000L}, NULL);
    return all;
}

static void part_from_all(tcp_group *group)
{
    double deadline = tw_clock() + (group->has_left ? LAST_WORDS : group->parting);
    for (int r = 0; r < group->size; r++)
        if (r != group->rank && group->runs) begin_to_part(&group->peers[r]);
    for (int r = 0; r < group->size; r++)
        if (r != group->rank && group->runs) group_part(&group->peers[r], deadline);
    for (int r = 0; r < group->size; r++)
        if (r != group->rank && group->runs && !see_it_arrive(&group->peers[r], deadline) && !group->has_left)
            tw_log(TW_LOG_WARNING, "rank %d: when its comm ended, rank %d had not received all that was sent to it",
                   group->rank, r);
}

static void stop_thread(tcp_group *group)
{
    uint64_t one = 1;
    if (!group->runs) return;
    (void)!write(group->stop, &one, sizeof one);
    pthread_join(group->thread, NULL);
}

static void close_streams(const tcp_peer *peer)
{
    for (int s = 0; s < peer->streams; s++) tcp_close(peer->stream[s].fd);
}

/* Those that it carries part from each other when they like, and perhaps a little later. */
static void end_relay(const tcp_group *group)
{
    uint64_t carried = tcp_relay_destroy(group->relay, group->has_left ? LAST_WORDS : group->parting);
    if (carried)
        tw_log(TW_LOG_NOTE, "rank %d has carried %llu bytes between ranks that cannot call each other", group->rank,
               (unsigned long long)carried);
}

static void group_destroy(void *self)
{
    tcp_group *group = self;
    tcp_latecomers_destroy(group->latecomers);
    part_from_all(group);
    stop_thread(group);
    end_relay(group);
    for (int r = 0; group->peers && r < group->size; r++) {
        tcp_peer_fail(&group->peers[r], TW_ERROR_PEER, "this rank has left the group"); /* frees what was given up */
        close_streams(&group->peers[r]);
        tcp_peer_destroy(&group->peers[r]);
    }
    if (group->poller >= 0) close(group->poller);
    if (group->stop >= 0) close(group->stop);
    free(group->peers);
    free(group);
}

static const tw_transport_ops ops = {.struct_size = sizeof(tw_transport_ops),
                                     .version = TW_TRANSPORT_VERSION,
                                     .name = "tcp",
                                     .start_send = group_start_send,
                                     .start_recv = group_start_recv,
                                     .wait = group_wait_request,
                                     .poll = group_poll_request,
                                     .leave = group_leave,
                                     .destroy = group_destroy,
                                     .signs = count_signs,
                                     .leave_because_of = group_leave_because_of,
                                     .is_busy = group_is_busy};

/* --- who comes too late -------------------------------------------------------------------------------------- */

/* All others are there, and none has said that it goes. */
static int is_whole(void *self)
{
    tcp_group *group = self;
    int all = !group->has_left;
    for (int r = 0; r < group->size; r++) {
        tcp_peer *other = &group->peers[r];
        if (r == group->rank) continue;
        tcp_peer_lock(other);
        tcp_peer_catch_up(other); /* one that has gone, and comes for the next run, may have said so a moment ago */
        tcp_stream_push(other);
        if (other->gone || other->said_bye) all = 0;
        unlock(group, other);
    }
    return all;
}

/* --- the beginning ------------------------------------------------------------------------------------------- */

static int group_watch(int poller, int fd, void *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    return epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) == 0;
}

static int count_streams(const int *fds)
{
    int count = 0;
    while (count < TCP_MOST_STREAMS && fds[count] >= 0) count++;
    return count;
}

/* Takes the connections. */
static int add_streams(tcp_group *group, tcp_peer *peer, int *fds)
{
    int count = count_streams(fds);
    peer->stream = calloc((size_t)count, sizeof *peer->stream);
    if (!peer->stream) return 0;
    peer->poller = group->poller;
    peer->streams = peer->open_streams = count;
    for (int s = 0; s < count; s++) {
        peer->stream[s] = (tcp_stream){.peer = peer, .fd = fds[s], .index = s};
        tcp_keep_from_children(fds[s]);
        fds[s] = -1;
    }
    for (int s = 0; s < count; s++)
        if (!group_watch(group->poller, peer->stream[s].fd, &peer->stream[s])) return 0;
    return 1;
}

static int create_peers(tcp_group *group, int *fds, const unsigned char *far, const tcp_address *places)
{
    group->peers = calloc((size_t)group->size, sizeof *group->peers);
    if (!group->peers) return 0;
    for (int r = 0; r < group->size; r++) tcp_peer_create(&group->peers[r], r, group->size);
    for (int r = 0; r < group->size; r++) {
        tcp_peer *peer = &group->peers[r];
        if (r == group->rank) continue;
        char place[TCP_ADDRESS];
        tcp_meeting_write(&places[r], place);
        peer->place = strdup(place);
        peer->own = &group->waits;
        if (far[r]) peer->eager = TCP_FAR_EAGER, peer->window = TCP_FAR_WINDOW;
        if (!add_streams(group, peer, fds + (size_t)r * TCP_MOST_STREAMS)) return 0;
    }
    return 1;
}

static tw_status group_begin(tcp_group *group, int *fds, const unsigned char *far, const tcp_address *places)
{
    group->poller = epoll_create1(EPOLL_CLOEXEC);
    group->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (group->poller < 0 || group->stop < 0 || !group_watch(group->poller, group->stop, NULL))
        return tw_fail(TW_ERROR_SYSTEM, "the system has no file descriptor left for the group's connections");
    if (!create_peers(group, fds, far, places))
        return tw_fail(TW_ERROR_MEMORY, "no memory for connections to %d ranks", group->size - 1);
    group->runs = tcp_relay_begin(group->relay) && tcp_thread_start(&group->thread, group_run, group);
    if (group->runs && group->latecomers) tcp_latecomers_begin(group->latecomers, is_whole, group);
    return group->runs ? TW_OK : tw_fail(TW_ERROR_SYSTEM, "the system has no thread left for the group's connections");
}

static void close_rest(const int *fds, int size)
{
    for (size_t i = 0; i < (size_t)size * TCP_MOST_STREAMS; i++)
        if (fds[i] >= 0) close(fds[i]);
}

tw_status tcp_group_create(int rank, int size, int *fds, const unsigned char *far, const tcp_address *places,
                           int is_told_of, tcp_latecomers *latecomers, tcp_relay *relay, tw_comm **comm)
{
    tw_transport_ops own = ops;
    tcp_group *group = calloc(1, sizeof *group);
    tw_status status = TW_ERROR_MEMORY;
    if (group) {
        *group = (tcp_group){.rank = rank,
                             .size = size,
                             .poller = -1,
                             .stop = -1,
                             .parting = PARTING,
                             .latecomers = latecomers,
                             .relay = relay};
        status = group_begin(group, fds, far, places);
        if (status != TW_OK) group_destroy(group);
    }
    close_rest(fds, size);
    if (!group) tcp_latecomers_destroy(latecomers);
    if (!group) tcp_relay_destroy(relay, 0);
    if (!group) return tw_fail(TW_ERROR_MEMORY, "no memory for the group's connections");
    own.is_told_of = is_told_of;
    return status == TW_OK ? tw_comm_create_custom(&own, group, rank, size, comm) : status;
}
