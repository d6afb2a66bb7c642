/* AdamW goes on with a scheme that owns its moments, and a scheme's run with AdamW: against an Adam that knows of
 * neither. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adam_twin.h"
#include "support/outside.h"

enum { STEPS = 12 };

#define COMMON BETA1_EPSILON ",leftovers=fp32,warmup_steps=0"
#define EXACT "dgc-adam:density=1,values=fp32,nesterov=off,beta2=0.9375," COMMON

/* Multiples of 1/1024, so that quarters of four ranks add up exactly. */
static float drawn(int step, int rank, size_t tensor, size_t i)
{
    return roundf(1024 * gradient_draw(1, step, rank, tensor, i)) / 1024;
}

static float mean_of(int ranks, int step, size_t tensor, size_t i)
{
    float sum = 0;
    for (int r = 0; r < ranks; r++) sum += drawn(step, r, tensor, i);
    return sum / (float)ranks;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static void step_of(loopback *group, gradients *g, int step)
{
    for (int r = 0; r < group->size; r++)
        for (size_t t = 0; t < TENSORS; t++)
            for (size_t i = 0; i < counts[t]; i++) g->rank[r][t][i] = drawn(step, r, t, i);
    assert_false(group_step(group, g));
}

static tw_status state_of(const char *spec, const twin *t, int rank, int size, tw_state *state)
{
    return tw_reducer_state_of_moments(spec, table, TENSORS, t->steps, (const float *const *)t->first,
                                       (const float *const *)t->second, rank, size, "s.", state);
}

/* A group that goes on where the twin stands. */
static void follow_twin(loopback *group, const char *spec, const twin *t, int size)
{
    assert_ok(loopback_create(group, spec, table, TENSORS, size));
    for (int r = 0; r < size; r++) {
        tw_state *state;
        assert_ok(tw_state_create(&state));
        assert_ok(state_of(spec, t, r, size, state));
        assert_ok(tw_scheme_load_state(group->scheme[r], "s.", state));
        tw_state_destroy(state);
    }
}

static tw_status source(void *context, int rank, const tw_state **state)
{
    *state = ((tw_state *const *)context)[rank];
    return TW_OK;
}

/* A twin that goes on where the group stands. */
static void follow_group(twin *t, const char *spec, const loopback *group)
{
    tw_state *states[RANKS];
    for (int r = 0; r < group->size; r++) assert_non_null(states[r] = loopback_save(group->scheme[r], "s."));
    assert_ok(tw_reducer_moments_of_state(spec, table, TENSORS, group->size, source, states, "s.", &t->steps, t->first,
                                          t->second));
    for (int r = 0; r < group->size; r++) tw_state_destroy(states[r]);
}

static void check_follows(loopback *group, gradients *g, twin *t, int step)
{
    step_of(group, g, step);
    t->steps++;
    for (size_t k = 0; k < TENSORS; k++)
        for (size_t i = 0; i < counts[k]; i++)
            assert_true(g->rank[0][k][i] == twin_direction(t, k, i, mean_of(group->size, step, k, i)));
}

/* ---- identities -------------------------------------------------------------------------------------------------- */

/* AdamW, then the scheme, then AdamW: the steps of an AdamW that was never left, bit for bit. */
static void check_there_and_back(const char *spec, int ranks)
{
    loopback group;
    gradients g;
    twin *t = twin_create(0.9375F), *back = twin_create(0.9375F);
    gradients_create(&g, table, TENSORS, ranks);
    while (t->steps < STEPS) {
        t->steps++;
        for (size_t k = 0; k < TENSORS; k++)
            for (size_t i = 0; i < counts[k]; i++) (void)twin_direction(t, k, i, mean_of(ranks, (int)t->steps, k, i));
    }
    follow_twin(&group, spec, t, ranks);
    for (int step = STEPS + 1; step <= 2 * STEPS; step++) check_follows(&group, &g, t, step);
    follow_group(back, spec, &group);
    assert_int_equal(back->steps, 2 * STEPS);
    assert_memory_equal(back->matrix, t->matrix, sizeof t->matrix);
    assert_memory_equal(back->bias, t->bias, sizeof t->bias);
    loopback_destroy(&group);
    gradients_destroy(&g);
    free(t);
    free(back);
}

TEST(test_nothing_of_the_moments_is_lost)
{
    check_there_and_back(EXACT, 1);
    check_there_and_back("dgc-adam:dense=*,nesterov=off,beta2=0.9375," COMMON, RANKS);
    check_there_and_back(
        "onebit-adam:momentum=0.75,beta2=0.9375,epsilon=9.5367431640625e-7,leftovers=fp32,warmup_steps=100", RANKS);
}

/* What ranks have of a kind, added up. */
typedef struct sum {
    const char *kind;
    double *of;
} sum;

static tw_status add_entry(void *context, const tw_remembered *entry)
{
    const sum *self = context;
    if (strcmp(entry->what, self->kind) != 0 || strcmp(entry->tensor, table[0].name) != 0) return TW_OK;
    for (size_t i = 0; i < entry->count; i++) self->of[entry->first + i] += (double)((const float *)entry->data)[i];
    return TW_OK;
}

static double *sum_of(const loopback *group, const char *kind)
{
    sum all = {kind, calloc(MATRIX, sizeof(double))};
    assert_non_null(all.of);
    for (int r = 0; r < group->size; r++) assert_ok(tw_scheme_visit_state(group->scheme[r], add_entry, &all));
    return all.of;
}

/* A twin whose corrections are long 1, with moments of its own. */
static twin *aged_twin(void)
{
    twin *t = twin_create(0.999999F);
    t->steps = 100000000;
    for (size_t k = 0; k < TENSORS; k++)
        for (size_t i = 0; i < counts[k]; i++) {
            t->first[k][i] = gradient_draw(5, 1, 0, k, i) / 8;
            t->second[k][i] = 1 + fabsf(gradient_draw(5, 2, 0, k, i));
        }
    return t;
}

/* All that the momentum would still move, where no gradient comes. */
static double still_to_come(double m, double v)
{
    double all = 0;
    for (int step = 0; step < 400; step++) all += (m *= (double)BETA1) / (sqrt(v) + (double)EPSILON);
    return all;
}

/* The ranks' shares of the moments add up to Adam's; and after some steps Adam owes what was held back, and no more. */
TEST(test_what_is_held_back_is_paid_out)
{
    const char *spec = "dgc-adam:density=0.05,masking=off,beta2=0.999999," COMMON;
    loopback group;
    gradients g;
    twin *t = aged_twin(), *back = twin_create(0.999999F);
    gradients_create(&g, table, TENSORS, RANKS);
    follow_twin(&group, spec, t, RANKS);
    double *first = sum_of(&group, "momentum"), *second = sum_of(&group, "second_moment"), most = 0;
    for (size_t i = 0; i < MATRIX; i++) {
        assert_true(first[i] == (double)t->first[0][i]);
        assert_true(second[i] == (double)t->second[0][i]);
    }
    free(first);
    free(second);
    for (int step = 1; step <= STEPS; step++) step_of(&group, &g, step);
    follow_group(back, spec, &group);
    first = sum_of(&group, "momentum");
    second = sum_of(&group, "second_moment");
    double *held = sum_of(&group, "residual");
    for (size_t i = 0; i < MATRIX; i++) {
        double v = (double)back->second[0][i];
        double paid = still_to_come((double)back->first[0][i], v) - still_to_come(first[i], v);
        assert_true(fabs(v - second[i]) <= 1e-6 * v);
        assert_true(fabs(paid - held[i]) <= 1e-4 * (fabs(held[i]) + 1));
        most = fmax(most, fabs(held[i]));
    }
    assert_true(most > 1);
    loopback_destroy(&group);
    gradients_destroy(&g);
    free(first);
    free(second);
    free(held);
    free(t);
    free(back);
}

/* 1-bit Adam's squares stand still, and so does their correction. Adam's is of its own step, of which `age` are done
 * when the scheme takes over. */
static void check_onebit(const char *still, uint64_t age, const char *exchange, const char *divide)
{
    char spec[256];
    loopback group;
    gradients g;
    twin *t = twin_create(0.9375F), *back = twin_create(0.9375F);
    snprintf(spec, sizeof spec, "onebit-adam:momentum=0.75,beta2=0.9375,%s,exchange=%s,divide=%s", still, exchange,
             divide);
    t->steps = age;
    for (size_t k = 0; k < TENSORS; k++)
        for (size_t i = 0; i < counts[k]; i++) t->second[k][i] = 1 + fabsf(gradient_draw(5, 2, 0, k, i));
    gradients_create(&g, table, TENSORS, RANKS);
    follow_twin(&group, spec, t, RANKS);
    for (int step = 1; step <= STEPS; step++) step_of(&group, &g, step);
    follow_group(back, spec, &group);
    assert_int_equal(back->steps, age + STEPS);
    double *first = sum_of(&group, "momentum"), *held = sum_of(&group, "residual"), *pieces = sum_of(&group, "section");
    double corrected = 1 - pow(0.9375, (double)back->steps), most = 0;
    for (size_t i = 0; i < MATRIX; i++) {
        double square =
            (double)t->second[0][i] / (1 - pow(0.9375, (double)age)); /* as it was when the scheme took over */
        double divisor = strcmp(divide, "before") == 0 ? sqrt(square) + 1e-8 : 1;
        double wanted = first[i] / RANKS + (held[i] + pieces[i]) * divisor / 0.75;
        assert_true(fabs((double)back->second[0][i] / corrected - square) < 1e-5 * square);
        assert_true(fabs((double)back->first[0][i] - wanted) < 1e-5 * (1 + fabs(wanted)));
        most = fmax(most, fabs(held[i]));
    }
    assert_true(most > 0.1);
    loopback_destroy(&group);
    gradients_destroy(&g);
    free(first);
    free(held);
    free(pieces);
    free(t);
    free(back);
}

TEST(test_onebit_adam_gives_back_what_both_sides_lost)
{
    check_onebit("warmup_steps=8", 10, "gather", "before");
    check_onebit("warmup_steps=8", 10, "scatter", "before");
    check_onebit("warmup_steps=8", 10, "scatter", "after");
    check_onebit("warmup_steps=2,refresh=1", 17, "scatter", "before"); /* refreshed by steps 17 and 33 */
}

/* The first rank of a host speaks for it. */
TEST(test_hosts_share_moments)
{
    const char *hosts = EXACT ",per_host=2";
    twin *t = aged_twin(), *back = twin_create(0.999999F);
    tw_state *states[RANKS];
    for (int r = 0; r < RANKS; r++) {
        assert_ok(tw_state_create(&states[r]));
        assert_ok(state_of(hosts, t, r, RANKS, states[r]));
        assert_int_equal(tw_state_count(states[r]) > 0, r % 2 == 0);
    }
    assert_ok(tw_reducer_moments_of_state(hosts, table, TENSORS, RANKS, source, states, "s.", &back->steps, back->first,
                                          back->second));
    assert_memory_equal(back->matrix, t->matrix, sizeof t->matrix);
    assert_memory_equal(back->bias, t->bias, sizeof t->bias);
    for (int r = 0; r < RANKS; r++) tw_state_destroy(states[r]);
    free(t);
    free(back);
}

/* Half the memory keeps half the digits. */
TEST(test_halves_are_rounded)
{
    const char *halves = EXACT ",state=bf16";
    twin *t = aged_twin(), *back = twin_create(0.999999F);
    loopback group;
    follow_twin(&group, halves, t, RANKS);
    follow_group(back, halves, &group);
    for (size_t i = 0; i < MATRIX; i++) {
        assert_true(fabsf(back->first[0][i] - t->first[0][i]) <= 0x1p-6F * fabsf(t->first[0][i]));
        assert_true(back->second[0][i] == t->second[0][i]);
    }
    loopback_destroy(&group);
    free(t);
    free(back);
}

/* What comes out is written on success only. */
TEST(test_a_momentum_alone_is_not_given)
{
    twin *t = aged_twin(), before = *t;
    loopback group;
    uint64_t steps = 0;
    assert_ok(loopback_create(&group, "dgc", table, TENSORS, 1));
    tw_state *saved = loopback_save(group.scheme[0], "s.");
    assert_fails(
        tw_reducer_moments_of_state("dgc", table, TENSORS, 1, source, &saved, "s.", &steps, t->first, t->second),
        TW_ERROR_SPEC, "scheme dgc has none of Adam's moments");
    assert_memory_equal(before.matrix, t->matrix, sizeof before.matrix);
    assert_memory_equal(before.bias, t->bias, sizeof before.bias);
    assert_int_equal(steps, 0);
    tw_state_destroy(saved);
    loopback_destroy(&group);
    free(t);
}

/* A scheme from outside calls what it likes a momentum. */
static tw_status remember_momentum(void *self, tw_scheme *scheme, tw_walk *walk)
{
    static float momentum[2 * MATRIX];
    (void)self, (void)scheme;
    assert_ok(tw_walk_visit(walk, "momentum", "all", TW_STATE_ADDS, TW_F32, 1, momentum));
    return tw_walk_visit(walk, "momentum", "a.weight", TW_STATE_ADDS, TW_F32, 2 * MATRIX, momentum);
}

TEST(test_a_momentum_of_something_else_is_none)
{
    twin *t = aged_twin();
    const float *const first[TENSORS + 1] = {t->first[0], t->first[1]}, /* and none behind them */
        *const second[TENSORS + 1] = {t->second[0], t->second[1]};
    tw_state *got;
    assert_ok(tw_state_create(&got));
    assert_ok(register_outside("other", remember_momentum));
    assert_fails(tw_reducer_state_of_moments("other", table, TENSORS, t->steps, first, second, 0, 1, "s.", got),
                 TW_ERROR_SPEC, "scheme other has none of Adam's moments");
    assert_int_equal(tw_state_count(got), 0);
    tw_state_destroy(got);
    free(t);
}

/* Its moments may be numbers of another type than the library's own. */
static tw_status remember_doubles(void *self, tw_scheme *scheme, tw_walk *walk)
{
    static double momentum[TENSORS][MATRIX];
    static float second[TENSORS][MATRIX];
    (void)self, (void)scheme;
    for (size_t t = 0; t < TENSORS; t++) {
        assert_ok(tw_walk_visit(walk, "momentum", table[t].name, TW_STATE_ADDS, TW_F64, counts[t], momentum[t]));
        assert_ok(tw_walk_visit(walk, "second_moment", table[t].name, TW_STATE_SAME, TW_F32, counts[t], second[t]));
    }
    return TW_OK;
}

TEST(test_moments_of_a_scheme_from_outside_keep_their_type)
{
    twin *t = aged_twin();
    tw_state *got;
    assert_ok(tw_state_create(&got));
    assert_ok(register_outside("doubles", remember_doubles));
    assert_ok(state_of("doubles", t, 1, 2, got));
    for (size_t k = 0; k < TENSORS; k++) {
        char name[64];
        double half[MATRIX];
        snprintf(name, sizeof name, "s.momentum/%s", table[k].name);
        assert_ok(tw_state_get(got, name, TW_F64, counts[k], half));
        for (size_t i = 0; i < counts[k]; i++) assert_true(half[i] == (double)t->first[k][i] / 2);
    }
    tw_state_destroy(got);
    free(t);
}

TEST(test_what_does_not_fit_is_refused)
{
    twin *t = aged_twin();
    tw_state *got, *none = NULL;
    uint64_t steps;
    assert_ok(tw_state_create(&got));
    assert_fails(state_of("topk", t, 0, 1, got), TW_ERROR_SPEC, "scheme topk has none of Adam's moments");
    assert_fails(state_of("dgc", t, 0, 1, got), TW_ERROR_SPEC, "scheme dgc has none of Adam's moments");
    assert_fails(state_of(EXACT, t, 2, 2, got), TW_ERROR_ARGUMENT, "rank 2 of 2");
    t->second[1][3] = -1;
    assert_fails(state_of(EXACT, t, 0, 1, got), TW_ERROR_STATE, "the second moment of 'a.bias' is -1 at 3");
    t->second[1][3] = 1;
    t->first[0][7] = NAN;
    assert_fails(state_of(EXACT, t, 0, 1, got), TW_ERROR_STATE, "momentum/a.weight");
    assert_int_equal(tw_state_count(got), 0);
    assert_fails(
        tw_reducer_moments_of_state(EXACT, table, TENSORS, 1, source, &none, "s.", &steps, t->first, t->second),
        TW_ERROR_ARGUMENT, "no state of any of the ranks");
    tw_state_destroy(got);
    free(t);
}

RUN_TESTS(NULL, NULL)
