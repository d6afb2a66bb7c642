/* Rounds while workers stand still: as many as before in a short pause, rarer and rarer in a long one, as before after
 * it. Time is the world's, and messages take none, so that all counts are exact or bounded by what the rule says. */
#include "gossip_world.h"

#include <thinwire/thinwire_gossip.h>

enum { WORKERS = 4, STEPS = 20, OVERDUE = 32, HORIZON = 2 * WORKERS + 16 };

typedef struct pause {
    double seconds;  /* after STEPS steps of a second each */
    double first;    /* for so long does rank 0 stand still, where all do */
    uint64_t during; /* rounds of rank 0 in its pause */
    uint64_t after;  /* and in STEPS seconds after it */
    double waited;   /* seconds from rank 0's return to the first round */
    float mean;      /* of the weights, at the end */
} pause;

static uint64_t rounds(const tw_gossip *gossip)
{
    tw_gossip_counts stats = {.struct_size = sizeof stats};
    tw_gossip_stats(gossip, &stats);
    return stats.rounds;
}

/* Every step adds 1 to a worker's weights, so the mean grows by 1 a step of all. */
static tw_status take_steps(tw_gossip *gossip, int count)
{
    float step[MOST_WIDTH];
    for (int i = 0; i < MOST_WIDTH; i++) step[i] = 1;
    for (int k = 0; k < count; k++) {
        tw_world_compute(1);
        tw_status status = scene_add(gossip, step);
        if (status != TW_OK) return status;
    }
    return TW_OK;
}

static tw_status finish(scene *all, int rank, tw_gossip *gossip)
{
    pause *p = all->context;
    tw_status status = scene_finish(all, rank, gossip);
    p->mean = all->at[rank][0];
    return status;
}

/* --- one stands still, and the others have finished ------------------------------------------------------------- */

static tw_status play_alone(scene *all, int rank, tw_gossip *gossip)
{
    pause *p = all->context;
    tw_status status = take_steps(gossip, STEPS);
    if (status == TW_OK && rank == 0) {
        uint64_t before = rounds(gossip);
        tw_world_compute(p->seconds);
        p->during = rounds(gossip) - before;
        status = take_steps(gossip, 1);
    }
    return status != TW_OK ? status : finish(all, rank, gossip);
}

static pause stand_still(const char *spec, double seconds)
{
    pause p = {.seconds = seconds};
    scene *all =
        scene_run((scene){.spec = spec, .workers = WORKERS, .bandwidth = 1e12, .play = play_alone, .context = &p});
    for (int rank = 0; rank < WORKERS; rank++) assert_float_equal(all->at[rank][0], p.mean, 0);
    free(all);
    assert_float_equal(p.mean, STEPS + 1.0 / WORKERS, 1e-4);
    return p;
}

static const char *const specs[] = {"adpsgd-random", "adpsgd-fixed", "prague", "adpsgd-random:survive=off"};
enum { SPECS = sizeof specs / sizeof *specs };

TEST(test_a_short_pause_has_a_round_a_second)
{
    for (int i = 0; i < SPECS; i++) {
        pause p = stand_still(specs[i], OVERDUE - 2);
        if (p.during + 2 < OVERDUE - 2 || p.during > OVERDUE)
            fail_msg("%s: %llu rounds in %d seconds", specs[i], (unsigned long long)p.during, OVERDUE - 2);
    }
}

/* After OVERDUE rounds they are as far apart as a part of the pause so far, and news of that need HORIZON rounds: so in
 * each HORIZON + 1 rounds the pause grows to 1 + HORIZON / OVERDUE of what it was. They are never further apart than a
 * 64th of the deadline. */
static double most_rounds(double seconds)
{
    double apart = 600.0 / 64;
    return OVERDUE + (HORIZON + 2) * (2 + log(seconds / OVERDUE) / log1p((double)HORIZON / OVERDUE)) + seconds / apart;
}

TEST(test_a_long_pause_has_few_rounds)
{
    for (int i = 0; i < SPECS; i++)
        for (double seconds = 1e3; seconds < 2e4; seconds *= 10) {
            pause p = stand_still(specs[i], seconds);
            double most = most_rounds(seconds);
            if ((double)p.during > most)
                fail_msg("%s: %llu rounds in %g seconds, more than %g", specs[i], (unsigned long long)p.during, seconds,
                         most);
        }
}

/* --- all stand still, and one comes back first ------------------------------------------------------------------- */

static void await_round(pause *p, const tw_gossip *gossip)
{
    double start = tw_clock();
    uint64_t before = rounds(gossip);
    while (rounds(gossip) == before && p->waited < p->seconds) {
        tw_world_compute(0.5);
        p->waited = tw_clock() - start;
    }
}

static tw_status play_together(scene *all, int rank, tw_gossip *gossip)
{
    pause *p = all->context;
    tw_status status = take_steps(gossip, STEPS);
    tw_world_compute(rank == 0 ? p->first : p->seconds);
    if (status == TW_OK) status = take_steps(gossip, 1);
    if (rank == 0) await_round(p, gossip);
    uint64_t restart = rounds(gossip);
    if (status == TW_OK) status = take_steps(gossip, STEPS);
    if (rank == 0) p->after = rounds(gossip) - restart;
    return status != TW_OK ? status : finish(all, rank, gossip);
}

/* A part of a short pause, and of the deadline where the pause was long. */
TEST(test_who_comes_back_first_waits_for_a_part_of_the_pause)
{
    for (int i = 0; i < SPECS; i++)
        for (double seconds = 100; seconds < 2e4; seconds *= 10) {
            pause p = {.seconds = 2 * seconds, .first = seconds};
            free(scene_run((scene){
                .spec = specs[i], .workers = WORKERS, .bandwidth = 1e12, .play = play_together, .context = &p}));
            assert_true(p.waited <= fmin(seconds / OVERDUE, 600.0 / 64) + 2);
            assert_float_equal(p.mean, 2 * STEPS + 1, 1e-3);
        }
}

TEST(test_after_a_pause_rounds_are_as_before)
{
    pause p = {.seconds = 1000, .first = 1000};
    free(scene_run(
        (scene){.spec = "adpsgd-random", .workers = WORKERS, .bandwidth = 1e12, .play = play_together, .context = &p}));
    assert_true(p.after + 3 >= STEPS && p.after <= STEPS + 3);
}

/* --- one has not begun ------------------------------------------------------------------------------------------- */

static tw_status play_late(scene *all, int rank, tw_gossip *gossip)
{
    if (rank == WORKERS - 1) tw_world_compute(5000); /* the timeout is 600 */
    tw_status status = take_steps(gossip, STEPS);
    return status != TW_OK ? status : finish(all, rank, gossip);
}

/* What a worker computes before its first call is in nobody's way either. */
TEST(test_who_begins_late_is_not_lost)
{
    for (int i = 0; i < SPECS - 1; i++) {
        pause p = {0};
        scene *all = scene_run(
            (scene){.spec = specs[i], .workers = WORKERS, .bandwidth = 1e12, .play = play_late, .context = &p});
        for (int rank = 0; rank < WORKERS; rank++) {
            assert_int_equal(all->stats[rank].ranks_lost, 0);
            assert_float_equal(all->at[rank][0], STEPS, 1e-4);
        }
        free(all);
    }
}

RUN_TESTS(NULL, NULL)
