/* Connecting a group: each rank goes to those below it, and lets in those above it, all at once in one loop. One that
 * cannot be called goes to all others, and two such go to a third, which carries what they say to each other. */
#include "dial.h"
#include "group.h"
#include "listener.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DIALS = 64 /* under way at a time */, MOST_RANKS = 16384 };

#define LONGEST_NAP 0.2 /* seconds: how soon a caller that wants no more is heard */
#define FAR 5e-3        /* a round trip after which small messages may be larger */
#define LONGEST_DEADLINE 1e9

typedef struct meeting {
    tw_tcp *tcp;
    int rank, size;
    tcp_address *addresses;
    struct addrinfo **lists; /* of the ranks that it calls */
    tcp_dial *dials;
    size_t dial_count, missing;
    int *fds;         /* [rank * TCP_MOST_STREAMS + stream] */
    tcp_relay *relay; /* NULL: no two others need this rank between them */
    unsigned char *far;
    double *round_trips; /* the shortest, of each rank */
    tcp_dial *under_way[DIALS];
    struct pollfd polls[TCP_ACCEPTOR_POLLS + DIALS];
} meeting;

static int streams_of_two(const meeting *all, int one, int other)
{
    int own = all->addresses[one].streams, theirs = all->addresses[other].streams;
    return own < theirs ? own : theirs;
}

static int streams_with(const meeting *all, int peer)
{
    return streams_of_two(all, all->rank, peer);
}

/* --- who calls whom ------------------------------------------------------------------------------------------ */

static int is_behind(const meeting *all, int rank)
{
    return all->addresses[rank].behind;
}

/* Whom both call, where neither can be called: all ranks that can be called take turns at that. -1: there is none. */
static int between(const meeting *all, int one, int other)
{
    int callable = 0;
    for (int r = 0; r < all->size; r++) callable += !is_behind(all, r);
    if (!callable) return -1;
    int turn = (one + other) % callable, rank = 0;
    while (is_behind(all, rank) || turn--) rank++;
    return rank;
}

/* The rank that this one calls for a connection with a peer; -1: it is called. */
static int called_for(const meeting *all, int peer)
{
    if (is_behind(all, all->rank)) return is_behind(all, peer) ? between(all, all->rank, peer) : peer;
    return is_behind(all, peer) || peer > all->rank ? -1 : peer;
}

/* --- connections that hold ----------------------------------------------------------------------------------- */

/* One that comes again has lost the first: its proof is as good. */
static void connect_put(meeting *all, int *place, int fd)
{
    tcp_tune(fd);
    if (*place >= 0)
        close(*place);
    else
        all->missing--;
    *place = fd;
}

static void connect_hold(meeting *all, int peer, uint32_t stream, int fd, double round_trip)
{
    connect_put(all, &all->fds[(size_t)peer * TCP_MOST_STREAMS + stream], fd);
    if (round_trip < all->round_trips[peer]) all->round_trips[peer] = round_trip;
    all->far[peer] = all->round_trips[peer] > FAR;
}

/* --- those who come ------------------------------------------------------------------------------------------ */

/* It comes for a third, which is to come for it. */
static const char *admit_between(meeting *all, const tcp_handshake *handshake, tcp_place place)
{
    int *end = tcp_relay_end(all->relay, place);
    if (!end) return "it takes this rank for another";
    if (!tcp_acceptor_answer(&all->tcp->acceptor, handshake)) return "it hung up";
    connect_put(all, end, handshake->fd);
    return NULL;
}

static const char *connect_admit(void *context, tcp_handshake *handshake, tcp_place place)
{
    meeting *all = context;
    if (place.from >= (uint32_t)all->size || place.from == (uint32_t)all->rank) return "it takes this rank for another";
    if (place.to != (uint32_t)all->rank) return admit_between(all, handshake, place);
    if (called_for(all, (int)place.from) >= 0) return "it takes this rank for another";
    if (place.stream >= (uint32_t)streams_with(all, (int)place.from)) return "it has too many connections";
    if (!tcp_acceptor_answer(&all->tcp->acceptor, handshake)) return "it hung up";
    connect_hold(all, (int)place.from, place.stream, handshake->fd, tw_clock() - handshake->since);
    return NULL;
}

/* --- one round ----------------------------------------------------------------------------------------------- */

static double earlier(double a, double b)
{
    return a < b ? a : b;
}

static int list_dials(meeting *all, struct pollfd *polls, double now, double *wake)
{
    int count = 0;
    for (size_t i = 0; i < all->dial_count && count < DIALS; i++) {
        tcp_dial *dial = &all->dials[i];
        if (tcp_dial_begin(dial, now)) {
            all->under_way[count] = dial;
            polls[count++] = tcp_dial_poll(dial);
        }
        if (dial->state != TCP_CONNECTED) *wake = earlier(*wake, dial->when);
    }
    return count;
}

static void serve_dial(meeting *all, tcp_dial *dial, int happened, double now)
{
    tcp_dial_serve(dial, happened, now, all->tcp->acceptor.secret);
    if (dial->state != TCP_CONNECTED) return;
    int peer = (int)dial->place.to, is_carried = called_for(all, peer) != peer;
    connect_hold(all, peer, dial->place.stream, dial->fd, (1 + is_carried) * dial->round_trip);
    dial->fd = -1;
}

static void go_round(meeting *all, double deadline)
{
    double now = tw_clock(), wake = earlier(deadline, now + LONGEST_NAP);
    int at_acceptor = tcp_acceptor_list(&all->tcp->acceptor, all->polls);
    int dials = list_dials(all, all->polls + at_acceptor, now, &wake);
    int milliseconds = (int)ceil(fmax(wake - now, 0) * 1e3);
    (void)poll(all->polls, (nfds_t)at_acceptor + (nfds_t)dials, milliseconds); /* see tcp_lobby_go_round */
    now = tw_clock();
    for (int i = 0; i < dials; i++) serve_dial(all, all->under_way[i], all->polls[at_acceptor + i].revents != 0, now);
    tcp_acceptor_serve(&all->tcp->acceptor, all->polls, connect_admit, all);
}

/* --- who is missing ------------------------------------------------------------------------------------------ */

static int is_missing(const meeting *all, int peer)
{
    for (int s = 0; s < streams_with(all, peer); s++)
        if (all->fds[(size_t)peer * TCP_MOST_STREAMS + (size_t)s] < 0) return 1;
    return tcp_relay_lacks(all->relay, (uint32_t)peer);
}

static const char *reason_of(const meeting *all, int peer)
{
    for (size_t i = 0; i < all->dial_count; i++)
        if (all->dials[i].place.to == (uint32_t)peer && all->dials[i].state != TCP_CONNECTED && all->dials[i].why)
            return all->dials[i].why;
    if (tcp_relay_lacks(all->relay, (uint32_t)peer))
        return "its connections to others by way of this rank did not come";
    return "it did not come";
}

/* The first few by name, and the verb. In an error they come before this rank: whoever reads it looks for them. */
static void list_missing(const meeting *all, const char *one, const char *several, char *text, size_t room)
{
    int named = 0, more = 0;
    size_t used = 0;
    for (int r = 0; r < all->size; r++) {
        char where[TCP_ADDRESS];
        if (r == all->rank || !is_missing(all, r)) continue;
        if (named == 4) {
            more++;
            continue;
        }
        tcp_meeting_write(&all->addresses[r], where);
        used += (size_t)snprintf(text + used, room - used, "%srank %d at %.80s (%.80s)", named++ ? ", " : "", r, where,
                                 reason_of(all, r));
    }
    if (more) used += (size_t)snprintf(text + used, room - used, " and %d more", more);
    snprintf(text + used, room - used, " %s", named > 1 ? several : one);
}

static tw_status tell_stopped(const meeting *all)
{
    char missing[1024];
    list_missing(all, "was", "were", missing, sizeof missing);
    return tw_fail(TW_ERROR_PEER,
                   "connecting was given up, by its own program or group, before %s connected with rank %d", missing,
                   all->rank);
}

static tw_status tell_missing(const meeting *all, double seconds)
{
    char missing[1024], refused[TCP_TOLD];
    list_missing(all, "is", "are", missing, sizeof missing);
    tcp_acceptor_tell(&all->tcp->acceptor, refused);
    return tw_fail(TW_ERROR_PEER, "%s not connected with rank %d within %g seconds%s", missing, all->rank, seconds,
                   refused);
}

static tw_status connect_all(meeting *all, double seconds)
{
    double deadline = tw_clock() + seconds;
    while (all->missing && tw_clock() < deadline) {
        if (tcp_is_stopped(&all->tcp->options)) return tell_stopped(all);
        go_round(all, deadline);
    }
    return all->missing ? tell_missing(all, seconds) : TW_OK;
}

/* --- the whole ----------------------------------------------------------------------------------------------- */

static tw_status read_addresses(meeting *all, const char *const *addresses)
{
    for (int r = 0; r < all->size; r++) {
        char what[32];
        snprintf(what, sizeof what, "addresses[%d]", r);
        if (!addresses[r]) return tw_fail(TW_ERROR_ARGUMENT, "%s is NULL", what);
        TRY(tcp_address_read(addresses[r], what, &all->addresses[r]));
    }
    const char *own = addresses[all->rank];
    if (strcmp(own, all->tcp->text) == 0) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "addresses[%d] is \"%.100s\", but this rank listens at \"%.100s\"", all->rank,
                   own, all->tcp->text);
}

/* Everything that all must agree on is in the secret: the addresses, with their random numbers, are this group's alone.
 */
static void make_secret(const meeting *all, const char *const *addresses)
{
    const tw_tcp *tcp = all->tcp;
    tcp_secret_make(tcp->key, tcp->options.key_size, "a group's connections", addresses, (size_t)all->size,
                    all->tcp->acceptor.secret);
}

static tw_status make_dials_for(meeting *all, int peer)
{
    int called = called_for(all, peer);
    all->missing += (size_t)streams_with(all, peer);
    if (called < 0 && is_behind(all, all->rank))
        return tw_fail(TW_ERROR_PEER,
                       "ranks %d and %d, and all others, cannot be called: one that can has to take part", all->rank,
                       peer);
    if (called < 0) return TW_OK;
    const tcp_address *there = &all->addresses[called];
    if (!all->lists[called]) TRY(tcp_resolve(there->host, there->port, 0, &all->lists[called]));
    for (int s = 0; s < streams_with(all, peer); s++) {
        tcp_place place = {(uint32_t)all->rank, (uint32_t)peer, (uint32_t)s};
        tcp_dial_create(&all->dials[all->dial_count++], place, all->lists[called]);
    }
    return TW_OK;
}

static tw_status make_dials(meeting *all)
{
    for (int r = 0; r < all->size; r++)
        if (r != all->rank) TRY(make_dials_for(all, r));
    return TW_OK;
}

/* --- what it carries for others ------------------------------------------------------------------------------ */

/* The pairs that go through this rank, told to `relay` where it is not NULL. Returns how many links they have. */
static size_t list_pairs(const meeting *all, tcp_relay *relay)
{
    size_t links = 0;
    for (int low = 0; low < all->size; low++)
        for (int high = low + 1; is_behind(all, low) && high < all->size; high++) {
            if (!is_behind(all, high) || between(all, low, high) != all->rank) continue;
            int streams = streams_of_two(all, low, high);
            for (int s = 0; relay && s < streams; s++)
                tcp_relay_expect(relay, (uint32_t)low, (uint32_t)high, (uint32_t)s);
            links += (size_t)streams;
        }
    return links;
}

static tw_status make_relay(meeting *all)
{
    size_t links = list_pairs(all, NULL);
    if (!links) return TW_OK;
    all->relay = tcp_relay_create(links);
    if (!all->relay) return tw_fail(TW_ERROR_MEMORY, "no memory to carry what other ranks say to each other");
    list_pairs(all, all->relay);
    all->missing += 2 * links;
    return TW_OK;
}

/* One line. */
static void tell_ways(const meeting *all)
{
    char where[TCP_ADDRESS], carried[96] = "";
    int last = -1;
    for (int r = 0; r < all->size; r++)
        if (r != all->rank && is_behind(all, all->rank) && called_for(all, r) != r) last = r;
    if (last >= 0)
        snprintf(carried, sizeof carried, ", and those of its kind through others: rank %d through rank %d", last,
                 called_for(all, last));
    tcp_meeting_write(&all->addresses[all->rank], where);
    if (is_behind(all, all->rank))
        tw_log(TW_LOG_NOTE, "rank %d cannot be called at %s, so it calls the others%s", all->rank, where, carried);
    if (all->relay)
        tw_log(TW_LOG_NOTE, "rank %d carries what ranks say to each other that cannot be called, over %zu connections",
               all->rank, 2 * list_pairs(all, NULL));
}

static void clear(meeting *all)
{
    for (size_t i = 0; i < all->dial_count; i++) tcp_dial_destroy(&all->dials[i]);
    for (int r = 0; all->lists && r < all->size; r++)
        if (all->lists[r]) freeaddrinfo(all->lists[r]);
    for (size_t i = 0; all->fds && i < (size_t)all->size * TCP_MOST_STREAMS; i++)
        if (all->fds[i] >= 0) close(all->fds[i]);
    tcp_relay_destroy(all->relay, 0);
    free(all->addresses);
    free((void *)all->lists);
    free(all->dials);
    free(all->fds);
    free(all->far);
    free(all->round_trips);
    free(all);
}

static tw_status connect_make_room(meeting *all)
{
    size_t size = (size_t)all->size, connections = size * TCP_MOST_STREAMS;
    all->addresses = calloc(size, sizeof *all->addresses);
    all->lists = calloc(size, sizeof *all->lists);
    all->dials = calloc(connections, sizeof *all->dials);
    all->fds = malloc(connections * sizeof *all->fds);
    all->far = calloc(size, 1);
    all->round_trips = malloc(size * sizeof *all->round_trips);
    for (size_t i = 0; all->fds && i < connections; i++) all->fds[i] = -1;
    for (size_t r = 0; all->round_trips && r < size; r++) all->round_trips[r] = (double)INFINITY;
    if (all->addresses && all->lists && all->dials && all->fds && all->far && all->round_trips) return TW_OK;
    return tw_fail(TW_ERROR_MEMORY, "no memory to connect %d ranks", all->size);
}

static tw_status bring_together(meeting *all, const char *const *addresses, double seconds, tw_comm **comm)
{
    TRY(connect_make_room(all));
    TRY(read_addresses(all, addresses));
    make_secret(all, addresses);
    TRY(make_relay(all));
    TRY(make_dials(all));
    TRY(connect_all(all, seconds));
    tcp_latecomers *latecomers = all->tcp->latecomers;
    tcp_relay *relay = all->relay;
    all->tcp->latecomers = NULL;
    tell_ways(all);
    all->relay = NULL;
    return tcp_group_create(all->rank, all->size, all->fds, all->far, all->addresses, all->tcp->is_told_of, latecomers,
                            relay, comm);
}

static tw_status connect_check(const tw_tcp *tcp, int rank, int size, const char *const *addresses, double seconds,
                               tw_comm **comm)
{
    TRY(tw_given(tcp, "tcp"));
    TRY(tw_given(addresses, "addresses"));
    TRY(tw_given(comm, "comm"));
    if (size < 1 || size > MOST_RANKS || rank < 0 || rank >= size)
        return tw_fail(TW_ERROR_ARGUMENT, "rank %d of %d: want 1 to %d ranks, counted from 0", rank, size, MOST_RANKS);
    if (!(seconds > 0 && seconds <= LONGEST_DEADLINE))
        return tw_fail(TW_ERROR_ARGUMENT, "a deadline of %g seconds: want more than 0, at most %g", seconds,
                       LONGEST_DEADLINE);
    if (tcp->used) return tw_fail(TW_ERROR_ORDER, "tw_tcp_connect was called before; listen anew for another group");
    return TW_OK;
}

tw_status tw_tcp_connect(tw_tcp *tcp, int rank, int size, const char *const *addresses, double seconds, tw_comm **comm)
{
    TRY(connect_check(tcp, rank, size, addresses, seconds, comm));
    meeting *all = calloc(1, sizeof *all);
    if (!all) return tw_fail(TW_ERROR_MEMORY, "no memory to connect %d ranks", size);
    all->tcp = tcp;
    all->rank = rank;
    all->size = size;
    tcp->used = 1;
    tw_status status = bring_together(all, addresses, seconds, comm);
    clear(all);
    tcp_acceptor_close(&tcp->acceptor);
    return status;
}
