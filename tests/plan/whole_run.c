/* What a plan says of a run, beside the run: all of its steps and its end, over the same line in virtual time. The run
 * is played by reducers and outer loops themselves. Of the plan's own worker, which takes a few steps and no more,
 * nothing goes into it. */
#include "row.h"
#include "support/parts.h"
#include "support/random.h"
#include "support/ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_outer.h>
#include <thinwire/thinwire_plan.h>

#define PASS 0.02
#define MBIT 125000.0   /* bytes a second */
#define CODEC_RATE 1e15 /* a codec takes no time, in the plan as in the run */
#define WITHIN 0.01
enum { TENSORS = 5, NOISE = 1 << 16 };

/* Its halves are alike, so it does not matter which of two parts meets once more than the other. */
static const tw_tensor table[TENSORS] = {{"first", 2, {120, 100}},
                                         {"second", 2, {100, 90}},
                                         {"third", 2, {90, 110}},
                                         {"fourth", 2, {110, 100}},
                                         {"bias", 1, {110}}};

typedef struct whole_run {
    const char *spec;
    uint64_t steps;
    double start, seconds, bytes; /* when all begin; and what all workers took and sent, added up */
    tw_status status;
} whole_run;

typedef struct player {
    int rank;
    float *tensors[TENSORS];
    tw_reducer *reducer; /* or */
    tw_outer *outer;
} player;

static double bytes_sent(const tw_comm *comm)
{
    tw_traffic traffic = {.struct_size = sizeof traffic};
    assert_ok(tw_comm_traffic(comm, &traffic));
    return (double)traffic.bytes_sent;
}

static float noise[NOISE];

static int setup(void **state)
{
    (void)state;
    fill_uniform(1, 1e-3f, noise, NOISE);
    return 0;
}

/* A gradient, or what a step does to weights; of this rank's own. */
static void move(const player *p, uint64_t step)
{
    uint32_t from = random_word(2 + (uint64_t)p->rank, step);
    for (size_t i = 0; i < TENSORS; i++)
        for (size_t j = 0; j < tw_tensor_count(&table[i]); j++)
            p->tensors[i][j] = (p->outer ? p->tensors[i][j] : 0) + noise[from++ % NOISE];
}

/* A third of a pass goes by before the first gradient, and the rest evenly over all. */
static tw_status step_of_gradients(const player *p, uint64_t step)
{
    move(p, step);
    tw_world_compute(PASS / 3);
    for (size_t i = TENSORS; i-- > 0;) {
        tw_world_compute(PASS * 2 / 3 / TENSORS);
        tw_status status = tw_reducer_submit(p->reducer, i, p->tensors[i]);
        if (status != TW_OK) return status;
    }
    return tw_reducer_wait(p->reducer);
}

static tw_status step_of_updates(const player *p, uint64_t step)
{
    tw_outer_event event;
    tw_world_compute(PASS);
    move(p, step);
    return tw_outer_step(p->outer, p->tensors, &event);
}

static tw_status player_begin(player *p, tw_comm *comm, const char *spec)
{
    for (size_t i = 0; i < TENSORS; i++) p->tensors[i] = calloc(tw_tensor_count(&table[i]), sizeof(float));
    if (!strstr(spec, "every=")) return tw_reducer_create(comm, spec, table, TENSORS, &p->reducer);
    tw_status status = tw_outer_create(comm, spec, table, TENSORS, &p->outer);
    return status == TW_OK ? tw_outer_begin(p->outer, p->tensors) : status;
}

static tw_status player_run(player *p, tw_comm *comm, whole_run *run)
{
    tw_status status = tw_comm_set_timeout(comm, 1e6);
    if (status == TW_OK) status = player_begin(p, comm, run->spec);
    if (p->rank == 0) run->start = tw_clock() + 10;
    if (status == TW_OK) status = tw_comm_barrier(comm);
    tw_world_compute(run->start - tw_clock());
    double begun = tw_clock(), sent = bytes_sent(comm);
    for (uint64_t step = 0; step < run->steps && status == TW_OK; step++)
        status = p->outer ? step_of_updates(p, step) : step_of_gradients(p, step);
    if (status == TW_OK && p->outer) status = tw_outer_finish(p->outer, p->tensors);
    run->seconds += tw_clock() - begun;
    run->bytes += bytes_sent(comm) - sent;
    return status;
}

static void play(void *context, int rank, tw_comm *comm)
{
    whole_run *run = context;
    player p = {.rank = rank};
    tw_status status = player_run(&p, comm, run);
    if (status != TW_OK) run->status = status;
    tw_reducer_destroy(p.reducer);
    tw_outer_destroy(p.outer);
    for (size_t i = 0; i < TENSORS; i++) free(p.tensors[i]);
}

static void assert_alike(const char *spec, const char *what, double predicted, double real)
{
    if (!(fabs(predicted / real - 1) <= WITHIN))
        fail_msg("%s: %s are %g, and %g predicted", spec, what, real, predicted);
}

static void compare(const tw_plan *plan, const tw_plan_question *q, const char *spec)
{
    char of_run[256];
    const tw_world_options line = {
        .workers = q->workers, .bandwidth = q->bandwidth, .bandwidth_down = q->bandwidth_down, .latency = q->latency};
    tw_spec_for_run(spec, q->steps, of_run, sizeof of_run);
    whole_run run = {.spec = of_run, .steps = q->steps};
    run_in_world(line, play, &run);
    assert_ok(run.status);
    double steps = (double)q->steps * q->workers;
    tw_plan_row row = row_of(plan, spec);
    assert_alike(spec, "seconds a step", row.step_seconds, run.seconds / steps);
    assert_alike(spec, "bytes a step", row.bytes_per_step, run.bytes / steps);
}

static void compare_all(int workers, const char *line, uint64_t steps, tw_plan_optimizer optimizer)
{
    static const char *const specs[] = {"allreduce",
                                        "qsgd",
                                        "powersgd:rank=16",
                                        "diloco:every=20",
                                        "diloco:every=50",
                                        "streaming:every=20,fragments=2",
                                        "sparseloco:every=20,k=256,agg=senders"};
    tw_world_options world = {.struct_size = sizeof world};
    tw_plan *plan;
    assert_ok(tw_line_read(line, &world));
    tw_plan_question q = {.struct_size = sizeof q,
                          .tensors = table,
                          .tensor_count = TENSORS,
                          .workers = workers,
                          .optimizer = optimizer,
                          .steps = steps,
                          .pass_seconds = PASS,
                          .codec_rate = CODEC_RATE,
                          .bandwidth = world.bandwidth,
                          .bandwidth_down = world.bandwidth_down,
                          .latency = world.latency,
                          .unmeasured = 1,
                          .simulate = tw_world_play};
    assert_ok(tw_plan_make(&q, &plan));
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) compare(plan, &q, specs[i]);
    compare(plan, &q, optimizer == TW_PLAN_SGD ? "dgc" : "dgc-adam");
    tw_plan_destroy(plan);
}

TEST(test_two_workers)
{
    compare_all(2, "100Mbit,1ms", 100, TW_PLAN_ADAMW);
}

/* The last round is cut short, and the run's end shares what it came to. */
TEST(test_a_run_that_ends_amid_a_round)
{
    compare_all(4, "10Mbit/100Mbit,40ms", 75, TW_PLAN_ADAMW);
}

TEST(test_four_workers)
{
    compare_all(4, "10Mbit,1ms", 100, TW_PLAN_SGD);
}

TEST(test_more_lines_and_workers)
{
    if (!in_part(0, 1)) skip();
    compare_all(2, "10Mbit,1ms", 100, TW_PLAN_SGD);
    compare_all(2, "1Gbit,0.1ms", 100, TW_PLAN_SGD);
    compare_all(2, "10Mbit,1ms", 110, TW_PLAN_SGD);
    compare_all(4, "1Gbit,0.1ms", 100, TW_PLAN_ADAMW);
    compare_all(8, "10Mbit,20ms", 100, TW_PLAN_SGD);
    compare_all(8, "100Mbit,1ms", 100, TW_PLAN_ADAMW);
}

RUN_TESTS(setup, NULL)
