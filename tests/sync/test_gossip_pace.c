/* How often workers average: about once in the time in which the fastest of them makes a gradient, whoever that is. */
#include "gossip_world.h"

#include <thinwire/thinwire_gossip.h>

enum { WORKERS = 4 };

/* What a gradient takes, in seconds of virtual time. */
typedef struct habit {
    double first, later;
    int changes_after; /* gradients */
    double until;      /* when the worker ends */
    int steps;         /* that it took, each of 1 */
    float seen;        /* its first weight after them, before it finishes */
} habit;

static tw_status work(scene *all, int rank, tw_gossip *gossip)
{
    float step[MOST_WIDTH];
    habit *own = &((habit *)all->context)[rank];
    tw_status status = TW_OK;
    for (int i = 0; i < all->width; i++) step[i] = 1;
    for (own->steps = 0; status == TW_OK && tw_clock() < own->until; own->steps++) {
        tw_world_compute(own->steps < own->changes_after ? own->first : own->later);
        status = scene_add(gossip, step);
    }
    if (status == TW_OK) status = scene_read(all, rank, gossip);
    own->seen = all->at[rank][0];
    return status == TW_OK ? scene_finish(all, rank, gossip) : status;
}

static void check_rounds(habit *habits, uint64_t least, uint64_t most)
{
    static const char *const specs[] = {"adpsgd-fixed", "adpsgd-random", "prague"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        scene *all = scene_run((scene){.spec = specs[s],
                                       .workers = WORKERS,
                                       .width = 4,
                                       .bandwidth = 1e9,
                                       .latency = 1e-6,
                                       .play = work,
                                       .context = habits});
        for (int rank = 0; rank < WORKERS; rank++)
            if (all->stats[rank].rounds < least || all->stats[rank].rounds > most)
                fail_msg("%s, rank %d: %d rounds, not %d to %d", specs[s], rank, (int)all->stats[rank].rounds,
                         (int)least, (int)most);
        free(all);
    }
}

/* A gradient a second for 64 s by one of the workers, whichever: 64 rounds, and a few at either end. */
TEST(test_rounds_are_as_many_as_the_fastests_gradients)
{
    for (int fast = 0; fast < WORKERS; fast++) {
        habit habits[WORKERS];
        for (int rank = 0; rank < WORKERS; rank++) habits[rank] = (habit){.later = rank == fast ? 1 : 8, .until = 64};
        check_rounds(habits, 50, 80);
    }
}

/* For 40 s as above, and then all take 16 s: two dozen rounds later nobody believes in the fast one any more. At a
 * round a second there would be 240. */
TEST(test_a_fast_worker_that_has_become_slow_is_forgotten)
{
    for (int fast = 0; fast < WORKERS; fast++) {
        habit habits[WORKERS];
        for (int rank = 0; rank < WORKERS; rank++)
            habits[rank] = (habit){.first = 1, .changes_after = rank == fast ? 40 : 0, .later = 16, .until = 240};
        check_rounds(habits, 50, 120);
    }
}

/* Who has finished goes on averaging while another has steps to give: of these it takes its share, so that the other's
 * weights stay near the mean. The last round is after the last of them. */
TEST(test_rounds_go_on_until_the_last_has_finished)
{
    for (int last = 0; last < WORKERS; last++) {
        habit habits[WORKERS];
        for (int rank = 0; rank < WORKERS; rank++) habits[rank] = (habit){.later = 1, .until = rank == last ? 64 : 4};
        check_rounds(habits, 50, UINT64_MAX);
        float mean = (float)(habits[last].steps + 4 * (WORKERS - 1)) / WORKERS;
        assert_true(habits[last].steps >= 60 && habits[last].seen < 2 * mean);
    }
}

RUN_TESTS(NULL, NULL)
