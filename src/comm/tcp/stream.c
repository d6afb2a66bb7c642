#include "peer.h"

#include "address.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define LATELY 2.5 /* seconds: it is asked every second */

enum {
    MOST_WRITTEN = 256 * 1024, /* bytes that a system call is given */
    WRITES = 4                 /* system calls of one push: who calls has other things to do */
};

static void listen_for(tcp_stream *stream)
{
    struct epoll_event event = {.data.ptr = stream};
    if (!stream->closed) event.events |= EPOLLIN;
    if (stream->waits_for_room) event.events |= EPOLLOUT;
    if (!event.events) event.events = EPOLLET; /* the end of a connection is told again and again, asked or not */
    if (stream->peer->poller >= 0) epoll_ctl(stream->peer->poller, EPOLL_CTL_MOD, stream->fd, &event);
}

static void wait_for_room(tcp_stream *stream, int wait)
{
    if (stream->waits_for_room == wait) return;
    stream->waits_for_room = wait;
    listen_for(stream);
}

static void fail_by(const tcp_stream *stream, int error)
{
    tcp_peer *peer = stream->peer;
    if (peer->because_of)
        tcp_peer_fail(peer, TW_ERROR_PEER, TCP_GIVEN_UP, peer->because_of - 1, peer->rank);
    else if (peer->said_bye)
        tcp_peer_fail(peer, TW_ERROR_PEER, "rank %d has left the group%s%s", peer->rank,
                      peer->place ? "; it was at " : "", peer->place ? peer->place : "");
    else
        tcp_peer_fail(peer, TW_ERROR_PEER, "the connection to rank %d is lost: %s", peer->rank,
                      error ? strerror(error) : "its process has ended");
}

/* --- writing ------------------------------------------------------------------------------------------------- */

static tcp_outgoing *frame_at(tcp_stream *stream, int i)
{
    return &stream->out[(stream->out_first + i) % TCP_BATCH];
}

static void stream_fill(tcp_stream *stream)
{
    size_t bytes = 0;
    for (int i = 0; i < stream->out_count; i++) bytes += frame_at(stream, i)->length;
    while (stream->out_count < TCP_BATCH && bytes < MOST_WRITTEN) {
        tcp_outgoing *frame = frame_at(stream, stream->out_count);
        if (!tcp_outbox_next(stream->peer, stream->index, frame)) return;
        bytes += frame->length;
        stream->out_count++;
    }
}

/* What is left of a frame, in one or two pieces. */
static int list_frame(const tcp_outgoing *frame, struct iovec *pieces)
{
    int count = 0;
    size_t skipped = 0;
    if (frame->done < TCP_FRAME_BYTES)
        pieces[count++] =
            (struct iovec){(void *)(uintptr_t)(frame->header + frame->done), TCP_FRAME_BYTES - frame->done};
    else
        skipped = frame->done - TCP_FRAME_BYTES;
    if (frame->length > skipped) {
        const unsigned char *bytes = tcp_outbox_bytes(frame->message, frame->offset + skipped);
        pieces[count++] = (struct iovec){(void *)(uintptr_t)bytes, frame->length - skipped};
    }
    return count;
}

static void note_written(tcp_stream *stream, size_t bytes)
{
    while (stream->out_count) {
        tcp_outgoing *frame = frame_at(stream, 0);
        size_t left = TCP_FRAME_BYTES + frame->length - frame->done, taken = bytes < left ? bytes : left;
        frame->done += taken;
        bytes -= taken;
        if (taken < left) return;
        stream->out_first = (stream->out_first + 1) % TCP_BATCH;
        stream->out_count--;
        if (frame->message) tcp_outbox_written(frame->message);
    }
}

/* It takes nothing more from here, but what it sent before it went may be here unread. Nothing is waited for: a
 * connection that is over brings what there is, and then its end. */
static void hear_the_rest(tcp_stream *stream, int error)
{
    while (!stream->peer->gone && !stream->closed) tcp_stream_pull(stream);
    fail_by(stream, error);
}

/* One system call. 0 when there is nothing to write, or no room for it. */
static int write_some(tcp_stream *stream)
{
    struct iovec pieces[2 * TCP_BATCH];
    struct msghdr message = {.msg_iov = pieces};
    stream_fill(stream);
    for (int i = 0; i < stream->out_count; i++)
        message.msg_iovlen += (size_t)list_frame(frame_at(stream, i), pieces + message.msg_iovlen);
    if (!message.msg_iovlen) return 0;
    ssize_t written = sendmsg(stream->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    int error = errno;
    if (written >= 0)
        note_written(stream, (size_t)written);
    else if (error == EAGAIN || error == EWOULDBLOCK)
        wait_for_room(stream, 1);
    else if (error == EPIPE || error == ECONNRESET)
        hear_the_rest(stream, error);
    else if (error != EINTR)
        fail_by(stream, error);
    return written >= 0 || error == EINTR;
}

/* Behind the last byte, and once. */
static void shut(tcp_peer *peer)
{
    if (peer->gone || peer->shut || !tcp_outbox_is_empty(peer)) return;
    for (int s = 0; s < peer->streams; s++) shutdown(peer->stream[s].fd, SHUT_WR);
    peer->shut = 1;
    peer->wake = 1;
}

void tcp_stream_push(tcp_peer *peer)
{
    for (int s = 0; s < peer->streams && !peer->gone; s++) {
        tcp_stream *stream = &peer->stream[s];
        int writes = 0;
        if (stream->waits_for_room) continue;
        while (writes < WRITES && !peer->gone && write_some(stream)) writes++;
        if (!peer->gone && writes == WRITES) wait_for_room(stream, 1); /* the poller goes on with it */
    }
    if (peer->closing) shut(peer);
}

uint64_t tcp_peer_signs(tcp_peer *peer, int ask)
{
    if (ask && !peer->asked && !peer->gone && !peer->closing) {
        peer->ask_due = peer->asked = 1;
        tcp_stream_push(peer);
    }
    return peer->signs;
}

static void note_moved(const tcp_peer *peer)
{
    if (peer->own) peer->own->moved = tw_clock();
}

/* While messages move, it is a line that is waited for. */
int tcp_peer_is_busy(tcp_peer *peer)
{
    const double since = tw_clock() - LATELY;
    const int is_busy = !peer->gone && !peer->asked && peer->is_busy && peer->answered >= since &&
                        !(peer->own && peer->own->moved >= since);
    (void)tcp_peer_signs(peer, 1);
    return is_busy;
}

void tcp_stream_go_on(tcp_stream *stream)
{
    wait_for_room(stream, 0);
    if (stream->peer->gone) return;
    stream->peer->signs++;
    note_moved(stream->peer);
    tcp_stream_push(stream->peer);
}

/* --- reading ------------------------------------------------------------------------------------------------- */

/* What is said without a message. However often a peer asks, it is answered once what came has been read. */
static int take_word(tcp_peer *peer, const tcp_frame *frame)
{
    if (frame->kind == TCP_ASK) peer->here_due = 1;
    if (frame->kind == TCP_HERE) {
        peer->asked = 0;
        peer->is_busy = frame->size == TCP_IS_BUSY;
        peer->answered = tw_clock();
    }
    return frame->kind == TCP_ASK || frame->kind == TCP_HERE;
}

static int take_bye(tcp_peer *peer, const tcp_frame *frame)
{
    if (frame->size > (uint64_t)peer->ranks) return tcp_peer_violated(peer, "it leaves because of a rank that is none");
    peer->said_bye = 1;
    peer->because_of = (int)frame->size;
    peer->waited = frame->seq != 0;
    return 1;
}

static int take_frame(tcp_stream *stream, const tcp_frame *frame)
{
    tcp_peer *peer = stream->peer;
    if (take_word(peer, frame)) return 1;
    if (frame->kind == TCP_BYE) return take_bye(peer, frame);
    tcp_flow *flow;
    tw_status status = tcp_flow_of(peer, frame->channel, &flow);
    if (status != TW_OK) {
        tcp_peer_fail(peer, status, "%s", tw_last_error());
        return 0;
    }
    if (frame->kind == TCP_READY || frame->kind == TCP_CREDIT) return tcp_outbox_take(peer, frame, flow);
    if (!tcp_inbox_take(peer, frame, flow, &stream->slot)) return 0;
    stream->flow = flow;
    stream->at = (size_t)frame->offset;
    stream->left = frame->length;
    return 1;
}

static int read_header(tcp_stream *stream)
{
    tcp_frame frame;
    const unsigned char *header = stream->stage + stream->read;
    if (stream->staged - stream->read < TCP_FRAME_BYTES) return 0;
    stream->read += TCP_FRAME_BYTES;
    if (tcp_frame_read(header, &frame)) return take_frame(stream, &frame);
    tcp_peer_fail(stream->peer, TW_ERROR_PACKET, "rank %d sent what no rank sends: a header that cannot be",
                  stream->peer->rank);
    return 0;
}

static void note_arrived(tcp_stream *stream, size_t bytes)
{
    tcp_slot *slot = stream->slot;
    note_moved(stream->peer);
    stream->at += bytes;
    stream->left -= bytes;
    if (stream->left == 0) stream->slot = NULL;
    tcp_inbox_arrived(stream->flow, slot, bytes);
}

static void look_through_stage(tcp_stream *stream)
{
    while (stream->read < stream->staged && !stream->peer->gone) {
        if (!stream->slot) {
            if (!read_header(stream)) break;
            continue;
        }
        size_t there = stream->staged - stream->read, bytes = there < stream->left ? there : stream->left;
        unsigned char *target = tcp_inbox_target(stream->slot, stream->at);
        if (target) memcpy(target, stream->stage + stream->read, bytes);
        stream->read += bytes;
        note_arrived(stream, bytes);
    }
    stream->staged -= stream->read;
    memmove(stream->stage, stream->stage + stream->read, stream->staged);
    stream->read = 0;
}

/* When it has said that it leaves, other connections may still bring something. */
static void note_end(tcp_stream *stream)
{
    tcp_peer *peer = stream->peer;
    stream->closed = 1;
    peer->open_streams--;
    listen_for(stream);
    if (peer->open_streams == 0 || stream->slot || stream->staged) fail_by(stream, 0);
}

/* Whoever closes a connection with something unread in it takes away what the other has not read yet. */
static void let_by(tcp_stream *stream)
{
    ssize_t bytes = stream->closed ? 1 : recv(stream->fd, stream->stage, sizeof stream->stage, MSG_DONTWAIT);
    if (bytes > 0 || (bytes < 0 && (errno == EAGAIN || errno == EINTR))) return;
    stream->closed = 1;
    if (stream->peer->poller >= 0) epoll_ctl(stream->peer->poller, EPOLL_CTL_DEL, stream->fd, NULL);
}

size_t tcp_stream_pull(tcp_stream *stream)
{
    if (stream->peer->has_left) let_by(stream);
    if (stream->peer->gone || stream->closed) return 0;
    /* Straight to where they belong, and what lies behind them into the stage. */
    unsigned char *target = stream->slot ? tcp_inbox_target(stream->slot, stream->at) : NULL;
    struct iovec pieces[2] = {{target, stream->left},
                              {stream->stage + stream->staged, sizeof stream->stage - stream->staged}};
    ssize_t bytes = target ? readv(stream->fd, pieces, 2) : readv(stream->fd, pieces + 1, 1);
    if (bytes > 0) {
        size_t there = (size_t)bytes, direct = there < stream->left ? there : stream->left;
        stream->peer->signs++;
        stream->staged += target ? there - direct : there;
        if (target) note_arrived(stream, direct);
        look_through_stage(stream);
    } else if (bytes == 0)
        note_end(stream);
    else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        fail_by(stream, errno);
    return bytes > 0 ? (size_t)bytes : 0;
}

/* What comes meanwhile is left where it is, so that one which goes on sending keeps nobody here. */
static void catch_up(tcp_stream *stream)
{
    int there = 0;
    ioctl(stream->fd, FIONREAD, &there);
    for (size_t left = (size_t)there, got; left > 0 && (got = tcp_stream_pull(stream)) > 0;)
        left -= got < left ? got : left;
}

void tcp_peer_catch_up(tcp_peer *peer)
{
    for (int s = 0; s < peer->streams && !peer->gone; s++) catch_up(&peer->stream[s]);
}
