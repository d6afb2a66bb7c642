#include "lookup.h"

#include "own_thread.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* Whoever comes second of the thread, which is over, and the other, who drops it, frees it. */
enum { GOES_ON, OVER, DROPPED };

struct tcp_lookup {
    char host[TCP_HOST];
    int port;
    struct addrinfo *list;
    _Atomic int state;
};

static void lookup_free(tcp_lookup *me)
{
    if (me->list) freeaddrinfo(me->list);
    free(me);
}

static void look_up(tcp_lookup *me, int flags)
{
    if (tcp_resolve(me->host, me->port, flags, &me->list) != TW_OK) me->list = NULL;
}

static void *lookup_run(void *argument)
{
    tcp_lookup *me = argument;
    look_up(me, 0);
    if (atomic_exchange(&me->state, OVER) == DROPPED) lookup_free(me);
    return NULL;
}

tcp_lookup *tcp_lookup_begin(const char *host, int port)
{
    pthread_t thread;
    tcp_lookup *me = calloc(1, sizeof *me);
    if (!me) return NULL;
    snprintf(me->host, sizeof me->host, "%s", host);
    me->port = port;
    look_up(me, AI_NUMERICHOST);
    if (me->list) {
        me->state = OVER;
    } else if (tcp_thread_start(&thread, lookup_run, me)) {
        pthread_detach(thread);
    } else {
        lookup_free(me);
        return NULL;
    }
    return me;
}

int tcp_lookup_is_over(const tcp_lookup *me)
{
    return me->state == OVER;
}

struct addrinfo *tcp_lookup_end(tcp_lookup *me)
{
    struct addrinfo *list = me->list;
    free(me);
    return list;
}

void tcp_lookup_drop(tcp_lookup *me)
{
    if (atomic_exchange(&me->state, DROPPED) == OVER) lookup_free(me);
}
