/* Bringing a group together: hears what everybody wants, gives out ranks, and tells all of them all addresses. */
#include "latecomers.h"
#include "peer.h"
#include "rendezvous.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_NAP 0.2

typedef struct server {
    tcp_rendezvous *rendezvous;
    tw_tcp *tcp; /* this rank's own listener */
    tcp_lobby *at;
} server;

/* As many have to ask, and then they are the first of the clients. */
static int rendezvous_server_wanted(const server *me)
{
    return me->rendezvous->size - 1;
}

/* --- what they want ------------------------------------------------------------------------------------------ */

static const char *holder_of(const server *me, int rank)
{
    if (me->rendezvous->rank == rank) return "the process at the meeting point";
    for (int i = 0; i < me->at->count; i++)
        if (me->at->clients[i].has_asked && me->at->clients[i].wish.rank == rank) return me->at->clients[i].host;
    return NULL;
}

static int is_sealed(const server *me)
{
    return me->rendezvous->options.sealed != 0;
}

static tcp_reply_kind rendezvous_server_judge(void *context, const tcp_wish *wish, char text[TCP_REASON])
{
    const server *me = context;
    tcp_address address;
    int size = me->rendezvous->size;
    const char *holder = wish->rank >= 0 ? holder_of(me, wish->rank) : NULL;
    if (wish->size != size)
        snprintf(text, TCP_REASON, "this group has %d ranks, not %d", size, wish->size);
    else if (wish->sealed != is_sealed(me))
        snprintf(text, TCP_REASON, "this group %s, and the process that came %s: seal on all ranks or on none (--seal)",
                 is_sealed(me) ? "seals its messages" : "does not seal its messages",
                 wish->sealed ? "does" : "does not");
    else if (wish->rank >= size)
        snprintf(text, TCP_REASON, "this group has ranks 0 to %d, no rank %d", size - 1, wish->rank);
    else if (holder)
        snprintf(text, TCP_REASON, "rank %d is taken, by %s", wish->rank, holder);
    else if (tcp_address_read(wish->address, "its address", &address) != TW_OK)
        snprintf(text, TCP_REASON, "%s", tw_last_error());
    else
        return TCP_GROUP;
    return TCP_REFUSED;
}

/* --- until all are there ------------------------------------------------------------------------------------- */

static tw_status rendezvous_server_give_up(server *me)
{
    char text[TCP_REASON + 256], refused[TCP_TOLD];
    snprintf(text, sizeof text, "%d of %d ranks came to %s within %g seconds", 1 + me->at->asked, me->rendezvous->size,
             me->rendezvous->meeting, me->rendezvous->seconds);
    tcp_acceptor_tell(me->at->acceptor, refused);
    me->at->acceptor->tell = NULL; /* those that came in vain are no strangers */
    while (me->at->count) tcp_lobby_turn_away(me->at, me->at->count - 1, TCP_REFUSED, text);
    return tw_fail(TW_ERROR_PEER, "%s%s", text, refused);
}

static tw_status gather(server *me)
{
    while (me->at->asked < rendezvous_server_wanted(me)) {
        double left = me->rendezvous->deadline - tw_clock();
        if (tcp_is_stopped(&me->rendezvous->options))
            return tw_fail(TW_ERROR_PEER, "joining was stopped by this process's own program");
        if (left <= 0) return rendezvous_server_give_up(me);
        tcp_lobby_go_round(me->at, fmin(left, LONGEST_NAP));
    }
    return TW_OK;
}

/* --- ranks --------------------------------------------------------------------------------------------------- */

/* By address, so that the same machines get the same ranks again; of one machine, first come, first served. Behind them
 * those that are not placed. */
static int in_order(const void *one, const void *other)
{
    const tcp_client *a = one, *b = other;
    int order = a->is_placed != b->is_placed ? b->is_placed - a->is_placed : strverscmp(a->host, b->host);
    return order ? order : (a->since > b->since) - (a->since < b->since);
}

static int is_free(const server *me, int rank)
{
    for (int i = 0; i < rendezvous_server_wanted(me); i++)
        if (me->at->clients[i].rank == rank) return 0;
    return me->rendezvous->rank != rank;
}

static int next_free(const server *me, int rank)
{
    while (!is_free(me, rank)) rank++;
    return rank;
}

static void give_ranks(server *me)
{
    tcp_client *clients = me->at->clients;
    qsort(clients, (size_t)me->at->count, sizeof *clients, in_order);
    for (int i = 0; i < rendezvous_server_wanted(me); i++) clients[i].rank = clients[i].wish.rank;
    if (me->rendezvous->rank < 0) me->rendezvous->rank = next_free(me, 0);
    for (int i = 0, rank = 0; i < rendezvous_server_wanted(me); i++)
        if (clients[i].rank < 0) clients[i].rank = rank = next_free(me, rank);
}

/* --- telling all --------------------------------------------------------------------------------------------- */

static const char *address_of(const server *me, int rank)
{
    for (int i = 0; i < rendezvous_server_wanted(me); i++)
        if (me->at->clients[i].rank == rank) return me->at->clients[i].wish.address;
    return tw_tcp_address(me->tcp);
}

static char *list_addresses(const server *me)
{
    size_t used = 0, room = (size_t)me->rendezvous->size * (TCP_ADDRESS + 1) + 1;
    char *text = malloc(room);
    for (int r = 0; text && r < me->rendezvous->size; r++)
        used += (size_t)snprintf(text + used, room - used, "%s\n", address_of(me, r));
    return text;
}

/* 1 when it has all of it, or will never. */
static int say_some(tcp_client *one)
{
    ssize_t bytes = send(one->fd, one->reply + one->said, one->reply_size - one->said, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (bytes > 0) one->said += (size_t)bytes;
    return one->said == one->reply_size || (bytes < 0 && errno != EAGAIN && errno != EINTR);
}

static int list_unsaid(const server *me)
{
    int unsaid = 0;
    for (int i = 0; i < rendezvous_server_wanted(me); i++)
        if (!say_some(&me->at->clients[i]))
            me->at->polls[unsaid++] = (struct pollfd){.fd = me->at->clients[i].fd, .events = POLLOUT};
    return unsaid;
}

/* And lets them go. */
static tw_status tell_all(server *me, const char *text)
{
    for (int i = 0; i < rendezvous_server_wanted(me); i++) {
        tcp_client *one = &me->at->clients[i];
        one->reply = tcp_reply_write(TCP_GROUP, one->rank, text, one->own_key, &one->reply_size);
        if (!one->reply)
            return tw_fail(TW_ERROR_MEMORY, "no memory to tell %d ranks of each other", me->rendezvous->size);
    }
    for (int unsaid; (unsaid = list_unsaid(me)) && tw_clock() < me->rendezvous->deadline;)
        poll(me->at->polls, (nfds_t)unsaid, (int)(LONGEST_NAP * 1e3));
    for (int i = rendezvous_server_wanted(me) - 1; i >= 0; i--) tcp_lobby_remove(me->at, i);
    return TW_OK;
}

/* --- the whole ----------------------------------------------------------------------------------------------- */

/* From here on the lobby answers whoever is still there or comes later. */
static void hand_over(server *me)
{
    me->tcp->latecomers = tcp_latecomers_create(me->at, me->rendezvous->size);
    me->at = NULL;
}

static tw_status rendezvous_server_introduce(server *me, tw_comm **comm)
{
    give_ranks(me);
    char *text = list_addresses(me);
    if (!text) return tw_fail(TW_ERROR_MEMORY, "no memory for the addresses of %d ranks", me->rendezvous->size);
    tw_status status = tell_all(me, text);
    if (status == TW_OK) {
        tw_tcp *tcp = me->tcp;
        hand_over(me);
        me->tcp = NULL;
        status = tcp_rendezvous_connect(me->rendezvous, tcp, me->rendezvous->rank, text, comm);
    }
    free(text);
    return status;
}

static tw_status receive_all(server *me, tw_comm **comm)
{
    if (!me->at) return tw_fail(TW_ERROR_MEMORY, "no memory to bring %d ranks together", me->rendezvous->size);
    me->at->wanted = me->rendezvous->size - 1;
    me->at->judge = rendezvous_server_judge;
    me->at->context = me;
    TRY(tcp_rendezvous_listen(me->rendezvous, NULL, me->rendezvous->at.host, &me->tcp));
    TRY(gather(me));
    return rendezvous_server_introduce(me, comm);
}

tw_status tcp_rendezvous_serve(tcp_rendezvous *rendezvous, tcp_acceptor *acceptor, tw_comm **comm)
{
    memcpy(acceptor->secret, rendezvous->secret, TCP_SECRET);
    tcp_secret_make(rendezvous->options.key, rendezvous->options.key_size, TCP_OF_MEMBERS, NULL, 0,
                    acceptor->stray_secret);
    acceptor->stray = "it gives no number of workers, and this process does: give workers on all sides or on none";
    acceptor->tell = rendezvous->options.refused;
    acceptor->context = rendezvous->options.context;
    server me = {.rendezvous = rendezvous, .at = tcp_lobby_create(acceptor, rendezvous->size + TCP_HANDSHAKES)};
    tw_status status = receive_all(&me, comm);
    tcp_lobby_destroy(me.at);
    tw_tcp_destroy(me.tcp);
    return status;
}
