/* onebit-adam: the published rule once more, and the Adam that it begins with and leaves alone. */
#include <math.h>
#include <string.h>

#include "gradients.h"
#include "support/assert.h"

enum { RANKS = 3, TENSORS = 2, MATRIX = 40 * 30, MOST = MATRIX, STEPS = 50, WARMUP = 8 };
/* So small that one rank has the sums of all of it. */
static const tw_tensor table[TENSORS] = {{"a.weight", 2, {40, 30}}, {"a.bias", 1, {70}}};

static const double BETA1 = 0.75, BETA2 = 0.9375, EPSILON = 0x1p-20;
#define BETAS "momentum=0.75,beta2=0.9375,epsilon=9.5367431640625e-7,"

static size_t count_of(size_t tensor)
{
    return tw_tensor_count(&table[tensor]);
}

/* ---- the rule, in double, with what both sides lost ---- */

typedef struct twin {
    double m[TENSORS][MOST], v[TENSORS][MOST];
    double worker[RANKS][MOST], server[MOST]; /* of the matrix, which alone is compressed */
} twin;

/* What signs and a root mean square say of x, which keeps the rest. */
static void compress(double *x, size_t n, double *said)
{
    double squares = 0;
    for (size_t i = 0; i < n; i++) squares += x[i] * x[i];
    double scale = sqrt(squares / (double)n);
    for (size_t i = 0; i < n; i++) {
        said[i] = x[i] < 0 ? -scale : scale;
        x[i] -= said[i];
    }
}

/* What m is divided by before its signs are taken. */
static double divisor(const twin *t, int before, size_t i)
{
    return before ? sqrt(t->v[0][i] / (1 - pow(BETA2, WARMUP))) + EPSILON : 1;
}

/* Adam itself goes no further for a gradient of a new size. */
static double fresh(const twin *t, int before, size_t i, double gradient)
{
    double most = 1 / sqrt(1 - BETA2), ahead = gradient / divisor(t, before, i);
    return (1 - BETA1) * (before ? fmax(fmin(ahead, most), -most) : ahead);
}

static void share_momentum(twin *t, int before, double given[RANKS][MOST])
{
    double said[MOST];
    for (int r = 0; r < RANKS; r++) {
        for (size_t i = 0; i < MATRIX; i++)
            t->worker[r][i] += BETA1 * t->m[0][i] / divisor(t, before, i) + fresh(t, before, i, given[r][i]);
        compress(t->worker[r], MATRIX, said);
        for (size_t i = 0; i < MATRIX; i++) t->server[i] += said[i] / RANKS;
    }
    compress(t->server, MATRIX, t->m[0]);
    for (size_t i = 0; i < MATRIX; i++) t->m[0][i] *= divisor(t, before, i);
}

static void twin_step(twin *t, int before, int step, size_t tensor, double given[RANKS][MOST], double *direction)
{
    double *m = t->m[tensor], *v = t->v[tensor];
    int is_frozen = tensor == 0 && step > WARMUP;
    if (is_frozen) share_momentum(t, before, given);
    for (size_t i = 0; i < count_of(tensor); i++) {
        double g = 0;
        for (int r = 0; r < RANKS; r++) g += given[r][i] / RANKS;
        if (!is_frozen) m[i] = BETA1 * m[i] + (1 - BETA1) * g;
        if (!is_frozen) v[i] = BETA2 * v[i] + (1 - BETA2) * g * g;
        double first = m[i] / (1 - pow(BETA1, step));
        double second = v[i] / (1 - pow(BETA2, is_frozen ? WARMUP : step));
        direction[i] = first / (sqrt(second) + EPSILON);
    }
}

/* A step that is not taken leaves the gradients of those ranks that had one. */
static void twin_keep(twin *t, int before, int sick, double given[RANKS][MOST])
{
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; r != sick && i < MATRIX; i++) t->worker[r][i] += fresh(t, before, i, given[r][i]);
}

static void read_given(const gradients *g, size_t tensor, double given[RANKS][MOST])
{
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < count_of(tensor); i++) given[r][i] = (double)g->rank[r][tensor][i];
}

/* Through the beginning, the freeze, a restart, a step that is skipped and one that is taken back. */
static void check_rule(const char *spec, int before)
{
    enum { RESTART = 20, BACK = 30, BAD = 35, SICK = 1 };
    static twin t;
    static double given[TENSORS][RANKS][MOST], direction[MOST];
    loopback group;
    gradients g;
    int skipped;
    memset(&t, 0, sizeof t);
    gradients_create(&g, table, TENSORS, RANKS);
    assert_ok(loopback_create(&group, spec, table, TENSORS, RANKS));
    for (int step = 1; step <= STEPS; step++) {
        gradients_draw(&g, 2, step, 0);
        for (size_t k = 0; k < TENSORS; k++) read_given(&g, k, given[k]);
        if (step == BAD) g.rank[SICK][0][5] = NAN;
        if (step == RESTART) assert_ok(loopback_restart(&group, spec, table, TENSORS));
        assert_ok(loopback_step(&group, g.rank, -1, NULL, &skipped));
        assert_int_equal(skipped, step == BAD);
        for (int r = 0; step == BACK && r < RANKS; r++) assert_ok(tw_scheme_revert(group.scheme[r]));
        if (step == BACK || step == BAD) {
            twin_keep(&t, before, step == BAD ? SICK : RANKS, given[0]);
            continue;
        }
        assert_true(gradients_agree(&g));
        for (size_t k = 0; k < TENSORS; k++) {
            twin_step(&t, before, step, k, given[k], direction);
            for (size_t i = 0; i < count_of(k); i++)
                assert_near(g.rank[0][k][i], direction[i], 1e-4 * fmax(1, fabs(direction[i])));
        }
    }
    loopback_destroy(&group);
    gradients_destroy(&g);
}

#define SPEC "onebit-adam:warmup_steps=8,leftovers=fp32," BETAS "min_dims=2"

static void equals_the_published_rule(void **state)
{
    (void)state;
    check_rule(SPEC ",divide=after", 0);
}

static void divides_before_it_takes_signs(void **state)
{
    (void)state;
    check_rule(SPEC, 1);
}

/* ---- what stands still ------------------------------------------------------------------------------------------- */

static void step_of(loopback *group, gradients *g, int step)
{
    int skipped;
    gradients_draw(g, 9, step, 0);
    assert_ok(loopback_step(group, g->rank, -1, NULL, &skipped));
    assert_false(skipped);
}

/* Signs say something of every element. One that had no gradient in the beginning has no squares, and does not move. */
static void what_has_no_squares_stays(void **state)
{
    (void)state;
    loopback group;
    gradients g;
    gradients_create(&g, table, 1, RANKS);
    assert_ok(loopback_create(&group, "onebit-adam:warmup_steps=1", table, 1, RANKS));
    for (int r = 0; r < RANKS; r++) g.rank[r][0][3] = 1;
    int skipped;
    assert_ok(loopback_step(&group, g.rank, -1, NULL, &skipped));
    step_of(&group, &g, 1);
    for (size_t i = 0; i < MATRIX; i++) assert_int_equal(g.rank[0][0][i] != 0, i == 3);
    loopback_destroy(&group);
    gradients_destroy(&g);
}

/* A tensor that no rank uses stays where it is, and so do its moments and what its signs lost. */
static void an_absent_tensor_stays(void **state)
{
    (void)state;
    static const char *const kinds[] = {"momentum", "second_moment", "residual"};
    static const unsigned char absent[1] = {1};
    static float before[3][MATRIX], after[3][MATRIX];
    loopback group;
    gradients g;
    gradients_create(&g, table, 1, RANKS);
    assert_ok(loopback_create(&group, "onebit-adam:warmup_steps=2", table, 1, RANKS));
    for (int step = 0; step < 4; step++) step_of(&group, &g, step);
    assert_ok(loopback_restart(&group, "onebit-adam:warmup_steps=2", table, 1)); /* what is left open is closed */
    for (int k = 0; k < 3; k++) assert_true(remembered(group.scheme[0], kinds[k], "a.weight", before[k]));
    for (int r = 0; r < RANKS; r++) group.absent[r] = absent;
    step_of(&group, &g, 4);
    for (size_t i = 0; i < MATRIX; i++) assert_true(g.rank[0][0][i] == 0);
    for (int k = 0; k < 3; k++) {
        assert_true(remembered(group.scheme[0], kinds[k], "a.weight", after[k]));
        assert_memory_equal(before[k], after[k], sizeof before[k]);
    }
    loopback_destroy(&group);
    gradients_destroy(&g);
}

/* Thirty-two times fewer than fp32 once the beginning is over, both ways. */
static void one_bit_an_element(void **state)
{
    (void)state;
    static const tw_tensor large[] = {{"w", 2, {512, 512}}};
    loopback group;
    gradients g;
    gradients_create(&g, large, 1, 2);
    assert_ok(loopback_create(&group, "onebit-adam:warmup_steps=1", large, 1, 2));
    for (int step = 0; step < 3; step++) step_of(&group, &g, step);
    double ratio = 4.0 * 512 * 512 / 2 / (double)group.packet_bytes; /* the last is of one of two pieces */
    print_message("%zu bytes, %.1f times less than fp32\n", group.packet_bytes, ratio);
    assert_true(ratio > 31 && ratio < 32);
    loopback_destroy(&group);
    gradients_destroy(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_published_rule), cmocka_unit_test(divides_before_it_takes_signs),
        cmocka_unit_test(what_has_no_squares_stays), cmocka_unit_test(an_absent_tensor_stays),
        cmocka_unit_test(one_bit_an_element),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
