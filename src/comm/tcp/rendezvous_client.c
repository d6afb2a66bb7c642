/* Going to a meeting point, and waiting there for the group. */
#include "dial.h"
#include "lobby.h"
#include "peer.h"
#include "rendezvous.h"
#include "rendezvous_message.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONGEST_NAP 0.2
#define PUT_OFF 0.5 /* seconds */
enum { TRIALS = 12 /* proofs that are turned away one after the other, in some ten seconds */ };

typedef struct client {
    const tcp_rendezvous *rendezvous;
    tcp_dial dial;
    tw_tcp *tcp; /* this rank's own listener */
    unsigned char own_key[TCP_SECRET], server_key[TCP_SECRET];
    unsigned char *reply;
    size_t size, heard;
    int turned_away;
    int was_called; /* at its own address, by the server */
    int put_off;    /* and that is told */
    int told;       /* that nobody answers */
    int met;        /* somebody has */
    int left;       /* who listened there has gone before it answered */
    int may_serve;  /* the meeting point is on this machine */
} client;

static tw_status rendezvous_client_give_up(const client *me)
{
    const tcp_rendezvous *rendezvous = me->rendezvous;
    const char *why = me->dial.why ? me->dial.why : rendezvous->why;
    const int is_in_the_way = me->may_serve && !me->met;
    return tw_fail(
        TW_ERROR_PEER, "nobody brought the group together at %s within %g seconds (%s): %s", rendezvous->meeting,
        rendezvous->seconds, why ? why : "it said nothing",
        me->left        ? "a process that listened there let this one in, and went before the group was complete; what "
                          "it said tells why: start all of them again"
        : is_in_the_way ? "this process would listen there, and another program has that port; choose another "
                          "port, on all sides"
                        : "start the process that listens there, on the machine with that address");
}

/* TW_OK: there is time left. */
static tw_status look_at_clock(const client *me)
{
    if (tcp_is_stopped(&me->rendezvous->options))
        return tw_fail(TW_ERROR_PEER, "joining was stopped by this process's own program");
    return tw_clock() < me->rendezvous->deadline ? TW_OK : rendezvous_client_give_up(me);
}

/* Whether something happened at a socket before it was time to look up. */
static int wait_a_little(struct pollfd socket, double until)
{
    double nap = fmin(fmax(until - tw_clock(), 0), LONGEST_NAP);
    return poll(&socket, socket.fd >= 0, (int)ceil(nap * 1e3)) > 0;
}

/* --- the way there ------------------------------------------------------------------------------------------- */

/* The last trial found nobody, at the last of the addresses. */
static int is_deserted(const client *me)
{
    const tcp_dial *dial = &me->dial;
    return me->may_serve && dial->state == TCP_IDLE && dial->why && !dial->answered && dial->next == dial->list;
}

/* Said once, to those who may have the wrong port. */
static void tell_deserted(client *me)
{
    char line[TCP_NOBODY_TEXT];
    const tcp_rendezvous *all = me->rendezvous;
    const double waited = tw_clock() - (all->deadline - all->seconds);
    if (me->told || me->met || (me->may_serve && !me->dial.answered) || waited < tcp_soon(all->seconds)) return;
    if (!tcp_dial_tell(&me->dial, tw_clock(), all->meeting, tcp_soon(all->seconds), line)) return;
    me->told = 1;
    if (all->options.refused) all->options.refused(all->options.context, line);
}

/* Or finds that nobody is there. */
static tw_status reach_server(client *me)
{
    tcp_dial *dial = &me->dial;
    while (dial->state != TCP_CONNECTED && !is_deserted(me)) {
        tell_deserted(me); /* also where the time is up since the last look */
        TRY(look_at_clock(me));
        int trying = tcp_dial_begin(dial, tw_clock()), proving = dial->state == TCP_PROVING;
        struct pollfd idle = {.fd = -1};
        int happened = wait_a_little(trying ? tcp_dial_poll(dial) : idle, dial->when);
        if (trying) tcp_dial_serve(dial, happened, tw_clock(), me->rendezvous->secret);
        me->turned_away += proving && dial->state == TCP_IDLE;
        if (me->turned_away == TRIALS) return tw_fail(TW_ERROR_PEER, TCP_TURNED_AWAY, me->rendezvous->meeting);
    }
    me->turned_away = 0;
    me->met = 1;
    tcp_session_make(me->rendezvous->secret, dial->challenge, dial->hello, me->own_key, me->server_key);
    return TW_OK;
}

static tw_status listen_here(client *me)
{
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    char host[TCP_NAME];
    if (getsockname(me->dial.fd, (struct sockaddr *)&own, &size) != 0)
        return tw_fail(TW_ERROR_SYSTEM, "this process's own address is unknown: %s", strerror(errno));
    tcp_host_name((const struct sockaddr *)&own, host);
    TRY(tcp_rendezvous_listen(me->rendezvous, host, host, &me->tcp));
    tcp_call_secret(me->rendezvous->secret, tw_tcp_address(me->tcp), me->tcp->acceptor.secret);
    return TW_OK;
}

/* --- what is said there -------------------------------------------------------------------------------------- */

static int say_wish(const client *me)
{
    unsigned char bytes[TCP_REQUEST];
    tcp_wish wish = {
        .size = me->rendezvous->size, .rank = me->rendezvous->rank, .sealed = me->rendezvous->options.sealed != 0};
    strcpy(wish.address, tw_tcp_address(me->tcp));
    tcp_request_write(&wish, me->own_key, bytes);
    return tcp_say(me->dial.fd, bytes, sizeof bytes);
}

/* The head first, which says how long the rest is. 0: no memory, or it is none. */
static int rendezvous_client_make_room(client *me)
{
    size_t rest = me->size ? tcp_reply_rest(me->reply) : 0, size = me->size ? me->size + rest : TCP_REPLY_HEAD;
    unsigned char *larger = me->size && !rest ? NULL : realloc(me->reply, size);
    if (!larger) return 0;
    me->reply = larger;
    me->size = size;
    return 1;
}

/* One look. *gone: the server is. */
static void hear_some(client *me, int *gone)
{
    ssize_t bytes = recv(me->dial.fd, me->reply + me->heard, me->size - me->heard, MSG_DONTWAIT);
    if (bytes > 0) me->heard += (size_t)bytes;
    *gone = bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR);
}

static const char *admit_call(void *context, tcp_handshake *handshake, tcp_place place)
{
    client *me = context;
    (void)place;
    if (!tcp_acceptor_answer(&me->tcp->acceptor, handshake)) return "it hung up";
    close(handshake->fd);
    me->was_called = 1;
    return NULL;
}

/* Whether there is something of the reply. Until then the server may see whether this process can be called; and when
 * it has, those who come are the other ranks, and wait until this one knows of them. */
static int wait_for_reply(client *me)
{
    struct pollfd polls[TCP_ACCEPTOR_POLLS + 1] = {{.fd = me->dial.fd, .events = POLLIN}};
    int listed = me->was_called ? 0 : tcp_acceptor_list(&me->tcp->acceptor, polls + 1);
    double nap = fmin(fmax(me->rendezvous->deadline - tw_clock(), 0), LONGEST_NAP);
    (void)poll(polls, (nfds_t)listed + 1, (int)ceil(nap * 1e3)); /* see tcp_lobby_go_round */
    if (!me->was_called) tcp_acceptor_serve(&me->tcp->acceptor, polls + 1, admit_call, me);
    return polls[0].revents != 0;
}

static tw_status hear_reply(client *me, int *gone)
{
    me->size = me->heard = 0;
    me->was_called = me->tcp->address.behind;
    *gone = !rendezvous_client_make_room(me);
    while (!*gone && me->heard < me->size) {
        TRY(look_at_clock(me));
        if (wait_for_reply(me)) hear_some(me, gone);
        if (me->heard == TCP_REPLY_HEAD && me->size == TCP_REPLY_HEAD && !rendezvous_client_make_room(me)) *gone = 1;
    }
    return TW_OK;
}

/* Said once. */
static void tell_put_off(client *me, const char *text)
{
    char line[TCP_REASON + TCP_HOST];
    const tw_tcp_options *options = &me->rendezvous->options;
    if (!me->put_off && options->refused) {
        snprintf(line, sizeof line, "this process waits: %s (said by %s)", text, me->rendezvous->meeting);
        options->refused(options->context, line);
    }
    me->put_off = 1;
}

static void hang_up(client *me, const char *why, double pause)
{
    const struct addrinfo *list = me->dial.list;
    tcp_dial_destroy(&me->dial);
    tcp_dial_create(&me->dial, me->dial.place, list);
    me->dial.why = why;
    me->dial.when = tw_clock() + pause;
}

static tw_status join_group(client *me, int rank, char *text, tw_comm **comm)
{
    tw_tcp *tcp = me->tcp;
    tcp_dial_destroy(&me->dial);
    me->tcp = NULL;
    return tcp_rendezvous_connect(me->rendezvous, tcp, rank, text, comm);
}

/* *over: not if it is put off. */
static tw_status follow_reply(client *me, int *over, tw_comm **comm)
{
    tcp_reply_kind kind;
    int rank;
    char *text;
    *over = 1;
    if (!tcp_reply_read(me->reply, me->size, me->server_key, &kind, &rank, &text))
        return tw_fail(TW_ERROR_PACKET, "the answer from %s was changed on its way", me->rendezvous->meeting);
    if (kind == TCP_REFUSED) return tw_fail(TW_ERROR_PEER, "%s (said by %s)", text, me->rendezvous->meeting);
    if (kind == TCP_GROUP) return join_group(me, rank, text, comm);
    *over = 0;
    tell_put_off(me, text);
    hang_up(me, "a group that is ending, or has lost some of its ranks, has that port", PUT_OFF);
    me->dial.answered = 1;
    return TW_OK;
}

static tw_status rendezvous_client_speak(client *me, int *over, tw_comm **comm)
{
    int gone;
    tcp_tune(me->dial.fd); /* as in the lobby */
    if (!me->tcp) TRY(listen_here(me));
    gone = !say_wish(me);
    if (!gone) TRY(hear_reply(me, &gone));
    if (!gone) return follow_reply(me, over, comm);
    me->left = 1;
    hang_up(me, "what listened there has gone", 0);
    return TW_OK;
}

/* A server that goes away before it has answered may come again. */
static tw_status visit(client *me, tw_comm **comm)
{
    for (int over = 0; !over;) {
        TRY(reach_server(me));
        if (is_deserted(me)) return TW_OK;
        TRY(rendezvous_client_speak(me, &over, comm));
    }
    return TW_OK;
}

tw_status tcp_rendezvous_ask(tcp_rendezvous *rendezvous, int may_serve, int *is_free, tw_comm **comm)
{
    struct addrinfo *list;
    client me = {.rendezvous = rendezvous, .may_serve = may_serve};
    TRY(tcp_resolve(rendezvous->at.host, rendezvous->at.port, 0, &list));
    tcp_dial_create(&me.dial, (tcp_place){0}, list);
    tw_status status = visit(&me, comm);
    *is_free = status == TW_OK && is_deserted(&me);
    tcp_dial_destroy(&me.dial);
    tw_tcp_destroy(me.tcp);
    free(me.reply);
    freeaddrinfo(list);
    return status;
}
