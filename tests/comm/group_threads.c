/* Ranks as threads of this process. */
#include "group.h"

#include <pthread.h>

enum { MOST = 9 };

typedef struct player {
    pthread_t thread;
    tw_comm *comm;
    rank_program program;
    const void *context;
} player;

static pthread_barrier_t meeting;

void group_begin(int *argc, char ***argv)
{
    (void)argc, (void)argv;
}

void group_end(void)
{
}

int group_size(int index)
{
    return index < MOST ? index + 1 : 0;
}

static void *play(void *argument)
{
    player *me = argument;
    group_seal(&me->comm);
    me->program(me->comm, me->context);
    return NULL;
}

void group_run(int size, rank_program program, const void *context)
{
    tw_comm *comms[MOST];
    player players[MOST];
    CHECK(tw_comm_create_threads(size, comms) == TW_OK);
    pthread_barrier_init(&meeting, NULL, (unsigned)size);
    for (int r = 0; r < size; r++) {
        players[r] = (player){.comm = comms[r], .program = program, .context = context};
        CHECK(pthread_create(&players[r].thread, NULL, play, &players[r]) == 0);
    }
    for (int r = 0; r < size; r++) pthread_join(players[r].thread, NULL);
    pthread_barrier_destroy(&meeting);
}

void group_meet(void)
{
    pthread_barrier_wait(&meeting);
}

double group_patience(void)
{
    return 600;
}
