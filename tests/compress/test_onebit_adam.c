/* onebit-adam: the published rule once more, and the Adam that it begins with and leaves alone. */
#include <math.h>
#include <string.h>

#include "gradients.h"
#include "support/assert.h"

enum { RANKS = 3, TENSORS = 2, MATRIX = 64 * 48, MOST = MATRIX, STEPS = 50, WARMUP = 8 };
/* A piece of the matrix is each rank's to sum. */
static const tw_tensor table[TENSORS] = {{"a.weight", 2, {64, 48}}, {"a.bias", 1, {70}}};

static const double BETA1 = 0.75, BETA2 = 0.9375, EPSILON = 0x1p-20;

static size_t count_of(size_t tensor)
{
    return tw_tensor_count(&table[tensor]);
}

/* ---- the rule, in double, with what both sides lost ---- */

typedef struct rule {
    const char *spec;
    int before;  /* divides before the signs are taken */
    int gathers; /* nothing is encoded a second time */
    int adapts;  /* has squares */
    int warmup;  /* steps */
    int kappa;   /* refreshes of the squares at each interval; 0: they stand still */
    int late;    /* steps that some elements have no gradient in; 0: WARMUP */
} rule;

typedef struct twin {
    rule rule;
    double m[TENSORS][MOST], v[TENSORS][MOST];
    double age;                               /* of the matrix's v, in gradients */
    double worker[RANKS][MOST], server[MOST]; /* of the matrix, which alone is compressed */
} twin;

/* Every choice of ranks in eight steps, all and none of them too. */
static unsigned char is_absent(int step, int rank, size_t tensor)
{
    return (step + 3 * (int)tensor) >> rank & 1;
}

static int is_nobodys(int step, size_t tensor)
{
    for (int r = 0; r < RANKS; r++)
        if (!is_absent(step, r, tensor)) return 0;
    return 1;
}

/* Steps are counted from 1. Refresh j + 1 is 2^floor(j / kappa) steps after refresh j. */
static int is_refresh(const rule *r, int step)
{
    int refresh = r->warmup;
    for (int j = 0; r->kappa && refresh < step; j++) refresh += 1 << j / r->kappa;
    return r->kappa && refresh == step;
}

static int is_whole(const rule *r, int step)
{
    return r->adapts && (step <= r->warmup || is_refresh(r, step));
}

/* Gradients that the squares have taken in after this step. */
static double age(const rule *r, int step)
{
    int count = 0;
    for (int s = 1; s <= step; s++) count += is_whole(r, s);
    return count;
}

/* Some elements have no gradient in the beginning. */
static int is_late(const rule *r, int step, size_t tensor, size_t i)
{
    return r->adapts && step <= (r->late ? r->late : WARMUP) && tensor == 0 && i % 5 == 4;
}

static int is_still(const twin *t, size_t i)
{
    return t->rule.adapts && t->v[0][i] == 0;
}

/* What signs and a root mean square say of the elements from `first` on, which keep the rest. */
static void compress_piece(const twin *t, size_t first, size_t n, double *x, double *said)
{
    double squares = 0, count = 0;
    for (size_t i = first; i < first + n; i++) {
        squares += is_still(t, i) ? 0 : x[i] * x[i];
        count += !is_still(t, i);
    }
    double scale = sqrt(squares / count);
    for (size_t i = first; i < first + n; i++) {
        said[i] = is_still(t, i) ? 0 : x[i] < 0 ? -scale : scale;
        x[i] -= said[i];
    }
}

static void compress(const twin *t, double *x, double *said)
{
    size_t n = MATRIX / (t->rule.gathers ? 1 : RANKS);
    for (size_t first = 0; first < MATRIX; first += n) compress_piece(t, first, n, x, said);
}

/* What m is divided by before its signs are taken. */
static double divisor(const twin *t, size_t i)
{
    return t->rule.before && t->rule.adapts ? sqrt(t->v[0][i] / (1 - pow(BETA2, t->age))) + EPSILON : 1;
}

/* Adam itself goes no further for a gradient of a new size. */
static double fresh(const twin *t, size_t i, double gradient)
{
    double most = 1 / sqrt(1 - BETA2), ahead = gradient / divisor(t, i);
    if (is_still(t, i)) return 0;
    if (!t->rule.adapts) return ahead;
    return (1 - BETA1) * (t->rule.before ? fmax(fmin(ahead, most), -most) : ahead);
}

/* A rank without a gradient says exactly its share of m, and what it keeps stays as it is. */
static void share_momentum(twin *t, int step, double given[RANKS][MOST])
{
    double said[MOST];
    for (int r = 0; r < RANKS; r++) {
        int absent = is_absent(step, r, 0);
        for (size_t i = 0; i < MATRIX; i++) {
            said[i] = BETA1 * t->m[0][i] / divisor(t, i);
            if (!absent) t->worker[r][i] += said[i] + fresh(t, i, given[r][i]);
        }
        if (!absent) compress(t, t->worker[r], said);
        for (size_t i = 0; i < MATRIX; i++) t->server[i] += said[i] / RANKS;
    }
    if (t->rule.gathers) {
        memcpy(t->m[0], t->server, sizeof t->server);
        memset(t->server, 0, sizeof t->server);
    } else {
        compress(t, t->server, t->m[0]);
    }
    for (size_t i = 0; i < MATRIX; i++) t->m[0][i] *= divisor(t, i);
}

static void take_mean(twin *t, int step, size_t tensor, double given[RANKS][MOST])
{
    for (size_t i = 0; i < count_of(tensor); i++) {
        double g = 0;
        for (int r = 0; r < RANKS; r++) g += is_absent(step, r, tensor) ? 0 : given[r][i] / RANKS;
        t->m[tensor][i] = BETA1 * t->m[tensor][i] + (t->rule.adapts ? 1 - BETA1 : 1) * g;
        t->v[tensor][i] = BETA2 * t->v[tensor][i] + (1 - BETA2) * g * g;
    }
}

static void twin_step(twin *t, int step, size_t tensor, double given[RANKS][MOST], double *direction)
{
    int frozen = tensor == 0 && !is_whole(&t->rule, step), nobodys = is_nobodys(step, tensor);
    t->age = age(&t->rule, step);
    if (!nobodys && frozen) share_momentum(t, step, given);
    if (!nobodys && !frozen) take_mean(t, step, tensor, given);
    for (size_t i = 0; i < count_of(tensor); i++) {
        double first = t->m[tensor][i], second = t->v[tensor][i] / (1 - pow(BETA2, tensor == 0 ? t->age : step));
        if (t->rule.adapts) first /= (1 - pow(BETA1, step)) * (sqrt(second) + EPSILON);
        direction[i] = nobodys ? 0 : first;
    }
}

/* A step that is not taken leaves the gradients of those ranks that had one, if it is compressed. */
static void twin_keep(twin *t, int step, int sick, double given[RANKS][MOST])
{
    if (is_whole(&t->rule, step)) return;
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; r != sick && !is_absent(step, r, 0) && i < MATRIX; i++)
            t->worker[r][i] += fresh(t, i, given[r][i]);
}

/* Draws and hands to both; where a tensor is absent NaN stands, which nobody may mind. */
static void give(const twin *t, int step, gradients *g, loopback *group, double given[TENSORS][RANKS][MOST])
{
    static unsigned char absent[RANKS][TENSORS];
    gradients_draw(g, 2, step, 0);
    for (int r = 0; r < RANKS; r++) {
        group->absent[r] = absent[r];
        for (size_t k = 0; k < TENSORS; k++) {
            absent[r][k] = is_absent(step, r, k);
            for (size_t i = 0; i < count_of(k); i++) {
                if (is_late(&t->rule, step, k, i)) g->rank[r][k][i] = 0;
                given[k][r][i] = (double)g->rank[r][k][i];
                if (absent[r][k]) g->rank[r][k][i] = NAN;
            }
        }
    }
}

/* Through the beginning, the freeze, a restart, a step that is skipped and two that are taken back, of which nobody has
 * the bias in the second. */
static void check_rule(rule tried)
{
    enum { RESTART = 20, BACK = 30, BAD = 36, BACK_TOO = 44, SICK = 1 };
    static twin t;
    static double given[TENSORS][RANKS][MOST], direction[MOST];
    loopback group;
    gradients g;
    memset(&t, 0, sizeof t);
    t.rule = tried;
    group_create(&group, &g, tried.spec, table, TENSORS, RANKS);
    for (int step = 1; step <= STEPS; step++) {
        if (step == RESTART) assert_ok(loopback_restart(&group, tried.spec, table, TENSORS));
        give(&t, step, &g, &group, given);
        if (step == BAD) g.rank[SICK][0][5] = NAN;
        assert_int_equal(group_step(&group, &g), step == BAD);
        int is_back = step == BACK || step == BACK_TOO;
        for (int r = 0; is_back && r < RANKS; r++) assert_ok(tw_scheme_revert(group.scheme[r]));
        if (is_back || step == BAD) {
            twin_keep(&t, step, step == BAD ? SICK : RANKS, given[0]);
            continue;
        }
        for (size_t k = 0; k < TENSORS; k++) {
            twin_step(&t, step, k, given[k], direction);
            for (size_t i = 0; i < count_of(k); i++)
                assert_near(g.rank[0][k][i], direction[i], 1e-4 * fmax(1, fabs(direction[i])));
        }
    }
    group_destroy(&group, &g);
}

#define REST "leftovers=fp32,min_dims=2,momentum=0.75"
#define EXACT "onebit-adam:beta2=0.9375,epsilon=9.5367431640625e-7," REST
#define SPEC EXACT ",warmup_steps=8"

TEST(equals_the_published_rule)
{
    check_rule((rule){SPEC ",divide=after", .adapts = 1, .warmup = WARMUP});
    check_rule((rule){SPEC ",divide=after,exchange=gather", .adapts = 1, .warmup = WARMUP, .gathers = 1});
}

TEST(divides_before_it_takes_signs)
{
    check_rule((rule){SPEC, .adapts = 1, .warmup = WARMUP, .before = 1});
    check_rule((rule){SPEC ",exchange=gather", .adapts = 1, .warmup = WARMUP, .before = 1, .gathers = 1});
}

/* Step 30, which is taken back, is a refresh with 2 after the beginning, and step 36, which is skipped, with 4. */
TEST(squares_are_refreshed_at_growing_intervals)
{
    rule after_warmup = {SPEC ",refresh=2", .adapts = 1, .warmup = WARMUP, .kappa = 2, .before = 1};
    rule from_the_first = {EXACT ",warmup_steps=0,refresh=4", .adapts = 1, .kappa = 4, .before = 1};
    rule published = {.adapts = 1, .kappa = 16};
    assert_true(age(&published, 600) == 83 && age(&published, 10000) == 147);
    assert_true(is_refresh(&after_warmup, 30) && is_refresh(&from_the_first, 36));
    check_rule(after_warmup);
    check_rule(from_the_first);
    from_the_first.spec = EXACT ",warmup_steps=0,refresh=4,divide=after,exchange=gather";
    from_the_first.gathers = 1;
    from_the_first.before = 0;
    check_rule(from_the_first);
}

/* Step 36 is skipped. In step 37, a refresh, a fifth of the elements has its first gradient. */
TEST(what_wakes_after_a_skipped_step_has_nothing_held_back)
{
    rule waking = {EXACT ",warmup_steps=6,refresh=1", .adapts = 1, .warmup = 6, .kappa = 1, .before = 1, .late = 36};
    assert_true(!is_refresh(&waking, 36) && is_refresh(&waking, 37));
    check_rule(waking);
}

TEST(is_momentum_without_squares)
{
    check_rule((rule){"onebit-adam:beta2=0," REST});
    check_rule((rule){"onebit-adam:beta2=0,exchange=gather," REST, .gathers = 1});
}

/* ---- what stands still ------------------------------------------------------------------------------------------- */

static void step_of(loopback *group, gradients *g, int step)
{
    int skipped;
    gradients_draw(g, 9, step, 0);
    assert_ok(loopback_step(group, g->rank, -1, NULL, &skipped));
    assert_false(skipped);
}

/* The direction of the only one of equal gradients that had one in the beginning. */
static float direction_of_one(size_t one)
{
    loopback group;
    gradients g;
    group_create(&group, &g, "onebit-adam:warmup_steps=1", table, 1, RANKS);
    for (int r = 0; r < RANKS; r++) g.rank[r][0][one] = 1;
    assert_false(group_step(&group, &g));
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < MATRIX; i++) g.rank[r][0][i] = 2;
    assert_false(group_step(&group, &g));
    for (size_t i = 0; i < MATRIX; i++) assert_int_equal(g.rank[0][0][i] != 0, i == one);
    float direction = g.rank[0][0][one];
    group_destroy(&group, &g);
    return direction;
}

/* Signs say something of every element. One that had no gradient in the beginning has no squares, and does not move. */
TEST(what_has_no_squares_stays)
{
    assert_true(direction_of_one(3) == direction_of_one(MATRIX - 1));
}

/* What squares are divided by is found once and stands, but not beside the squares of another state. */
TEST(other_squares_may_be_loaded)
{
    loopback group, other;
    gradients g, g_other;
    group_create(&group, &g, "onebit-adam:warmup_steps=2", table, TENSORS, RANKS);
    group_create(&other, &g_other, "onebit-adam:warmup_steps=2", table, TENSORS, RANKS);
    for (int step = 1; step <= 4; step++) {
        step_of(&group, &g, step);
        step_of(&other, &g_other, step + 10);
    }
    assert_ok(loopback_move(&other, &group));
    step_of(&group, &g, 20);
    step_of(&other, &g_other, 20);
    for (size_t k = 0; k < TENSORS; k++)
        assert_memory_equal(g.rank[0][k], g_other.rank[0][k], count_of(k) * sizeof(float));
    group_destroy(&other, &g_other);
    group_destroy(&group, &g);
}

/* Where packets to all would outweigh an all-reduce, in which nobody can see who has said nothing: here half of the
 * ranks in turn have no gradient, and the mean is 1 in every step. */
TEST(the_share_of_absent_ranks_comes_however_small_the_tensor)
{
    enum { MANY = 16, SMALL = 8 };
    static const tw_tensor small[] = {{"w", 1, {SMALL}}};
    static const unsigned char absent[1] = {1};
    loopback group;
    gradients g;
    group_create(&group, &g, "onebit-adam:warmup_steps=2,exchange=gather,min_elements=1,min_dims=1", small, 1, MANY);
    for (int step = 0; step < 20; step++) {
        for (int r = 0; r < MANY; r++) {
            group.absent[r] = (step + r) % 2 ? absent : NULL;
            for (size_t i = 0; i < SMALL; i++) g.rank[r][0][i] = 2;
        }
        assert_false(group_step(&group, &g));
        for (size_t i = 0; i < SMALL; i++) assert_near(g.rank[0][0][i], 1, 1e-5);
    }
    group_destroy(&group, &g);
}

TEST(momentum_has_nothing_to_refresh)
{
    loopback group;
    assert_int_equal(loopback_create(&group, "onebit-adam:beta2=0,refresh=4", table, 1, 2), TW_ERROR_SPEC);
    assert_string_equal(tw_last_error(), "refresh=4 with beta2=0, which has no squares to renew; leave it out");
}

/* A state may say any, and intervals double until they reach it. */
TEST(a_count_of_steps_that_no_run_has_ends_nothing)
{
    loopback group;
    gradients g;
    tw_state *forged;
    uint64_t steps = UINT64_MAX;
    group_create(&group, &g, "onebit-adam:warmup_steps=0,refresh=1", table, 1, 1);
    assert_ok(tw_state_create(&forged));
    assert_ok(tw_scheme_save_state(group.scheme[0], "s.", forged));
    assert_ok(tw_state_put(forged, "s.scheme/steps", TW_U64, 1, (size_t[]){1}, &steps));
    assert_ok(tw_scheme_load_state(group.scheme[0], "s.", forged));
    step_of(&group, &g, 1);
    tw_state_destroy(forged);
    group_destroy(&group, &g);
}

/* They are no part of the beginning, of which a ratio leaves the bytes out. */
TEST(refreshes_count)
{
    loopback group;
    gradients g;
    group_create(&group, &g, "onebit-adam:warmup_steps=1,refresh=1", table, 1, RANKS);
    for (int step = 1; step <= 4; step++) { /* the second and the fourth are refreshes */
        tw_cost cost = {.struct_size = sizeof cost};
        step_of(&group, &g, step);
        assert_ok(tw_scheme_cost(group.scheme[0], &cost));
        assert_int_equal(cost.warmup, step == 1);
        assert_int_equal(cost.packet_bytes == 4 * MATRIX, step != 3);
    }
    group_destroy(&group, &g);
}

/* Thirty-two times fewer than fp32 once the beginning is over, both ways. */
TEST(one_bit_an_element)
{
    static const tw_tensor large[] = {{"w", 2, {512, 512}}};
    loopback group;
    gradients g;
    group_create(&group, &g, "onebit-adam:warmup_steps=1", large, 1, 2);
    for (int step = 0; step < 3; step++) step_of(&group, &g, step);
    double ratio = 4.0 * 512 * 512 / 2 / (double)group.packet_bytes; /* the last is of one of two pieces */
    print_message("%zu bytes, %.1f times less than fp32\n", group.packet_bytes, ratio);
    assert_true(ratio > 31 && ratio < 32);
    group_destroy(&group, &g);
}

RUN_TESTS(NULL, NULL)
