/* Bringing a group together: hears what everybody wants, gives out ranks, and tells all of them all addresses. */
#include "join.h"
#include "peer.h"
#include "porter.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_NAP 0.2

typedef struct host {
    tcp_joining *joining;
    tw_tcp *tcp; /* this rank's own listener */
    tcp_reception *at;
} host;

/* As many have to ask, and then they are the first of the visitors. */
static int guests(const host *me)
{
    return me->joining->size - 1;
}

/* --- what they want ------------------------------------------------------------------------------------------ */

static const char *holder_of(const host *me, int rank)
{
    if (me->joining->rank == rank) return "the process at the meeting point";
    for (int i = 0; i < me->at->count; i++)
        if (me->at->visitors[i].has_asked && me->at->visitors[i].wish.rank == rank) return me->at->visitors[i].host;
    return NULL;
}

static int is_sealed(const host *me)
{
    return me->joining->options.sealed != 0;
}

static tcp_reply_kind judge(void *context, const tcp_wish *wish, char text[TCP_REASON])
{
    const host *me = context;
    tcp_address address;
    int size = me->joining->size;
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

static tw_status give_up(host *me)
{
    char text[TCP_REASON + 256], refused[TCP_REASON + 128] = "";
    const tcp_door *door = me->at->door;
    snprintf(text, sizeof text, "%d of %d ranks came to %s within %g seconds", 1 + me->at->asked, me->joining->size,
             me->joining->meeting, me->joining->seconds);
    if (door->refused)
        snprintf(refused, sizeof refused,
                 "; %llu attempts to connect were refused, of processes that try again and again; the last: %s",
                 (unsigned long long)door->refused, door->last);
    me->at->door->tell = NULL; /* those that came in vain are no strangers */
    while (me->at->count) tcp_reception_turn_away(me->at, me->at->count - 1, TCP_REFUSED, text);
    return tw_fail(TW_ERROR_PEER, "%s%s", text, refused);
}

static tw_status gather(host *me)
{
    while (me->at->asked < guests(me)) {
        double left = me->joining->deadline - tw_clock();
        if (tcp_is_stopped(&me->joining->options))
            return tw_fail(TW_ERROR_PEER, "joining was stopped by this process's own program");
        if (left <= 0) return give_up(me);
        tcp_reception_go_round(me->at, fmin(left, LONGEST_NAP));
    }
    return TW_OK;
}

/* --- ranks --------------------------------------------------------------------------------------------------- */

/* By address, so that the same machines get the same ranks again; of one machine, first come, first served. Behind them
 * those that have not asked. */
static int in_order(const void *one, const void *other)
{
    const tcp_visitor *a = one, *b = other;
    int order = a->has_asked != b->has_asked ? b->has_asked - a->has_asked : strverscmp(a->host, b->host);
    return order ? order : (a->since > b->since) - (a->since < b->since);
}

static int is_free(const host *me, int rank)
{
    for (int i = 0; i < guests(me); i++)
        if (me->at->visitors[i].rank == rank) return 0;
    return me->joining->rank != rank;
}

static int next_free(const host *me, int rank)
{
    while (!is_free(me, rank)) rank++;
    return rank;
}

static void give_ranks(host *me)
{
    tcp_visitor *visitors = me->at->visitors;
    qsort(visitors, (size_t)me->at->count, sizeof *visitors, in_order);
    for (int i = 0; i < guests(me); i++) visitors[i].rank = visitors[i].wish.rank;
    if (me->joining->rank < 0) me->joining->rank = next_free(me, 0);
    for (int i = 0, rank = 0; i < guests(me); i++)
        if (visitors[i].rank < 0) visitors[i].rank = rank = next_free(me, rank);
}

/* --- telling all --------------------------------------------------------------------------------------------- */

static const char *address_of(const host *me, int rank)
{
    for (int i = 0; i < guests(me); i++)
        if (me->at->visitors[i].rank == rank) return me->at->visitors[i].wish.address;
    return tw_tcp_address(me->tcp);
}

static char *list_addresses(const host *me)
{
    size_t used = 0, room = (size_t)me->joining->size * (TCP_ADDRESS + 1) + 1;
    char *text = malloc(room);
    for (int r = 0; text && r < me->joining->size; r++)
        used += (size_t)snprintf(text + used, room - used, "%s\n", address_of(me, r));
    return text;
}

/* 1 when it has all of it, or will never. */
static int say_some(tcp_visitor *one)
{
    ssize_t bytes = send(one->fd, one->reply + one->said, one->reply_size - one->said, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (bytes > 0) one->said += (size_t)bytes;
    return one->said == one->reply_size || (bytes < 0 && errno != EAGAIN && errno != EINTR);
}

static int list_unsaid(const host *me)
{
    int unsaid = 0;
    for (int i = 0; i < guests(me); i++)
        if (!say_some(&me->at->visitors[i]))
            me->at->polls[unsaid++] = (struct pollfd){.fd = me->at->visitors[i].fd, .events = POLLOUT};
    return unsaid;
}

/* And lets them go. */
static tw_status tell_all(host *me, const char *text)
{
    for (int i = 0; i < guests(me); i++) {
        tcp_visitor *one = &me->at->visitors[i];
        one->reply = tcp_reply_write(TCP_GROUP, one->rank, text, one->own_key, &one->reply_size);
        if (!one->reply) return tw_fail(TW_ERROR_MEMORY, "no memory to tell %d ranks of each other", me->joining->size);
    }
    for (int unsaid; (unsaid = list_unsaid(me)) && tw_clock() < me->joining->deadline;)
        poll(me->at->polls, (nfds_t)unsaid, (int)(LONGEST_NAP * 1e3));
    for (int i = guests(me) - 1; i >= 0; i--) tcp_reception_remove(me->at, i);
    return TW_OK;
}

/* --- the whole ----------------------------------------------------------------------------------------------- */

/* The reception becomes the porter's, for whoever is still there or comes later. */
static void hand_over(host *me)
{
    me->tcp->porter = tcp_porter_create(me->at, me->joining->size);
    me->at = NULL;
}

static tw_status introduce(host *me, tw_comm **comm)
{
    give_ranks(me);
    char *text = list_addresses(me);
    if (!text) return tw_fail(TW_ERROR_MEMORY, "no memory for the addresses of %d ranks", me->joining->size);
    tw_status status = tell_all(me, text);
    if (status == TW_OK) {
        tw_tcp *tcp = me->tcp;
        hand_over(me);
        me->tcp = NULL;
        status = tcp_join_group(me->joining, tcp, me->joining->rank, text, comm);
    }
    free(text);
    return status;
}

static tw_status receive_all(host *me, tw_comm **comm)
{
    if (!me->at) return tw_fail(TW_ERROR_MEMORY, "no memory to bring %d ranks together", me->joining->size);
    me->at->wanted = me->joining->size - 1;
    me->at->judge = judge;
    me->at->context = me;
    TRY(tcp_join_listen(me->joining, NULL, me->joining->at.host, &me->tcp));
    TRY(gather(me));
    return introduce(me, comm);
}

tw_status tcp_join_as_host(tcp_joining *joining, tcp_door *door, tw_comm **comm)
{
    memcpy(door->secret, joining->secret, TCP_SECRET);
    door->tell = joining->options.refused;
    door->context = joining->options.context;
    host me = {.joining = joining, .at = tcp_reception_create(door, joining->size + TCP_KNOCKS)};
    tw_status status = receive_all(&me, comm);
    tcp_reception_destroy(me.at);
    tw_tcp_destroy(me.tcp);
    return status;
}
