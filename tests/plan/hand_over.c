/* What one reducer holds back goes on by another: all gradients arrive once, by every scheme that a run can leave, with
 * hosts and without. The sum of the gradients themselves is beside it. */
#include "support/outside.h"
#include "support/random.h"
#include "support/ranks.h"

#include <stdio.h>
#include <string.h>
#include <thinwire/thinwire_plan.h>

enum { RANKS = 4, STEPS = 3, MATRIX = 2048, ELEMENTS = MATRIX + 100 };

typedef struct scene {
    char from[96], by[96];
    double arrived[ELEMENTS]; /* on rank 0 */
} scene;

static float drawn(int rank, int step, size_t i)
{
    return uniform((uint64_t)(100 * rank + step), i);
}

static void exchange(tw_reducer *reducer, float *const *gradients)
{
    for (size_t i = 0; i < 2; i++) assert_ok(tw_reducer_submit(reducer, i, gradients[i]));
    assert_ok(tw_reducer_wait(reducer));
}

static void go_on(void *context, int rank, tw_comm *comm)
{
    static const tw_tensor table[] = {{"matrix", 2, {32, 64}}, {"vector", 1, {100}}};
    scene *all = context;
    float flat[ELEMENTS], held[ELEMENTS] = {0}, *gradients[] = {flat, flat + MATRIX}, *parts[] = {held, held + MATRIX};
    tw_reducer *from, *by;
    assert_ok(tw_reducer_create(comm, all->from, table, 2, &from));
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < ELEMENTS; i++) flat[i] = drawn(rank, step, i);
        exchange(from, gradients);
        for (size_t i = 0; rank == 0 && i < ELEMENTS; i++) all->arrived[i] += (double)flat[i];
    }
    assert_ok(tw_reducer_hand_over(from, parts));
    tw_reducer_destroy(from);
    assert_ok(tw_reducer_create(comm, all->by, table, 2, &by));
    exchange(by, parts);
    for (size_t i = 0; rank == 0 && i < ELEMENTS; i++) all->arrived[i] += (double)held[i];
    tw_reducer_destroy(by);
}

static void check(const char *name, const char *more, const char *by)
{
    scene all = {{0}, {0}, {0}};
    snprintf(all.from, sizeof all.from, "%s%s", name, more);
    snprintf(all.by, sizeof all.by, "%s", by);
    assert_ok(tw_plan_can_switch(all.from));
    run_in_world((tw_world_options){.workers = RANKS, .workers_per_host = 2}, go_on, &all);
    for (size_t i = 0; i < ELEMENTS; i++) {
        double sum = 0;
        for (int rank = 0; rank < RANKS; rank++)
            for (int step = 0; step < STEPS; step++) sum += (double)drawn(rank, step, i) / RANKS;
        if (!(fabs(all.arrived[i] - sum) <= 0.02))
            fail_msg("%s: %g has arrived at %zu, not %g", all.from, all.arrived[i], i, sum);
    }
}

/* By a rule of their own these drop, or draw, a part of what they are given. */
static int keeps_all(const char *name)
{
    static const char *const others[] = {"qsgd", "natural", "e3m0", "terngrad", "scalecom", "chunktopk"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0) return 0;
    return 1;
}

TEST(test_all_gradients_arrive)
{
    int tried = 0;
    for (size_t k = 0; k < tw_schemes_count(); k++) {
        const char *name = tw_schemes_name(k);
        if (!keeps_all(name) || tw_plan_can_switch(name) != TW_OK) continue;
        check(name, "", "allreduce");
        check(name, ":per_host=2", "allreduce");
        check(name, ":per_host=2", "allreduce:per_host=2");
        tried++;
    }
    assert_true(tried >= 10);
    check("topk", ":exchange=scatter", "allreduce:per_host=2");
    check("dgc", ":momentum=0", "allreduce");
    check("dgc", ":momentum=0,masking=off,warmup_steps=0", "allreduce");
    check("sdagc", ":momentum=0,exchange=scatter", "allreduce");
}

/* Of what no step would have kept nothing is handed over, and of coefficients least of all. */
static void keep_nothing(void *context, int rank, tw_comm *comm)
{
    static const tw_tensor matrix = {"matrix", 2, {32, 64}};
    float flat[MATRIX], held[MATRIX] = {0}, *parts[] = {held};
    tw_reducer *reducer;
    assert_ok(tw_reducer_create(comm, context, &matrix, 1, &reducer));
    for (size_t i = 0; i < MATRIX; i++) flat[i] = drawn(rank, 0, i);
    assert_ok(tw_reducer_submit(reducer, 0, flat));
    assert_ok(tw_reducer_wait(reducer));
    assert_ok(tw_reducer_hand_over(reducer, parts));
    for (size_t i = 0; i < MATRIX; i++) assert_true(held[i] == 0);
    tw_reducer_destroy(reducer);
}

TEST(test_what_nobody_keeps_is_not_handed_over)
{
    static char specs[][32] = {"demo:momentum=0,map=none", "chunktopk:decay=0"};
    for (size_t s = 0; s < 2; s++) {
        assert_ok(tw_plan_can_switch(specs[s]));
        run_in_world((tw_world_options){.workers = RANKS}, keep_nothing, specs[s]);
    }
}

/* A scheme from outside may remember anything by a tensor's name. */
static tw_status remember_pairs(void *self, tw_scheme *scheme, tw_walk *walk)
{
    static float pairs[2 * MATRIX];
    (void)self, (void)scheme;
    return tw_walk_visit(walk, "pairs", "matrix", TW_STATE_ADDS, TW_F32, 2 * MATRIX, pairs);
}

static void refuse_pairs(void *context, int rank, tw_comm *comm)
{
    static const tw_tensor matrix = {"matrix", 2, {32, 64}};
    float held[MATRIX] = {0}, *parts[] = {held};
    tw_reducer *reducer;
    (void)context, (void)rank;
    assert_ok(tw_reducer_create(comm, "pairs", &matrix, 1, &reducer));
    assert_fails(tw_reducer_hand_over(reducer, parts), TW_ERROR_UNSUPPORTED, "pairs/matrix is no part of a gradient");
    tw_reducer_destroy(reducer);
}

TEST(test_what_is_larger_than_a_tensor_is_no_part_of_it)
{
    assert_ok(register_outside("pairs", remember_pairs));
    run_in_world((tw_world_options){.workers = 1}, refuse_pairs, NULL);
}

/* What a scheme from outside calls a momentum is its author's, and is not lost. */
static tw_status remember_momentum(void *self, tw_scheme *scheme, tw_walk *walk)
{
    static float momentum[MATRIX];
    (void)self, (void)scheme;
    for (size_t i = 0; i < MATRIX; i++) momentum[i] = 0.25F;
    return tw_walk_visit(walk, "momentum", "matrix", TW_STATE_ADDS, TW_F32, MATRIX, momentum);
}

static void hand_over_momentum(void *context, int rank, tw_comm *comm)
{
    static const tw_tensor matrix = {"matrix", 2, {32, 64}};
    float held[MATRIX] = {0}, *parts[] = {held};
    tw_reducer *reducer;
    (void)context, (void)rank;
    assert_ok(tw_reducer_create(comm, "heavy", &matrix, 1, &reducer));
    assert_ok(tw_reducer_hand_over(reducer, parts));
    for (size_t i = 0; i < MATRIX; i++) assert_true(held[i] == 0.25F);
    tw_reducer_destroy(reducer);
}

TEST(test_a_momentum_from_outside_is_handed_over)
{
    assert_ok(register_outside("heavy", remember_momentum));
    run_in_world((tw_world_options){.workers = 1}, hand_over_momentum, NULL);
}

/* Of how many workers the run has nothing is asked. */
TEST(test_hosts_can_be_left)
{
    assert_ok(tw_plan_can_switch("topk:per_host=2"));
    assert_ok(tw_plan_can_switch("diloco:every=20,per_host=8"));
    assert_fails(tw_plan_can_switch("dgc:per_host=2"), TW_ERROR_UNSUPPORTED, "moments");
    assert_fails(tw_plan_can_switch("topk:per_host=0"), TW_ERROR_SPEC, "per_host");
}

RUN_TESTS(NULL, NULL)
