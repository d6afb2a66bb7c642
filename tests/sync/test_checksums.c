/* Every byte of a step is summed once where it is sent, and once where it arrives. */
#include <stdatomic.h>
#include <stdio.h>
#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_plugin.h>

#include "support/random.h"
#include "support/ranks.h"

enum { RANKS = 2, TENSORS = 2, WEIGHTS = 4000, BIASES = 600, STEPS = 3, LONGEST_NAME = 16 };

static const tw_tensor table[TENSORS] = {{"weight", 2, {40, 100}}, {"bias", 1, {BIASES}}};

static _Atomic uint64_t summed, moved;

uint32_t __real_tw_crc32c(uint32_t crc, const void *data, size_t size);
uint32_t __wrap_tw_crc32c(uint32_t crc, const void *data, size_t size);

/* Names are hashed as well, for random numbers. */
uint32_t __wrap_tw_crc32c(uint32_t crc, const void *data, size_t size)
{
    if (size > LONGEST_NAME) summed += size;
    return __real_tw_crc32c(crc, data, size);
}

/* Between two of these no rank is under way. */
static void meet(tw_comm *comm)
{
    assert_ok(tw_comm_barrier(comm));
}

static uint64_t bytes_moved(const tw_comm *comm)
{
    tw_traffic traffic = {.struct_size = sizeof traffic};
    assert_ok(tw_comm_traffic(comm, &traffic));
    return traffic.bytes_sent + traffic.bytes_received;
}

static void begin_counting(tw_comm *comm)
{
    meet(comm);
    if (tw_comm_rank(comm) == 0) summed = moved = 0;
    meet(comm);
}

static void reduce(void *spec, int rank, tw_comm *comm)
{
    tw_reducer *reducer;
    float weight[WEIGHTS], bias[BIASES];
    assert_ok(tw_reducer_create(comm, spec, table, TENSORS, &reducer));
    begin_counting(comm);
    uint64_t before = bytes_moved(comm);
    for (uint64_t step = 0; step < STEPS; step++) {
        fill_uniform(10 * step + (uint64_t)rank, 1, weight, WEIGHTS);
        fill_uniform(10 * step + 5 + (uint64_t)rank, 1, bias, BIASES);
        assert_ok(tw_reducer_submit(reducer, 1, bias));
        assert_ok(tw_reducer_submit(reducer, 0, weight));
        assert_ok(tw_reducer_wait(reducer));
    }
    moved += bytes_moved(comm) - before;
    meet(comm);
    tw_reducer_destroy(reducer);
}

/* A synchronous one, in which nothing is under way before the first add. */
static void gossip(void *spec, int rank, tw_comm *comm)
{
    tw_gossip *gossip;
    float weight[WEIGHTS] = {0}, bias[BIASES] = {0}, *weights[TENSORS] = {weight, bias};
    assert_ok(tw_gossip_create(comm, spec, table, TENSORS, (const float *const *)weights, &gossip));
    begin_counting(comm);
    uint64_t before = bytes_moved(comm);
    for (uint64_t step = 0; step < STEPS; step++) {
        fill_uniform(10 * step + (uint64_t)rank, 1, weight, WEIGHTS);
        fill_uniform(10 * step + 5 + (uint64_t)rank, 1, bias, BIASES);
        assert_ok(tw_gossip_add(gossip, (const float *const *)weights));
    }
    assert_ok(tw_gossip_finish(gossip, weights));
    moved += bytes_moved(comm) - before;
    meet(comm);
    tw_gossip_destroy(gossip);
}

static void check(const char *spec, tw_world_worker play)
{
    char own[64];
    snprintf(own, sizeof own, "%s", spec);
    run_on_threads_that_stay(RANKS, play, own);
    assert_true(moved > 0);
    if (summed != moved)
        fail_msg("%s: %llu bytes came and went, and %llu were summed", spec, (unsigned long long)moved,
                 (unsigned long long)summed);
}

TEST(of_every_scheme)
{
    for (size_t s = 0; s < tw_schemes_count(); s++) check(tw_schemes_name(s), reduce);
    check("qsgd:exchange=scatter", reduce);
    check("topk:exchange=scatter", reduce);
    check("dgc:warmup_steps=0", reduce);
    check("onebit-adam:warmup_steps=0", reduce);
}

TEST(of_gossips)
{
    check("dpsgd", gossip);
    check("choco", gossip);
}

RUN_TESTS(NULL, NULL)
