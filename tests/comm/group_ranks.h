/* group_ranks.h - what groups share whose ranks are threads of this process. Whoever includes it says what
 * group_local.h asks for, and how its ranks come together. */
#ifndef TEST_GROUP_RANKS_H
#define TEST_GROUP_RANKS_H

#include "group_local.h"

#include <pthread.h>

/* Before the ranks of a group begin; and what each of them does first. */
static void group_open(int size);
static tw_status group_join(int rank, int size, tw_comm **comm);

typedef struct player {
    pthread_t thread;
    int rank, size;
    rank_program program;
    const void *context;
} player;

static pthread_barrier_t meeting;

static void *play(void *argument)
{
    player *me = argument;
    tw_comm *comm = NULL;
    tw_status status = group_join(me->rank, me->size, &comm);
    CHECK(status == TW_OK);
    if (status == TW_OK) me->program(comm, me->context);
    return NULL;
}

void group_run(int size, rank_program program, const void *context)
{
    player players[MOST];
    group_open(size);
    pthread_barrier_init(&meeting, NULL, (unsigned)size);
    for (int r = 0; r < size; r++) {
        players[r] = (player){.rank = r, .size = size, .program = program, .context = context};
        CHECK(pthread_create(&players[r].thread, NULL, play, &players[r]) == 0);
    }
    for (int r = 0; r < size; r++) pthread_join(players[r].thread, NULL);
    pthread_barrier_destroy(&meeting);
}

void group_meet(void)
{
    pthread_barrier_wait(&meeting);
}

#endif
