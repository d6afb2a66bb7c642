/* Option per_host of an outer loop, with gradients that are averaged inside a host in every step: hosts of G ranks do
 * what as many ranks do alone whose gradients are the means of G. Each scene runs in a world of virtual time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_outer.h>

#include "support/random.h"
#include "support/ranks.h"

enum { TENSORS = 3, ELEMENTS = 90, STEPS = 24, MOST_RANKS = 12, SICK_STEP = 7 };
static const size_t sizes[TENSORS] = {64, 1, 25}, places[TENSORS] = {0, 64, 65};

typedef struct host_scene {
    char spec[160];
    int ranks, per_host;
    int mean_of;   /* ranks, of which each of this scene has the mean gradient */
    int averages;  /* inside hosts */
    int scattered; /* gradients of every second rank do not lie one behind the other */
    int sick;      /* the rank, counted from 1, of whose gradient a value is NaN in one step */
    float shared[MOST_RANKS][ELEMENTS], weights[MOST_RANKS][ELEMENTS];
    int skipped[MOST_RANKS];
    tw_outer_counts counts[MOST_RANKS];
    tw_status status[MOST_RANKS];
    char text[MOST_RANKS][256];
} host_scene;

/* A bowl whose centre is another for each rank and in each step. */
static float slope(const float *weights, int rank, int step, size_t i)
{
    return weights[i] - uniform((uint64_t)(1000 * rank + step), i);
}

/* The mean of the ranks' gradients, added up in their order. */
static float mean_slope(const host_scene *all, const float *weights, int rank, int step, size_t i)
{
    const float part = 1.0f / (float)all->mean_of;
    float sum = slope(weights, rank * all->mean_of, step, i) * part;
    for (int m = 1; m < all->mean_of; m++) sum += slope(weights, rank * all->mean_of + m, step, i) * part;
    return sum;
}

static void fill(const host_scene *all, int rank, int step, float **gradients)
{
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < sizes[t]; i++)
            gradients[t][i] = mean_slope(all, all->weights[rank], rank, step, places[t] + i);
    if (all->sick == rank + 1 && step == SICK_STEP) gradients[1][0] = NAN;
}

/* Momentum, where the gradient is finite. */
static void descend(host_scene *all, int rank, float *const *gradients, float *momentum)
{
    int finite = 1;
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < sizes[t]; i++) finite &= isfinite(gradients[t][i]) != 0;
    all->skipped[rank] += !finite;
    for (size_t t = 0; finite && t < TENSORS; t++)
        for (size_t i = 0; i < sizes[t]; i++) {
            float *m = &momentum[places[t] + i];
            *m = 0.5f * *m + gradients[t][i];
            all->weights[rank][places[t] + i] -= 0.1f * *m;
        }
}

static tw_status walk(host_scene *all, int rank, tw_outer *outer)
{
    float flat[2 * ELEMENTS], momentum[ELEMENTS] = {0}, *gradients[TENSORS], *parts[TENSORS], *shared[TENSORS];
    tw_outer_event event;
    for (size_t t = 0; t < TENSORS; t++) {
        gradients[t] = flat + places[t] * (all->scattered && rank % 2 ? 2 : 1);
        parts[t] = all->weights[rank] + places[t];
        shared[t] = all->shared[rank] + places[t];
    }
    tw_status status = tw_outer_begin(outer, parts);
    for (int step = 0; status == TW_OK && step < STEPS; step++) {
        fill(all, rank, step, gradients);
        if (all->averages) status = tw_outer_average(outer, gradients);
        descend(all, rank, gradients, momentum);
        if (status == TW_OK) status = tw_outer_step(outer, parts, &event);
    }
    if (status == TW_OK) status = tw_outer_finish(outer, parts);
    return status == TW_OK ? tw_outer_read(outer, shared) : status;
}

static void live(void *context, int rank, tw_comm *comm)
{
    host_scene *all = context;
    tw_tensor table[TENSORS] = {{.name = "matrix", .dims = 2, .shape = {8, 8}},
                                {.name = "one", .dims = 1, .shape = {1}},
                                {.name = "rest", .dims = 1, .shape = {25}}};
    tw_outer *outer = NULL;
    all->counts[rank].struct_size = sizeof all->counts[rank];
    fill_uniform(99, 1, all->weights[rank], ELEMENTS);
    tw_status status = tw_outer_create(comm, all->spec, table, TENSORS, &outer);
    if (status == TW_OK) status = walk(all, rank, outer);
    if (status == TW_OK) status = tw_outer_stats(outer, &all->counts[rank]);
    if (status != TW_OK) snprintf(all->text[rank], sizeof all->text[rank], "%s", tw_last_error());
    all->status[rank] = status;
    tw_outer_destroy(outer);
}

static void play(host_scene *all)
{
    run_in_world((tw_world_options){.workers = all->ranks, .workers_per_host = all->per_host, .latency = 1e-4}, live,
                 all);
    for (int r = 0; r < all->ranks; r++)
        if (all->status[r] != TW_OK) fail_msg("%s, rank %d: %s", all->spec, r, all->text[r]);
}

static host_scene *make(const char *spec, int hosts, int per_host)
{
    host_scene *all = calloc(1, sizeof *all);
    assert_non_null(all);
    snprintf(all->spec, sizeof all->spec, "%s,per_host=%d", spec, per_host);
    all->ranks = hosts * per_host;
    all->per_host = per_host;
    all->mean_of = all->averages = 1;
    return all;
}

/* Ranks that stand for a host each. */
static host_scene *make_plain(const char *spec, int hosts, int per_host)
{
    host_scene *all = make(spec, hosts, 1);
    all->mean_of = per_host;
    return all;
}

static const char *const specs[] = {"diloco:every=4",
                                    "local:every=4",
                                    "diloco:every=4,exchange=topk,density=0.1,min_elements=1",
                                    "streaming:every=6,fragments=3,delay=1",
                                    "diloco:every=4,eager=on",
                                    "pulseloco:every=4",
                                    "sparseloco:every=4,min_elements=1,k=4",
                                    "diloco:every=4,merge=rda"};

static double farthest(const host_scene *one, int rank, const host_scene *other, int host)
{
    double most = 0;
    for (size_t i = 0; i < ELEMENTS; i++)
        most = fmax(most, fabs((double)one->shared[rank][i] - (double)other->shared[host][i]));
    return most;
}

static void check_equal(const char *spec, int hosts, int per_host, double tolerance, int scattered)
{
    host_scene *all = make(spec, hosts, per_host), *plain = make_plain(spec, hosts, per_host);
    all->scattered = scattered;
    play(all);
    play(plain);
    for (int r = 0; r < all->ranks; r++) {
        const double apart = farthest(all, r, plain, r / per_host);
        if (!(apart <= tolerance)) fail_msg("%s, rank %d of %d: %g apart", all->spec, r, all->ranks, apart);
        assert_memory_equal(all->weights[r], all->weights[r / per_host * per_host], sizeof all->weights[r]);
    }
    free(all);
    free(plain);
}

/* To the bit, as halves and quarters are exact, whatever the numbers. */
TEST(hosts_of_two_and_four_are_ranks_with_larger_batches)
{
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
        for (int per_host = 2; per_host <= 4; per_host += 2) check_equal(specs[s], 2, per_host, 0, s % 2);
    check_equal(specs[0], 3, 2, 0, 0);
    check_equal(specs[0], 1, 4, 0, 1);
}

TEST(hosts_of_three_are_so_but_for_rounding)
{
    check_equal("diloco:every=4", 2, 3, 2e-6, 0);
    check_equal("local:every=4", 3, 3, 2e-6, 1);
}

/* Without the average the ranks of a host are apart, so that the comparison can fail. */
TEST(without_it_hosts_are_something_else)
{
    host_scene *all = make("diloco:every=4", 2, 2), *plain = make_plain("diloco:every=4", 2, 2);
    all->averages = 0;
    play(all);
    play(plain);
    assert_true(farthest(all, 0, plain, 0) > 0); /* rounding: in the bowl the means of both are alike */
    free(all);
    free(plain);
}

/* A ring's bytes in each step, and none of them to another host. */
TEST(what_is_averaged_stays_in_the_host)
{
    host_scene *all = make("diloco:every=4", 2, 4), *without = make("diloco:every=4", 2, 4);
    without->averages = 0;
    play(all);
    play(without);
    const double ring = STEPS * 2.0 * 3 / 4 * ELEMENTS * sizeof(float);
    for (int r = 0; r < all->ranks; r++) {
        assert_int_equal(all->counts[r].bytes_between, without->counts[r].bytes_between);
        const double more = (double)(all->counts[r].bytes_sent - without->counts[r].bytes_sent);
        assert_true(more > 0.9 * ring && more < 1.2 * ring);
    }
    free(all);
    free(without);
}

/* So that its ranks stay alike. */
TEST(a_host_skips_a_step_as_one)
{
    for (int scattered = 0; scattered < 2; scattered++) {
        host_scene *all = make("diloco:every=4", 2, 2), *plain = make_plain("diloco:every=4", 2, 2);
        all->sick = 4;
        plain->sick = 2;
        all->scattered = scattered;
        play(all);
        play(plain);
        for (int r = 0; r < 4; r++) assert_int_equal(all->skipped[r], r >= 2);
        assert_memory_equal(all->shared[3], plain->shared[1], sizeof all->shared[3]);
        free(all);
        free(plain);
    }
}

RUN_TESTS(NULL, NULL)
