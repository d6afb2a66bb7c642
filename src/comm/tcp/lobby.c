#include "lobby.h"

#include "peer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALL 3.0  /* seconds, after which a client that does not answer counts as one that cannot be called */
#define FIND 10.0 /* and one whose name no name server knows until then */
#define LOOK 0.05 /* how soon the address is seen that a name server has told */

/* --- those who come ------------------------------------------------------------------------------------------ */

static const char *lobby_admit(void *context, tcp_handshake *handshake, tcp_place place)
{
    tcp_lobby *me = context;
    if (place.from || place.to || place.stream) return "it takes this meeting point for a rank";
    if (me->count == me->room) return "too many come at once";
    tcp_client *one = &me->clients[me->count];
    *one = (tcp_client){.fd = handshake->fd, .rank = -1, .since = tw_clock(), .call = {.fd = -1}};
    tcp_host_name((const struct sockaddr *)&handshake->from, one->host);
    tcp_session_make(me->acceptor->secret, handshake->challenge, handshake->hello, one->client_key, one->own_key);
    if (!tcp_acceptor_answer(me->acceptor, handshake)) return "it hung up";
    tcp_tune(one->fd); /* nothing is said while it waits, and a machine may go without a word */
    me->count++;
    return NULL;
}

static void end_call(tcp_client *one)
{
    tcp_dial_destroy(&one->call);
    if (one->lookup) tcp_lookup_drop(one->lookup);
    if (one->list) freeaddrinfo(one->list);
    one->lookup = NULL;
    one->list = NULL;
}

void tcp_lobby_remove(tcp_lobby *me, int i)
{
    end_call(&me->clients[i]);
    close(me->clients[i].fd);
    free(me->clients[i].reply);
    me->asked -= me->clients[i].is_placed;
    me->count--;
    memmove(&me->clients[i], &me->clients[i + 1], (size_t)(me->count - i) * sizeof *me->clients);
}

void tcp_lobby_turn_away(tcp_lobby *me, int i, tcp_reply_kind kind, const char *reason)
{
    tcp_client *one = &me->clients[i];
    size_t size;
    unsigned char *reply = tcp_reply_write(kind, 0, reason, one->own_key, &size);
    if (reply) (void)!tcp_say(one->fd, reply, size);
    free(reply);
    tcp_acceptor_refuse(me->acceptor, one->host, reason);
    tcp_lobby_remove(me, i);
}

/* --- whether they can be called ------------------------------------------------------------------------------ */

void tcp_call_secret(const unsigned char meeting[TCP_SECRET], const char *address, unsigned char secret[TCP_SECRET])
{
    tcp_secret_make(meeting, TCP_SECRET, "a call back", &address, 1, secret);
}

static void place_client(tcp_lobby *me, tcp_client *one, int behind)
{
    tcp_address address;
    end_call(one);
    one->is_placed = 1;
    me->asked++;
    if (!behind || tcp_address_read(one->wish.address, "its address", &address) != TW_OK) return;
    address.behind = 1;
    tcp_address_write(&address, one->wish.address);
}

/* Once it is known where that is. Nobody else waits for a name server. */
static void begin_dial(tcp_lobby *me, tcp_client *one)
{
    if (!one->lookup || !tcp_lookup_is_over(one->lookup)) return;
    one->list = tcp_lookup_end(one->lookup);
    one->lookup = NULL;
    one->called = tw_clock();
    if (one->list)
        tcp_dial_create(&one->call, (tcp_place){0}, one->list);
    else
        place_client(me, one, 1);
}

/* What it wants can be, and its address too. */
static void begin_call(tcp_lobby *me, tcp_client *one)
{
    tcp_address address;
    if (tcp_address_read(one->wish.address, "its address", &address) != TW_OK || address.behind ||
        !(one->lookup = tcp_lookup_begin(address.host, address.port))) {
        place_client(me, one, 1);
        return;
    }
    one->called = tw_clock();
    begin_dial(me, one);
}

static void go_on_calling(tcp_lobby *me, tcp_client *one, int happened)
{
    unsigned char secret[TCP_SECRET];
    begin_dial(me, one);
    if (one->is_placed) return;
    tcp_call_secret(me->acceptor->secret, one->wish.address, secret);
    if (one->call.state != TCP_IDLE) tcp_dial_serve(&one->call, happened, tw_clock(), secret);
    if (one->call.state == TCP_CONNECTED || tw_clock() > one->called + (one->lookup ? FIND : CALL))
        place_client(me, one, one->call.state != TCP_CONNECTED);
}

static int is_called(const tcp_client *one)
{
    return one->has_asked && !one->is_placed;
}

/* --- what they want ------------------------------------------------------------------------------------------ */

/* 0: it is turned away. */
static int may_stay(tcp_lobby *me, int i, const tcp_wish *wish)
{
    char text[TCP_REASON];
    const tcp_reply_kind kind = me->judge(me->context, wish, text);
    if (kind != TCP_GROUP) tcp_lobby_turn_away(me, i, kind, text);
    return kind == TCP_GROUP;
}

void tcp_lobby_judge_again(tcp_lobby *me)
{
    for (int i = me->count - 1; i >= 0; i--)
        if (me->clients[i].has_asked) (void)may_stay(me, i, &me->clients[i].wish);
}

static void take_wish(tcp_lobby *me, int i)
{
    tcp_client *one = &me->clients[i];
    tcp_wish wish;
    if (!tcp_request_read(one->request, one->client_key, &wish)) {
        tcp_lobby_turn_away(me, i, TCP_REFUSED, "what it wants was changed on its way");
        return;
    }
    if (!may_stay(me, i, &wish)) return;
    one->wish = wish;
    one->has_asked = 1;
    begin_call(me, one);
}

/* Whoever has asked says nothing more, unless it goes. */
static void lobby_hear(tcp_lobby *me, int i)
{
    tcp_client *one = &me->clients[i];
    unsigned char more = 0;
    void *into = one->has_asked ? &more : one->request + one->heard;
    ssize_t bytes = recv(one->fd, into, one->has_asked ? 1 : TCP_REQUEST - one->heard, MSG_DONTWAIT);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (bytes <= 0 || one->has_asked) {
        tcp_lobby_remove(me, i);
        return;
    }
    one->heard += (size_t)bytes;
    if (one->heard == TCP_REQUEST) take_wish(me, i);
}

/* --- one round ----------------------------------------------------------------------------------------------- */

static int list(const tcp_lobby *me, int at_acceptor)
{
    int last = at_acceptor + 2 * me->count;
    for (int i = 0; i < me->count; i++) {
        tcp_client *one = &me->clients[i];
        int under_way = is_called(one) && one->list && tcp_dial_begin(&one->call, tw_clock());
        me->polls[at_acceptor + i] = (struct pollfd){.fd = one->fd, .events = POLLIN};
        me->polls[at_acceptor + me->count + i] = under_way ? tcp_dial_poll(&one->call) : (struct pollfd){.fd = -1};
    }
    me->polls[last] = (struct pollfd){.fd = me->bell, .events = POLLIN}; /* poll passes over -1 */
    return last + 1;
}

static int looks_up(const tcp_lobby *me)
{
    int looks = 0;
    for (int i = 0; i < me->count; i++) looks |= me->clients[i].lookup != NULL;
    return looks;
}

/* No client answers late because this process was stopped, or its machine asleep. */
static void pass_over(tcp_lobby *me, double late)
{
    for (int i = 0; i < me->count; i++) me->clients[i].called += fmax(late, 0);
}

void tcp_lobby_go_round(tcp_lobby *me, double seconds)
{
    if (looks_up(me)) seconds = fmin(seconds, LOOK);
    int at_acceptor = tcp_acceptor_list(me->acceptor, me->polls), there = me->count, listed = list(me, at_acceptor);
    const double begun = tw_clock();
    (void)poll(me->polls, (nfds_t)listed, (int)ceil(seconds * 1e3)); /* after a signal, too, it may be late */
    pass_over(me, tw_clock() - begun - seconds);
    for (int i = there - 1; i >= 0 && me->asked < me->wanted; i--) {
        if (is_called(&me->clients[i])) go_on_calling(me, &me->clients[i], me->polls[at_acceptor + there + i].revents);
        if (me->polls[at_acceptor + i].revents)
            lobby_hear(me, i);
        else if (!me->clients[i].has_asked && tw_clock() > me->clients[i].since + TCP_HELLO_SECONDS)
            tcp_lobby_turn_away(me, i, TCP_REFUSED, "it did not say what it wants in time");
    }
    tcp_acceptor_serve(me->acceptor, me->polls, lobby_admit, me);
}

/* --- the whole ----------------------------------------------------------------------------------------------- */

void tcp_lobby_close(tcp_lobby *me)
{
    while (me->count) tcp_lobby_remove(me, me->count - 1);
    tcp_acceptor_close(me->acceptor);
}

void tcp_lobby_destroy(tcp_lobby *me)
{
    if (!me) return;
    tcp_lobby_close(me);
    free(me->acceptor);
    free(me->clients);
    free(me->polls);
    free(me);
}

tcp_lobby *tcp_lobby_create(tcp_acceptor *acceptor, int room)
{
    tcp_lobby *me = calloc(1, sizeof *me);
    if (!me) {
        tcp_acceptor_close(acceptor);
        free(acceptor);
        return NULL;
    }
    *me = (tcp_lobby){.acceptor = acceptor, .room = room, .bell = -1};
    me->clients = calloc((size_t)room, sizeof *me->clients);
    me->polls = calloc(2 * (size_t)room + TCP_ACCEPTOR_POLLS + 1, sizeof *me->polls);
    if (me->clients && me->polls) return me;
    tcp_lobby_destroy(me);
    return NULL;
}
