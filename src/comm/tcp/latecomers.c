#include "latecomers.h"

#include "own_thread.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LONGEST_NAP 1.0 /* how soon one who says nothing is sent away */

struct tcp_latecomers {
    tcp_lobby *lobby;
    int size, bell, runs;
    _Atomic int stopped;
    int (*is_whole)(void *context);
    void *context; /* of is_whole */
    pthread_t thread;
};

/* A run that follows this one at the same port may have begun on other machines, while this one still ends here. */
static tcp_reply_kind latecomers_judge(void *context, const tcp_wish *wish, char text[TCP_REASON])
{
    tcp_latecomers *latecomers = context;
    (void)wish;
    if (latecomers->is_whole(latecomers->context)) {
        snprintf(text, TCP_REASON,
                 "the group is complete, with all of its %d ranks: either one process too many was started, or another "
                 "run has this port",
                 latecomers->size);
        return TCP_REFUSED;
    }
    snprintf(text, TCP_REASON,
             "the group of %d ranks that has this port is ending, or goes on without some of them, which it does not "
             "take back",
             latecomers->size);
    return TCP_LATER;
}

static void *latecomers_run(void *argument)
{
    tcp_latecomers *latecomers = argument;
    tcp_lobby_judge_again(latecomers->lobby); /* those who were one too many when the group was made */
    while (!latecomers->stopped) tcp_lobby_go_round(latecomers->lobby, LONGEST_NAP);
    tcp_lobby_close(latecomers->lobby);
    return NULL;
}

tcp_latecomers *tcp_latecomers_create(tcp_lobby *lobby, int size)
{
    int bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tcp_latecomers *latecomers = bell >= 0 ? calloc(1, sizeof *latecomers) : NULL;
    if (!latecomers) {
        if (bell >= 0) close(bell);
        tcp_lobby_destroy(lobby);
        return NULL;
    }
    *latecomers = (tcp_latecomers){.lobby = lobby, .size = size, .bell = bell};
    lobby->bell = bell;
    lobby->wanted = 1; /* nobody who asks stays */
    lobby->judge = latecomers_judge;
    lobby->context = latecomers;
    lobby->acceptor->tell = NULL;
    return latecomers;
}

void tcp_latecomers_begin(tcp_latecomers *latecomers, int (*is_whole)(void *context), void *context)
{
    latecomers->is_whole = is_whole;
    latecomers->context = context;
    latecomers->runs = tcp_thread_start(&latecomers->thread, latecomers_run, latecomers);
    if (!latecomers->runs) tcp_lobby_close(latecomers->lobby);
}

void tcp_latecomers_stop(tcp_latecomers *latecomers)
{
    uint64_t one = 1;
    if (!latecomers) return;
    latecomers->stopped = 1;
    (void)!write(latecomers->bell, &one, sizeof one);
}

void tcp_latecomers_destroy(tcp_latecomers *latecomers)
{
    if (!latecomers) return;
    tcp_latecomers_stop(latecomers);
    if (latecomers->runs) pthread_join(latecomers->thread, NULL);
    tcp_lobby_destroy(latecomers->lobby);
    close(latecomers->bell);
    free(latecomers);
}
