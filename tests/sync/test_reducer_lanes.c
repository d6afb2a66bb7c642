/* Several messages of a reducer under way at once, in a world's time: while one is on the wire, another one is coded.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/ranks.h"

#include <thinwire/thinwire_plugin.h>

#include "reducer.h"

enum { RANKS = 2, BEGIN = 100 /* seconds */, MESSAGES = 8, SIDE = 1024, COUNT = SIDE * SIDE /* 4 MiB */ };

/* A ring all-reduce over two ranks sends each message once. */
#define WIRE 0x1p-8 /* seconds for a message */
#define BANDWIDTH (4 * COUNT / WIRE)
#define ELEMENT (WIRE / 2 / COUNT)
#define BYTE (WIRE / 2 / (4.0 * COUNT))

static const tw_tensor table[MESSAGES] = {{"a", 2, {SIDE, SIDE}}, {"b", 2, {SIDE, SIDE}}, {"c", 2, {SIDE, SIDE}},
                                          {"d", 2, {SIDE, SIDE}}, {"e", 2, {SIDE, SIDE}}, {"f", 2, {SIDE, SIDE}},
                                          {"g", 2, {SIDE, SIDE}}, {"h", 2, {SIDE, SIDE}}};

typedef struct program {
    const char *spec;
    size_t tensors;
    float *gradient[RANKS]; /* one, for all tensors are alike */
    tw_status status[RANKS];
    double first[RANKS]; /* when the first message was done */
    double took[RANKS];
    tw_reducer_counts stats[RANKS];
} program;

static tw_status play_step(tw_reducer *reducer, float *gradients[MESSAGES], double *first)
{
    int done;
    for (size_t t = MESSAGES; t-- > 0;) {
        tw_status status = tw_reducer_submit(reducer, t, gradients[t]);
        if (status != TW_OK) return status;
    }
    double began = tw_clock();
    tw_status status = tw_reducer_wait_tensor(reducer, MESSAGES - 1, INFINITY, &done);
    *first = tw_clock() - began;
    return status == TW_OK ? tw_reducer_wait(reducer) : status;
}

static void play(void *context, int rank, tw_comm *comm)
{
    program *all = context;
    tw_reducer *reducer;
    float *gradients[MESSAGES];
    for (int t = 0; t < MESSAGES; t++) gradients[t] = all->gradient[rank] + (size_t)t * COUNT;
    all->stats[rank].struct_size = sizeof all->stats[rank];
    all->status[rank] = tw_reducer_create(comm, all->spec, table, MESSAGES, &reducer);
    if (all->status[rank] != TW_OK) return;
    if (tw_comm_barrier(comm) != TW_OK) return;
    double began = tw_clock();
    all->status[rank] = play_step(reducer, gradients, &all->first[rank]);
    all->took[rank] = tw_clock() - began;
    tw_reducer_stats(reducer, &all->stats[rank]);
    tw_reducer_destroy(reducer);
}

static tw_world_options world_of(double bandwidth, double codec)
{
    return (tw_world_options){.bandwidth = bandwidth, .element_seconds = codec * ELEMENT, .byte_seconds = codec * BYTE};
}

/* With zeros for so many tensors' gradients, in memory that each run has again: pages that are new take longer than
 * what is done with them. */
static program run_world(const char *spec, tw_world_options options, tw_world_worker worker, size_t tensors,
                         tw_status end)
{
    static float gradients[RANKS][MESSAGES * COUNT];
    program all = {.spec = spec, .tensors = tensors};
    options.workers = RANKS;
    for (int r = 0; r < RANKS; r++) {
        all.gradient[r] = gradients[r];
        memset(gradients[r], 0, tensors * COUNT * sizeof(float));
    }
    run_in_world(options, worker, &all);
    for (int r = 0; r < RANKS; r++)
        if (all.status[r] != end) fail_msg("%s: %s", spec, tw_status_name(all.status[r]));
    return all;
}

static program run(const char *spec, double bandwidth, double codec)
{
    return run_world(spec, world_of(bandwidth, codec), play, MESSAGES, TW_OK);
}

/* Eight messages of 4 MiB whose codec takes as long as their wire: a step may last a fifth longer than either. */
TEST(test_codec_runs_beside_the_wire)
{
    double wire = run("allreduce", BANDWIDTH, 0).took[0], codec = run("allreduce", 0, 1).took[0];
    assert_true(codec == MESSAGES * WIRE);
    assert_true(wire >= MESSAGES * WIRE && wire < 1.01 * MESSAGES * WIRE);
    program both = run("allreduce", BANDWIDTH, 1);
    for (int r = 0; r < RANKS; r++) assert_true(both.took[r] <= 1.2 * wire);
    /* One after the other it is the sum of the two: it is the second message under way that makes the difference. */
    assert_true(run("allreduce:in_flight=1", BANDWIDTH, 1).took[0] >= wire + codec);
    assert_true(run("allreduce:overlap=off", BANDWIDTH, 1).took[0] >= wire + codec);
}

/* Messages under way at once do not share the line: the first is there after its own time and that of what went beside
 * its sums, which is the parts of the second. Four that shared it would all be there after four times as long. */
TEST(test_the_first_message_has_the_line_to_itself)
{
    static const char *const specs[] = {"allreduce", "allreduce:in_flight=8"};
    for (int s = 0; s < 2; s++) {
        program all = run(specs[s], BANDWIDTH, 0);
        for (int r = 0; r < RANKS; r++) {
            assert_true(all.first[r] >= WIRE && all.first[r] <= 1.5 * WIRE);
            assert_true(all.took[r] < 1.01 * MESSAGES * WIRE);
        }
    }
}

/* Everything is submitted at once, so all of the step's time is either in the codec or on the wire alone; and a world
 * is the same every time. */
TEST(test_seconds_add_up)
{
    static const char *const specs[] = {"allreduce", "allreduce:in_flight=1", "allreduce:in_flight=8"};
    for (int s = 0; s < 3; s++) {
        program all = run(specs[s], BANDWIDTH, 1), again = run(specs[s], BANDWIDTH, 1);
        for (int r = 0; r < RANKS; r++) {
            assert_true(again.first[r] == all.first[r] && again.took[r] == all.took[r]);
            const tw_reducer_counts *stats = &all.stats[r];
            assert_true(stats->seconds_codec == MESSAGES * WIRE);
            assert_true(stats->seconds_exchange > 0);
            assert_true(stats->seconds_codec + stats->seconds_exchange == all.took[r]);
            assert_true(stats->seconds_wait == all.took[r]);
        }
    }
}

/* How many messages there are: they are what is submitted and coded one after the other. And how many lanes they take.
 */
static size_t count_messages(const char *spec, const tw_tensor *tensors, size_t count, int *lanes)
{
    tw_comm *comm;
    tw_reducer *reducer = NULL;
    assert_ok(tw_comm_create_threads(1, &comm));
    assert_ok(tw_reducer_create(comm, spec, tensors, count, &reducer));
    size_t messages = reducer->message_count;
    *lanes = reducer->driver.lane_count;
    tw_reducer_destroy(reducer);
    tw_comm_destroy(comm);
    return messages;
}

/* Large messages keep each other's lines busy when more of them are under way; what is compressed has a codec to hide.
 */
TEST(test_more_is_under_way_where_nothing_is_compressed)
{
    static const struct {
        const char *spec;
        int lanes;
    } cases[] = {{"allreduce", 4},
                 {"fp16", 4},
                 {"bf16", 4},
                 {"topk:message_kb=1", 2},
                 {"qsgd:message_kb=1", 2},
                 {"allreduce:in_flight=1", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int lanes;
        count_messages(cases[i].spec, table, MESSAGES, &lanes);
        assert_int_equal(lanes, cases[i].lanes);
    }
}

TEST(test_messages_are_as_large_as_suits_the_scheme)
{
    tw_tensor large[MESSAGES]; /* of 64 MiB */
    for (int t = 0; t < MESSAGES; t++) large[t] = (tw_tensor){table[t].name, 2, {4096, 4096}};
    const struct {
        const char *spec;
        const tw_tensor *tensors;
        size_t count, messages;
    } cases[] = {{"allreduce", table, MESSAGES, MESSAGES},
                 {"bf16", table, MESSAGES, MESSAGES},
                 {"topk", table, MESSAGES, 4},        /* a quarter of 32 MiB each */
                 {"topk", table, 3, 3},               /* 4 MiB is the least */
                 {"topk", large, MESSAGES, MESSAGES}, /* 32 MiB is the most */
                 {"topk:message_kb=1", table, 3, 3},
                 {"topk:message_kb=8192", table, MESSAGES, 4},
                 {"allreduce:message_kb=32768", table, MESSAGES, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int lanes;
        assert_int_equal(count_messages(cases[i].spec, cases[i].tensors, cases[i].count, &lanes), cases[i].messages);
    }
}

/* Without a wire, two cores take half as long as one: eight messages or four, looked at before or while taken in. */
TEST(test_two_cores_code_at_once)
{
    static const char *const specs[] = {"allreduce", "allreduce:message_kb=8192", "topk:message_kb=8192"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        char shared[64];
        snprintf(shared, sizeof shared, "%s%sthreads=2", specs[s], strchr(specs[s], ':') ? "," : ":");
        double one = run(specs[s], 0, 1).took[0], two = run(shared, 0, 1).took[0];
        if (s < 2) assert_true(one == MESSAGES * WIRE);
        if (two < one / 2 || two > one / 1.95) fail_msg("%s: %g of %g", shared, two, one);
    }
    program beside = run("allreduce:threads=2,in_flight=3", BANDWIDTH, 1);
    assert_true(beside.took[0] <= 1.2 * MESSAGES * WIRE);
    assert_true(beside.stats[0].seconds_codec + beside.stats[0].seconds_exchange == beside.took[0]);
}

/* A message that is compressed, and goes first, and one that is not. */
static const tw_tensor mixed[] = {{"vector", 1, {COUNT}}, {"matrix", 2, {SIDE, SIDE}}};

static void play_mixed(void *context, int rank, tw_comm *comm)
{
    program *all = context;
    tw_reducer *reducer;
    float *gradient = all->gradient[rank];
    all->status[rank] = tw_reducer_create(comm, all->spec, mixed, all->tensors, &reducer);
    if (all->status[rank] != TW_OK) return;
    tw_pause(BEGIN - tw_clock()); /* at the same time on both */
    double began = tw_clock();
    for (size_t t = all->tensors; t-- > 0; gradient += COUNT)
        assert_int_equal(tw_reducer_submit(reducer, t, gradient), TW_OK);
    all->status[rank] = tw_reducer_wait(reducer);
    all->took[rank] = tw_clock() - began;
    tw_reducer_destroy(reducer);
}

/* Where all that takes time is the way to the other rank, what a scheme leaves as it is takes longer to sum than the
 * message before. It is summed beside that one, and does not wait for its packets, scalecom's broadcast, or the sums of
 * powersgd's beginning. The sums of powersgd's factors are small, and nobody would wait for them. */
TEST(test_compressed_messages_share_the_line)
{
    static const char *const specs[] = {"topk:message_kb=1",     "dgc:message_kb=1,min_dims=2",
                                        "qsgd:message_kb=1",     "threshold:message_kb=1",
                                        "powersgd:message_kb=1", "scalecom:message_kb=1"};
    const tw_world_options far = {.latency = 1};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        program alone = run_world(specs[s], far, play_mixed, 1, TW_OK);
        program both = run_world(specs[s], far, play_mixed, 2, TW_OK);
        for (int r = 0; r < RANKS; r++)
            if (both.took[r] != alone.took[r]) fail_msg("%s: %g seconds", specs[s], both.took[r]);
    }
}

/* The last message is small, and done long before the large one beside it: the two together are beyond the bound. */
static const tw_tensor unlike[] = {{"small", 2, {32, 32}}, {"large", 2, {SIDE, SIDE}}, {"middle", 2, {64, 64}}};
enum { UNLIKE = sizeof unlike / sizeof *unlike };

static void play_unlike(void *context, int rank, tw_comm *comm)
{
    program *all = context;
    tw_reducer *reducer;
    float *gradient = all->gradient[rank];
    all->status[rank] = tw_reducer_create(comm, all->spec, unlike, UNLIKE, &reducer);
    if (all->status[rank] != TW_OK) return;
    for (size_t t = UNLIKE; t-- > 0; gradient += COUNT) {
        gradient[7] = t < 2 ? 7.1e32F : 0;
        assert_int_equal(tw_reducer_submit(reducer, t, gradient), TW_OK);
    }
    all->status[rank] = tw_reducer_wait(reducer);
    tw_reducer_destroy(reducer);
}

TEST(test_the_last_message_knows_the_norm_of_those_beside_it)
{
    static const char *const specs[] = {"topk",
                                        "topk:exchange=scatter",
                                        "dgc:min_elements=4000",
                                        "adacomp",
                                        "qsgd",
                                        "qsgd:exchange=scatter",
                                        "powersgd",
                                        "powersgd:warmup_steps=0",
                                        "powersgd:warmup_steps=0,min_elements=4000",
                                        "scalecom",
                                        "scalecom:min_elements=4000",
                                        "allreduce"};
    char spec[96];
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        snprintf(spec, sizeof spec, "%s%smessage_kb=1,threads=2", specs[s], strchr(specs[s], ':') ? "," : ":");
        run_world(spec, world_of(0, 1), play_unlike, UNLIKE, TW_SKIPPED);
    }
}

RUN_TESTS(NULL, NULL)
