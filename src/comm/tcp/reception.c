#include "reception.h"

#include "peer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- those who come ------------------------------------------------------------------------------------------ */

static const char *admit(void *context, tcp_knock *knock, tcp_place place)
{
    tcp_reception *me = context;
    if (place.from || place.to || place.stream) return "it takes this meeting point for a rank";
    if (me->count == me->room) return "too many come at once";
    tcp_visitor *one = &me->visitors[me->count];
    *one = (tcp_visitor){.fd = knock->fd, .rank = -1, .since = tw_clock()};
    tcp_host_name((const struct sockaddr *)&knock->from, one->host);
    tcp_session_make(me->door->secret, knock->challenge, knock->hello, 1, one->own_key);
    tcp_session_make(me->door->secret, knock->challenge, knock->hello, 0, one->visitor_key);
    if (!tcp_door_answer(me->door, knock)) return "it hung up";
    me->count++;
    return NULL;
}

void tcp_reception_remove(tcp_reception *me, int i)
{
    close(me->visitors[i].fd);
    free(me->visitors[i].reply);
    me->asked -= me->visitors[i].has_asked;
    me->count--;
    memmove(&me->visitors[i], &me->visitors[i + 1], (size_t)(me->count - i) * sizeof *me->visitors);
}

void tcp_reception_turn_away(tcp_reception *me, int i, tcp_reply_kind kind, const char *reason)
{
    tcp_visitor *one = &me->visitors[i];
    size_t size;
    unsigned char *reply = tcp_reply_write(kind, 0, reason, one->own_key, &size);
    if (reply) (void)!tcp_say(one->fd, reply, size);
    free(reply);
    tcp_door_refuse(me->door, one->host, reason);
    tcp_reception_remove(me, i);
}

/* --- what they want ------------------------------------------------------------------------------------------ */

static void take_wish(tcp_reception *me, int i)
{
    char text[TCP_REASON];
    tcp_visitor *one = &me->visitors[i];
    tcp_wish wish;
    if (!tcp_request_read(one->request, one->visitor_key, &wish)) {
        tcp_reception_turn_away(me, i, TCP_REFUSED, "what it wants was changed on its way");
        return;
    }
    tcp_reply_kind kind = me->judge(me->context, &wish, text);
    if (kind != TCP_GROUP) {
        tcp_reception_turn_away(me, i, kind, text);
        return;
    }
    one->wish = wish;
    one->has_asked = 1;
    me->asked++;
}

/* Whoever has asked says nothing more, unless it goes. */
static void hear(tcp_reception *me, int i)
{
    tcp_visitor *one = &me->visitors[i];
    unsigned char more = 0;
    void *into = one->has_asked ? &more : one->request + one->heard;
    ssize_t bytes = recv(one->fd, into, one->has_asked ? 1 : TCP_REQUEST - one->heard, MSG_DONTWAIT);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (bytes <= 0 || one->has_asked) {
        tcp_reception_remove(me, i);
        return;
    }
    one->heard += (size_t)bytes;
    if (one->heard == TCP_REQUEST) take_wish(me, i);
}

/* --- one round ----------------------------------------------------------------------------------------------- */

static int list(const tcp_reception *me, int at_door)
{
    int last = at_door + me->count;
    for (int i = 0; i < me->count; i++)
        me->polls[at_door + i] = (struct pollfd){.fd = me->visitors[i].fd, .events = POLLIN};
    me->polls[last] = (struct pollfd){.fd = me->bell, .events = POLLIN}; /* poll passes over -1 */
    return last + 1;
}

void tcp_reception_go_round(tcp_reception *me, double seconds)
{
    int at_door = tcp_door_list(me->door, me->polls), there = me->count, listed = list(me, at_door);
    if (poll(me->polls, (nfds_t)listed, (int)ceil(seconds * 1e3)) < 0) return; /* a signal */
    for (int i = there - 1; i >= 0 && me->asked < me->wanted; i--) {
        if (me->polls[at_door + i].revents)
            hear(me, i);
        else if (!me->visitors[i].has_asked && tw_clock() > me->visitors[i].since + TCP_HELLO_SECONDS)
            tcp_reception_turn_away(me, i, TCP_REFUSED, "it did not say what it wants in time");
    }
    tcp_door_serve(me->door, me->polls, admit, me);
}

/* --- the whole ----------------------------------------------------------------------------------------------- */

void tcp_reception_close(tcp_reception *me)
{
    while (me->count) tcp_reception_remove(me, me->count - 1);
    tcp_door_close(me->door);
}

void tcp_reception_destroy(tcp_reception *me)
{
    if (!me) return;
    tcp_reception_close(me);
    free(me->door);
    free(me->visitors);
    free(me->polls);
    free(me);
}

tcp_reception *tcp_reception_create(tcp_door *door, int room)
{
    tcp_reception *me = calloc(1, sizeof *me);
    if (!me) {
        tcp_door_close(door);
        free(door);
        return NULL;
    }
    *me = (tcp_reception){.door = door, .room = room, .bell = -1};
    me->visitors = calloc((size_t)room, sizeof *me->visitors);
    me->polls = calloc((size_t)room + TCP_DOOR_POLLS + 1, sizeof *me->polls);
    if (me->visitors && me->polls) return me;
    tcp_reception_destroy(me);
    return NULL;
}
