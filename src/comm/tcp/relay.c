#include "relay.h"

#include "children.h"
#include "own_thread.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thinwire/thinwire_plugin.h>

enum { ROOM = 128 * 1024 };

/* What one end has said and the other has not got. */
typedef struct way {
    unsigned char *bytes;
    size_t first, last;
    int ended; /* it says no more */
    int over;  /* and the other end knows */
    int deaf;  /* the other end takes no more: what still comes is let by */
} way;

typedef struct tcp_link {
    uint32_t ranks[2], stream;
    int fds[2];
    way ways[2]; /* from either end */
} tcp_link;

struct tcp_relay {
    tcp_link *links;
    size_t count, polled;
    struct pollfd *polls; /* two of each link, and the bell */
    int bell, runs;
    double end; /* by tw_clock, once it is to end; the bell tells */
    _Atomic int ends;
    uint64_t carried;
    pthread_t thread;
};

/* --- one way ------------------------------------------------------------------------------------------------- */

static int is_empty(const way *one)
{
    return one->first == one->last;
}

static int has_failed(ssize_t bytes)
{
    return bytes < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
}

static void pass_on(tcp_relay *me, way *one, int to)
{
    ssize_t bytes =
        is_empty(one) ? 0 : send(to, one->bytes + one->first, one->last - one->first, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (bytes > 0) {
        one->first += (size_t)bytes;
        me->carried += (uint64_t)bytes;
    }
    if (has_failed(bytes)) one->deaf = 1;
    if (one->deaf) one->first = one->last;
    if (!one->ended || one->over) return; /* it has ended with nothing left: take_in comes after all of it has gone */
    shutdown(to, SHUT_WR);
    one->over = 1;
}

/* Only when nothing is left of what it said before. */
static void take_in(way *one, int from)
{
    ssize_t bytes = recv(from, one->bytes, ROOM, MSG_DONTWAIT);
    one->first = 0;
    one->last = bytes > 0 ? (size_t)bytes : 0;
    if (bytes == 0 || has_failed(bytes)) one->ended = 1;
}

/* --- all of them --------------------------------------------------------------------------------------------- */

static int wants_to_hear(const way *one)
{
    return is_empty(one) && !one->ended;
}

static struct pollfd poll_of(const tcp_link *link, int i)
{
    short events = 0;
    if (wants_to_hear(&link->ways[i])) events |= POLLIN;
    if (!is_empty(&link->ways[!i])) events |= POLLOUT;
    return (struct pollfd){.fd = events ? link->fds[i] : -1, .events = events};
}

/* 1 when all links have parted. */
static int relay_list(tcp_relay *me)
{
    int over = 1;
    for (size_t i = 0; i < me->count; i++) {
        const tcp_link *link = &me->links[i];
        for (int e = 0; e < 2; e++) me->polls[2 * i + (size_t)e] = poll_of(link, e);
        over &= link->ways[0].over && link->ways[1].over;
    }
    me->polls[2 * me->count] = (struct pollfd){.fd = me->ends ? -1 : me->bell, .events = POLLIN};
    return over;
}

static void serve_end(tcp_relay *me, tcp_link *link, int i)
{
    way *own = &link->ways[i], *others = &link->ways[!i];
    pass_on(me, others, link->fds[i]);
    if (wants_to_hear(own)) take_in(own, link->fds[i]);
    pass_on(me, own, link->fds[!i]);
}

static void *relay_run(void *argument)
{
    tcp_relay *me = argument;
    for (int over; (over = relay_list(me), !me->ends || (!over && tw_clock() < me->end));) {
        double nap = me->ends ? fmax(me->end - tw_clock(), 0) * 1e3 : -1;
        if (poll(me->polls, (nfds_t)(2 * me->count + 1), (int)ceil(nap)) < 0) continue; /* a signal */
        for (size_t i = 0; i < 2 * me->count; i++)
            if (me->polls[i].revents) serve_end(me, &me->links[i / 2], (int)(i % 2));
    }
    return NULL;
}

/* --- beginning and end --------------------------------------------------------------------------------------- */

tcp_relay *tcp_relay_create(size_t links)
{
    tcp_relay *me = calloc(1, sizeof *me);
    if (!me) return NULL;
    me->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    me->links = calloc(links, sizeof *me->links);
    me->polls = calloc(2 * links + 1, sizeof *me->polls);
    if (me->bell >= 0 && me->links && me->polls) return me;
    tcp_relay_destroy(me, 0);
    return NULL;
}

void tcp_relay_expect(tcp_relay *me, uint32_t low, uint32_t high, uint32_t stream)
{
    me->links[me->count++] = (tcp_link){.ranks = {low, high}, .stream = stream, .fds = {-1, -1}};
}

int *tcp_relay_end(tcp_relay *me, tcp_place place)
{
    int side = place.from > place.to;
    for (size_t i = 0; me && i < me->count; i++) {
        tcp_link *link = &me->links[i];
        if (link->ranks[side] == place.from && link->ranks[!side] == place.to && link->stream == place.stream)
            return &link->fds[side];
    }
    return NULL;
}

int tcp_relay_lacks(const tcp_relay *me, uint32_t rank)
{
    for (size_t i = 0; me && i < 2 * me->count; i++)
        if (me->links[i / 2].ranks[i % 2] == rank && me->links[i / 2].fds[i % 2] < 0) return 1;
    return 0;
}

static int make_ways(tcp_relay *me)
{
    for (size_t i = 0; i < 2 * me->count; i++) {
        tcp_link *link = &me->links[i / 2];
        tcp_keep_from_children(link->fds[i % 2]);
        link->ways[i % 2].bytes = malloc(ROOM);
        if (!link->ways[i % 2].bytes) return 0;
    }
    return 1;
}

int tcp_relay_begin(tcp_relay *me)
{
    if (me) me->runs = make_ways(me) && tcp_thread_start(&me->thread, relay_run, me);
    return !me || me->runs;
}

static void close_link(const tcp_link *link)
{
    for (int e = 0; e < 2; e++) {
        if (link->fds[e] >= 0) tcp_close(link->fds[e]);
        free(link->ways[e].bytes);
    }
}

uint64_t tcp_relay_destroy(tcp_relay *me, double seconds)
{
    uint64_t carried = 0, one = 1;
    if (!me) return 0;
    if (me->runs) {
        me->end = tw_clock() + seconds;
        me->ends = 1;
        (void)!write(me->bell, &one, sizeof one);
        pthread_join(me->thread, NULL);
        carried = me->carried;
    }
    for (size_t i = 0; i < me->count; i++) close_link(&me->links[i]);
    if (me->bell >= 0) close(me->bell);
    free(me->links);
    free(me->polls);
    free(me);
    return carried;
}
