#include "porter.h"

#include "own_thread.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LONGEST_NAP 1.0 /* how soon one who says nothing is sent away */

struct tcp_porter {
    tcp_reception *reception;
    int size, bell, runs;
    _Atomic int stopped;
    int (*is_whole)(void *context);
    void *context; /* of is_whole */
    pthread_t thread;
};

/* A run that follows this one at the same port may have begun on other machines, while this one still ends here. */
static tcp_reply_kind judge(void *context, const tcp_wish *wish, char text[TCP_REASON])
{
    tcp_porter *porter = context;
    (void)wish;
    if (porter->is_whole(porter->context)) {
        snprintf(text, TCP_REASON,
                 "the group is complete, with all of its %d ranks: either one process too many was started, or another "
                 "run has this port",
                 porter->size);
        return TCP_REFUSED;
    }
    snprintf(text, TCP_REASON,
             "the group of %d ranks that has this port is ending, or goes on without some of them, which it does not "
             "take back",
             porter->size);
    return TCP_LATER;
}

static void *run(void *argument)
{
    tcp_porter *porter = argument;
    while (!porter->stopped) tcp_reception_go_round(porter->reception, LONGEST_NAP);
    tcp_reception_close(porter->reception);
    return NULL;
}

tcp_porter *tcp_porter_create(tcp_reception *reception, int size)
{
    int bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tcp_porter *porter = bell >= 0 ? calloc(1, sizeof *porter) : NULL;
    if (!porter) {
        if (bell >= 0) close(bell);
        tcp_reception_destroy(reception);
        return NULL;
    }
    *porter = (tcp_porter){.reception = reception, .size = size, .bell = bell};
    reception->bell = bell;
    reception->wanted = 1; /* nobody who asks stays */
    reception->judge = judge;
    reception->context = porter;
    reception->door->tell = NULL;
    return porter;
}

void tcp_porter_begin(tcp_porter *porter, int (*is_whole)(void *context), void *context)
{
    porter->is_whole = is_whole;
    porter->context = context;
    porter->runs = tcp_thread_start(&porter->thread, run, porter);
    if (!porter->runs) tcp_reception_close(porter->reception);
}

void tcp_porter_stop(tcp_porter *porter)
{
    uint64_t one = 1;
    if (!porter) return;
    porter->stopped = 1;
    (void)!write(porter->bell, &one, sizeof one);
}

void tcp_porter_destroy(tcp_porter *porter)
{
    if (!porter) return;
    tcp_porter_stop(porter);
    if (porter->runs) pthread_join(porter->thread, NULL);
    tcp_reception_destroy(porter->reception);
    close(porter->bell);
    free(porter);
}
