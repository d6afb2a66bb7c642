/* What one slow worker of 16 costs the others: gradients per second of virtual time, 16 when nobody waits for anything.
 * A gradient takes a second, 5 % more or less, and rank 0 so many times as long; an all-reduce takes a fifth of a
 * second. */
#include "gossip_world.h"

#include <thinwire/thinwire_gossip.h>

#include "support/parts.h"
#include "support/ranks.h"

enum { WORKERS = 16, WIDTH = 64, SLOWED = 5, STEPS = 100, LONG = 200 /* seconds */ };

#define BANDWIDTH (2.0 * (WORKERS - 1) / WORKERS * WIDTH * 4 / 0.2)

static const int slowness[SLOWED] = {1, 2, 5, 10, 100};

typedef struct race {
    const char *spec;
    int slow;
    int steps; /* for each; 0: as many as come in a time */
    double rate[WORKERS], seconds[WORKERS];
    int failures;
} race;

/* Where workers wait for one another chance adds up; where they do not, of two gradients in a row the one is above a
 * second by what the other is below, so that a worker's own rate is exact. */
static void compute(const race *all, int rank, int k)
{
    float more = scene_draw(4, rank, all->steps ? k : k / 2) / 10;
    tw_world_compute((rank == 0 ? all->slow : 1) * (k % 2 ? 1 + more : 1 - more));
}

static void note_end(race *all, int rank, int steps, double seconds)
{
    all->rate[rank] = steps / seconds;
    all->seconds[rank] = seconds;
}

static int goes_on(const race *all, int k)
{
    return all->steps ? k < all->steps : k % 2 || tw_clock() < LONG;
}

static void run_reducer(race *all, int rank, tw_comm *comm, const tw_tensor *table)
{
    tw_reducer *reducer = NULL;
    float gradient[WIDTH] = {0};
    int k = 0;
    all->failures += tw_reducer_create(comm, all->spec, table, 1, &reducer) != TW_OK;
    double start = tw_clock();
    for (; !all->failures && goes_on(all, k); k++) {
        compute(all, rank, k);
        all->failures += tw_reducer_submit(reducer, 0, gradient) != TW_OK;
        all->failures += tw_reducer_wait(reducer) != TW_OK;
    }
    note_end(all, rank, k, tw_clock() - start);
    tw_reducer_destroy(reducer);
}

static void run_gossip(race *all, int rank, tw_comm *comm, const tw_tensor *table)
{
    tw_gossip *gossip = NULL;
    float buffer[WIDTH] = {0}, *weights = buffer;
    const float *step = buffer;
    int k = 0;
    all->failures += tw_gossip_create(comm, all->spec, table, 1, &step, &gossip) != TW_OK;
    double start = tw_clock();
    for (; !all->failures && goes_on(all, k); k++) {
        all->failures += tw_gossip_read(gossip, &weights) != TW_OK;
        compute(all, rank, k);
        all->failures += tw_gossip_add(gossip, &step) != TW_OK;
    }
    note_end(all, rank, k, tw_clock() - start);
    if (gossip) all->failures += tw_gossip_finish(gossip, &weights) != TW_OK;
    tw_gossip_destroy(gossip);
}

static void run(void *context, int rank, tw_comm *comm)
{
    race *all = context;
    const tw_tensor table = {"weights", 1, {WIDTH}};
    all->failures += tw_comm_set_timeout(comm, 1e6) != TW_OK; /* the slow one is not to be given up */
    (strcmp(all->spec, "allreduce") == 0 ? run_reducer : run_gossip)(all, rank, comm, &table);
}

/* Gradients a second, of all workers together. */
static double rate_of(const char *spec, int slow, int steps)
{
    race all = {.spec = spec, .slow = slow, .steps = steps};
    run_in_world((tw_world_options){.workers = WORKERS, .bandwidth = BANDWIDTH}, run, &all);
    assert_int_equal(all.failures, 0);
    double sum = 0, last = 0;
    for (int rank = 0; rank < WORKERS; rank++) {
        sum += all.rate[rank];
        last = fmax(last, all.seconds[rank]);
    }
    return steps ? WORKERS * steps / last : sum;
}

static void check_row(const char *spec, const double want[SLOWED])
{
    for (int s = 0; s < SLOWED; s += in_part(2, 1)) {
        double got = rate_of(spec, slowness[s], STEPS);
        if (!(fabs(got - want[s]) <= 0.03 * want[s]))
            fail_msg("%s, slow by %d: %g, not %g", spec, slowness[s], got, want[s]);
    }
}

/* The rates of a simulation of who waits for whom. In it delay-by-one has a barrier after each step and comes to 15.32
 * when nobody is slow; here the mean that is waited for is that of the step before, so that chance partly evens out. */
TEST(test_who_waits_for_the_slowest_is_as_slow)
{
    check_row("allreduce", (const double[SLOWED]){12.86, 7.27, 3.07, 1.57, 0.16});
    check_row("adpsgd-d1", (const double[SLOWED]){15.66, 7.99, 3.20, 1.60, 0.16});
    check_row("dpsgd", (const double[SLOWED]){15.97, 7.99, 3.20, 1.60, 0.16});
}

TEST(test_asynchronous_schemes_lose_the_slow_ones_gradients_only)
{
    static const char *const specs[] = {"adpsgd-fixed", "adpsgd-fixed:mixing=three", "adpsgd-random",
                                        "adpsgd-random:mixing=three", "prague"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (int s = 0; s < SLOWED; s += in_part(SLOWED - 1, 1)) {
            double got = rate_of(specs[i], slowness[s], 0), want = WORKERS - 1 + 1.0 / slowness[s];
            if (!(fabs(got - want) <= 1e-3 * want && got >= 15))
                fail_msg("%s, slow by %d: %g, not %g", specs[i], slowness[s], got, want);
        }
}

RUN_TESTS(NULL, NULL)
