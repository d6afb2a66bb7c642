#include "peer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

void tcp_peer_create(tcp_peer *peer, int rank, int ranks)
{
    pthread_condattr_t steady;
    *peer = (tcp_peer){.rank = rank, .ranks = ranks, .poller = -1, .eager = TCP_EAGER, .window = TCP_WINDOW};
    pthread_mutex_init(&peer->mutex, NULL); /* these do not fail with such attributes */
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&peer->changed, &steady);
    pthread_condattr_destroy(&steady);
}

void tcp_peer_destroy(tcp_peer *peer)
{
    for (tcp_flow *flow = peer->flows, *next; flow; flow = next) {
        next = flow->other;
        tcp_flow_free(flow);
    }
    free(peer->place);
    free(peer->stream);
    pthread_cond_destroy(&peer->changed);
    pthread_mutex_destroy(&peer->mutex);
}

void tcp_peer_lock(tcp_peer *peer)
{
    pthread_mutex_lock(&peer->mutex);
}

void tcp_peer_unlock(tcp_peer *peer)
{
    int wake = peer->wake;
    peer->wake = 0;
    pthread_mutex_unlock(&peer->mutex);
    if (wake) pthread_cond_broadcast(&peer->changed);
}

/* Its sockets stay open until the whole transport goes, so that no number is used for two. */
static void peer_cut(tcp_peer *peer)
{
    for (int s = 0; s < peer->streams; s++) {
        if (peer->poller >= 0) epoll_ctl(peer->poller, EPOLL_CTL_DEL, peer->stream[s].fd, NULL);
        shutdown(peer->stream[s].fd, SHUT_RDWR);
    }
}

static void forget_under_way(tcp_peer *peer)
{
    for (int s = 0; s < peer->streams; s++) {
        peer->stream[s].slot = NULL;
        peer->stream[s].out_count = 0;
    }
}

static void end_all(tcp_peer *peer, tw_status why)
{
    peer->why = why;
    peer->gone = 1;
    peer->wake = 1;
    for (tcp_flow *flow = peer->flows; flow; flow = flow->other) tcp_flow_fail(flow);
    forget_under_way(peer);
}

void tcp_peer_fail(tcp_peer *peer, tw_status why, const char *format, ...)
{
    va_list arguments;
    if (peer->gone) return;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it was begun in the line before */
    vsnprintf(peer->text, sizeof peer->text, format, arguments);
    va_end(arguments);
    peer_cut(peer);
    end_all(peer, why);
}

int tcp_peer_violated(tcp_peer *peer, const char *rule)
{
    tcp_peer_fail(peer, TW_ERROR_PACKET, "rank %d sent what no rank sends: %s", peer->rank, rule);
    return 0;
}

/* Unless it would stand in the middle of another frame. */
static void say_bye(const tcp_stream *stream, int because_of, int waited)
{
    unsigned char header[TCP_FRAME_BYTES];
    tcp_frame_write(&(tcp_frame){.kind = TCP_BYE, .size = (uint64_t)because_of, .seq = (uint64_t)waited}, header);
    if (!stream->out_count || !stream->out[stream->out_first].done)
        (void)!send(stream->fd, header, sizeof header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void tcp_peer_leave(tcp_peer *peer, int because_of, int waited, const char *format, ...)
{
    va_list arguments;
    if (peer->gone) return;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it was begun in the line before */
    vsnprintf(peer->text, sizeof peer->text, format, arguments);
    va_end(arguments);
    peer->has_left = 1;
    say_bye(&peer->stream[0], because_of, waited);
    for (int s = 0; s < peer->streams; s++) shutdown(peer->stream[s].fd, SHUT_WR);
    end_all(peer, TW_ERROR_PEER);
}
