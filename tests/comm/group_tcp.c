/* Ranks as threads of this process that see each other over sockets of the loopback. STREAMS connections to each. With
 * BEHIND all but the second cannot be called, and talk to each other through that one. */
#include "group.h"

#include <pthread.h>
#include <thinwire/thinwire_tcp.h>

#ifndef STREAMS
#define STREAMS 1
#endif
#ifdef BEHIND
enum { CALLABLE = 1 };
#else
enum { CALLABLE = -1 };
#endif

enum { MOST = 9 };

typedef struct player {
    pthread_t thread;
    tw_tcp *tcp;
    int rank, size;
    rank_program program;
    const void *context;
} player;

static pthread_barrier_t meeting;
static const char *addresses[MOST];

void group_begin(int *argc, char ***argv)
{
    (void)argc, (void)argv;
}

void group_end(void)
{
}

/* What follows from a size that lies between, threads and the world show. */
int group_size(int index)
{
    static const int sizes[] = {1, 2, 3, 5, MOST, 0};
    return sizes[index];
}

static void *play(void *argument)
{
    player *me = argument;
    tw_comm *comm = NULL;
    tw_status status = tw_tcp_connect(me->tcp, me->rank, me->size, addresses, 60, &comm);
    CHECK(status == TW_OK);
    if (status == TW_OK) me->program(comm, me->context);
    return NULL;
}

static void listen_all(player *players, int size)
{
    tw_tcp_options options = {.struct_size = sizeof options, .bind = "127.0.0.1", .streams = STREAMS};
    for (int r = 0; r < size; r++) {
        options.behind = CALLABLE >= 0 && size > 1 && r != CALLABLE;
        options.advertise = options.behind ? "192.0.2.1" : NULL;
        CHECK(tw_tcp_listen(&options, &players[r].tcp) == TW_OK);
        addresses[r] = tw_tcp_address(players[r].tcp);
    }
}

void group_run(int size, rank_program program, const void *context)
{
    player players[MOST];
    for (int r = 0; r < size; r++)
        players[r] = (player){.rank = r, .size = size, .program = program, .context = context};
    listen_all(players, size);
    pthread_barrier_init(&meeting, NULL, (unsigned)size);
    for (int r = 0; r < size; r++) CHECK(pthread_create(&players[r].thread, NULL, play, &players[r]) == 0);
    for (int r = 0; r < size; r++) pthread_join(players[r].thread, NULL);
    for (int r = 0; r < size; r++) tw_tcp_destroy(players[r].tcp);
    pthread_barrier_destroy(&meeting);
}

void group_meet(void)
{
    pthread_barrier_wait(&meeting);
}

double group_patience(void)
{
    return 600; /* the peers that are gone here have said so */
}
