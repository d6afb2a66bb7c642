/* ranks.h - a program on every rank of a group, over threads or in a world of virtual time. It returns when all have
 * ended; what a rank found it leaves in the context, for assertions on the test's own thread. */
#ifndef TESTS_SUPPORT_RANKS_H
#define TESTS_SUPPORT_RANKS_H

#include <pthread.h>
#include <thinwire/thinwire_sim.h>

#include "support/assert.h"

enum { RANKS_MOST = 16 };

typedef struct rank_thread {
    pthread_t thread;
    tw_world_worker play;
    void *context;
    int stays; /* the comm is destroyed when all have ended, and not when this rank has */
    tw_comm *comm;
} rank_thread;

static inline void *rank_live(void *argument)
{
    const rank_thread *self = argument;
    self->play(self->context, tw_comm_rank(self->comm), self->comm);
    if (!self->stays) tw_comm_destroy(self->comm);
    return NULL;
}

static inline void ranks_run(int ranks, tw_world_worker play, void *context, int stays)
{
    rank_thread all[RANKS_MOST];
    tw_comm *comms[RANKS_MOST];
    assert_in_range(ranks, 1, RANKS_MOST);
    assert_ok(tw_comm_create_threads(ranks, comms));
    for (int r = 0; r < ranks; r++) {
        all[r] = (rank_thread){.play = play, .context = context, .stays = stays, .comm = comms[r]};
        assert_int_equal(pthread_create(&all[r].thread, NULL, rank_live, &all[r]), 0);
    }
    for (int r = 0; r < ranks; r++) pthread_join(all[r].thread, NULL);
    for (int r = 0; r < ranks && stays; r++) tw_comm_destroy(comms[r]);
}

/* Each rank leaves the group when it has ended. */
static inline void run_on_threads(int ranks, tw_world_worker play, void *context)
{
    ranks_run(ranks, play, context, 0);
}

/* All ranks leave it when the last has. */
static inline void run_on_threads_that_stay(int ranks, tw_world_worker play, void *context)
{
    ranks_run(ranks, play, context, 1);
}

/* Returns how long it took. */
static inline double run_in_world(tw_world_options machines, tw_world_worker play, void *context)
{
    tw_world *world;
    machines.struct_size = sizeof machines;
    assert_ok(tw_world_create(&machines, &world));
    assert_ok(tw_world_run(world, play, context));
    double seconds = tw_world_seconds(world);
    tw_world_destroy(world);
    return seconds;
}

#endif
