/* tw_gossip_step is a read, a copy, a subtraction and an add: in a world of virtual time, where the same calls give the
 * same bits, both ways give the same weights, by every scheme. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_plugin.h>

#include "support/ranks.h"

enum { RANKS = 4, TENSORS = 2, STEPS = 9, ELEMENTS = 5 + 12, SICK = 4 /* the step at which rank 1's is not finite */ };

static const tw_tensor table[TENSORS] = {{"a", 1, {5}}, {"b", 2, {3, 4}}};

typedef struct run {
    const char *spec;
    int in_one; /* by tw_gossip_step */
    int sick;
    float seen[RANKS][STEPS + 1][ELEMENTS], mean[RANKS][ELEMENTS];
    uint64_t taken[RANKS], skipped[RANKS];
    int refused[RANKS];
    tw_status status[RANKS];
    char text[RANKS][256];
} run;

static void point(float *values, float **tensors)
{
    tensors[0] = values;
    tensors[1] = values + 5;
}

static float draw(int rank, int step, int i)
{
    uint32_t words[4];
    tw_random((uint64_t)rank, (uint64_t)step, (uint64_t)i, words);
    return (float)words[0] * 0x1p-34f;
}

/* The caller's own step, in place. */
static void move(const run *all, int rank, int step, float *weights)
{
    for (int i = 0; i < ELEMENTS; i++) weights[i] -= draw(rank, step, i) * weights[i] + 1e-3f;
    if (all->sick && rank == 1 && step == SICK) weights[7] = NAN;
}

static tw_status hand_over(const run *all, tw_gossip *gossip, float *weights, const float *given)
{
    float *tensors[TENSORS], steps[ELEMENTS], *parts[TENSORS];
    point(weights, tensors);
    point(steps, parts);
    if (all->in_one) return tw_gossip_step(gossip, tensors);
    for (int i = 0; i < ELEMENTS; i++) steps[i] = weights[i] - given[i];
    tw_status added = tw_gossip_add(gossip, (const float *const *)parts);
    tw_status got = tw_gossip_read(gossip, tensors);
    return got == TW_OK ? added : got;
}

static tw_status play(run *all, int rank, tw_gossip *gossip)
{
    float weights[ELEMENTS], given[ELEMENTS], *tensors[TENSORS];
    point(weights, tensors);
    tw_status status = tw_gossip_read(gossip, tensors);
    for (int step = 0; step < STEPS && status == TW_OK; step++) {
        memcpy(all->seen[rank][step], weights, sizeof weights);
        memcpy(given, weights, sizeof weights);
        tw_world_compute(0.01 * (1 + rank % 2));
        move(all, rank, step, weights);
        status = hand_over(all, gossip, weights, given);
        all->refused[rank] += status == TW_SKIPPED;
        if (status == TW_SKIPPED) status = TW_OK;
    }
    memcpy(all->seen[rank][STEPS], weights, sizeof weights);
    point(all->mean[rank], tensors);
    return status == TW_OK ? tw_gossip_finish(gossip, tensors) : status;
}

static void live(void *context, int rank, tw_comm *comm)
{
    run *all = context;
    float start[ELEMENTS], *tensors[TENSORS];
    tw_gossip *gossip = NULL;
    tw_gossip_counts stats = {.struct_size = sizeof stats};
    for (int i = 0; i < ELEMENTS; i++) start[i] = draw(rank, -1, i);
    point(start, tensors);
    tw_status status = tw_gossip_create(comm, all->spec, table, TENSORS, (const float *const *)tensors, &gossip);
    if (status == TW_OK) status = play(all, rank, gossip);
    if (status == TW_OK) status = tw_gossip_stats(gossip, &stats);
    all->status[rank] = status;
    all->taken[rank] = stats.steps;
    all->skipped[rank] = stats.steps_skipped;
    if (status != TW_OK) snprintf(all->text[rank], sizeof all->text[rank], "%s", tw_last_error());
    tw_gossip_destroy(gossip);
}

static run *play_world(const char *spec, int in_one, int sick)
{
    run *all = calloc(1, sizeof *all);
    *all = (run){.spec = spec, .in_one = in_one, .sick = sick};
    run_in_world((tw_world_options){.workers = RANKS, .latency = 1e-4}, live, all);
    for (int rank = 0; rank < RANKS; rank++)
        if (all->status[rank] != TW_OK) fail_msg("%s, rank %d: %s", spec, rank, all->text[rank]);
    return all;
}

static void check(const char *spec, int per_host, int sick)
{
    char full[64];
    snprintf(full, sizeof full, "%s:per_host=%d", spec, per_host);
    run *apart = play_world(full, 0, sick), *in_one = play_world(full, 1, sick);
    assert_memory_equal(apart->seen, in_one->seen, sizeof apart->seen);
    assert_memory_equal(apart->mean, in_one->mean, sizeof apart->mean);
    assert_memory_equal(apart->taken, in_one->taken, sizeof apart->taken);
    assert_memory_equal(apart->skipped, in_one->skipped, sizeof apart->skipped);
    assert_memory_equal(apart->refused, in_one->refused, sizeof apart->refused);
    assert_int_equal(in_one->refused[1], sick);
    for (int i = 0; i < ELEMENTS; i++) assert_true(isfinite(in_one->mean[0][i]));
    free(apart);
    free(in_one);
}

TEST(test_a_step_is_read_copy_subtract_and_add)
{
    for (size_t s = 0; s < tw_gossips_count(); s++)
        for (int per_host = 1; per_host <= RANKS; per_host *= 2)
            for (int sick = 0; sick < 2; sick++) /* refused and undone */
                check(tw_gossips_name(s), per_host, sick);
}

TEST(test_steps_come_one_way_and_after_a_read)
{
    for (int in_one = 0; in_one < 2; in_one++) {
        float weights[ELEMENTS] = {0}, *tensors[TENSORS];
        tw_comm *comm;
        tw_gossip *gossip;
        point(weights, tensors);
        const float *const *steps = (const float *const *)tensors;
        assert_int_equal(tw_comm_create_threads(1, &comm), TW_OK);
        assert_int_equal(tw_gossip_create(comm, "dpsgd", table, TENSORS, steps, &gossip), TW_OK);
        assert_int_equal(tw_gossip_step(gossip, tensors), TW_ERROR_ORDER);
        assert_non_null(strstr(tw_last_error(), "tw_gossip_read"));
        assert_int_equal(tw_gossip_read(gossip, tensors), TW_OK);
        assert_int_equal(in_one ? tw_gossip_step(gossip, tensors) : tw_gossip_add(gossip, steps), TW_OK);
        assert_int_equal(in_one ? tw_gossip_add(gossip, steps) : tw_gossip_step(gossip, tensors), TW_ERROR_ORDER);
        assert_int_equal(tw_gossip_finish(gossip, tensors), TW_OK);
        tw_gossip_destroy(gossip);
        tw_comm_destroy(comm);
    }
}

RUN_TESTS(NULL, NULL)
