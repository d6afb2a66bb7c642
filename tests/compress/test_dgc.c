/* Deep Gradient Compression against its identities, and against a second implementation that sorts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "corrected_twin.h"
#include "support/cmocka.h"

enum { STEPS = 24 };

/* ---- identities ---- */

/* Density 1: the direction is (Nesterov) momentum SGD's, bit for bit, with one worker. Nothing waits, so nothing is
 * stale and there is nothing to mask. */
static void check_is_momentum(const char *spec, int nesterov)
{
    loopback group;
    gradients g;
    float *velocity[TENSORS];
    for (size_t t = 0; t < TENSORS; t++) velocity[t] = calloc(count_of(t), sizeof(float));
    group_create(&group, &g, spec, table, TENSORS, 1);
    for (int step = 0; step < STEPS; step++) {
        gradients_draw(&g, 1, step, 0);
        assert_false(group_step(&group, &g));
        for (size_t t = 0; t < TENSORS; t++)
            for (size_t i = 0; i < count_of(t); i++) {
                float gradient = gradient_draw(1, step, 0, t, i);
                velocity[t][i] = 0.9f * velocity[t][i] + gradient;
                float expected = nesterov ? 0.9f * velocity[t][i] + gradient : velocity[t][i];
                assert_true(g.rank[0][t][i] == expected);
            }
    }
    group_destroy(&group, &g);
    for (size_t t = 0; t < TENSORS; t++) free(velocity[t]);
}

TEST(test_density_one_is_momentum_sgd)
{
    check_is_momentum("dgc:density=1,masking=off," LOOPBACK_EXACT, 0);
    check_is_momentum("dgc:density=1,masking=off,nesterov=on," LOOPBACK_EXACT, 1);
    check_is_momentum("dgc:density=1," LOOPBACK_EXACT, 0);
    check_is_momentum("dgc:density=1,nesterov=on," LOOPBACK_EXACT, 1);
}

/* min_sent: a small tensor sends more than its density says, and never more than it has. */
TEST(test_small_tensors_send_a_few)
{
    static const struct {
        const char *spec;
        size_t sent;
    } cases[] = {{"dgc:density=0.001,warmup_steps=0,min_sent=1", 3},
                 {"dgc:density=0.001,warmup_steps=0", 16},
                 {"dgc:density=0.001,warmup_steps=0,min_sent=40", 40},
                 {"topk:density=0.001,min_sent=1000000,values=fp32", 3000}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        loopback group;
        gradients g;
        size_t nonzero = 0;
        group_create(&group, &g, cases[c].spec, table, TENSORS, 1);
        gradients_draw(&g, 8, 0, 0);
        assert_false(group_step(&group, &g));
        for (size_t i = 0; i < count_of(0); i++) nonzero += g.rank[0][0][i] != 0;
        assert_int_equal(nonzero, cases[c].sent);
        group_destroy(&group, &g);
    }
}

/* ---- a second implementation ---- */

/* The largest. Draws have no ties, so "at least the k-th" is exactly k. Where a hundredth is sent or more, a momentum
 * of 0.9 is not masked. */
static void send_largest(twin *t, const rules *how, int rank, size_t tensor, float scale, int step, const float *g,
                         float *sum)
{
    float *u = t->u.rank[rank][tensor], *v = t->v.rank[rank][tensor];
    size_t n = count_of(tensor), k = (size_t)ceil((double)n * how->density(step));
    float *sorted = sorted_magnitudes(v, n);
    (void)scale, (void)g;
    for (size_t i = 0; i < n; i++)
        if (fabsf(v[i]) >= sorted[k - 1]) {
            sum[i] += v[i];
            v[i] = 0;
            if (100 * k < n) u[i] = 0;
        }
    free(sorted);
}

static double constant_ladder(int step)
{
    (void)step;
    return 0.008;
}

static double dense_ladder(int step)
{
    return step < 12 ? 0.9 / pow(4, step / 3) : 0.008;
}

TEST(test_equals_reference)
{
#define SPEC "dgc:density=0.008," LOOPBACK_EXACT
    static const rules variants[] = {{SPEC ",warmup_steps=0", constant_ladder, 0, 0, send_largest},
                                     {SPEC ",warmup_steps=0,nesterov=on", constant_ladder, 0, 1, send_largest},
                                     {SPEC ",warmup_steps=0,clip=25", constant_ladder, 25, 0, send_largest},
                                     {SPEC ",warmup_steps=12", falling_ladder, 0, 0, send_largest},
                                     {SPEC ",warmup_steps=12,warmup_density=0.9", dense_ladder, 0, 0, send_largest}};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) check_twin(&variants[i]);
}

/* What its code would make a zero is not sent: it stays in the residual whole, and its momentum is not masked. */
TEST(test_what_rounds_to_zero_is_not_sent)
{
    enum { T = 0, LARGE = 7, SMALL = 8 };
    static float u[3000], v[3000];
    const float tiny = 0x1p-27F; /* fp16 begins at 2^-24 and rounds up from more than half of that */
    loopback group;
    gradients g;
    tw_cost cost;
    int step = 0;
    group_create(&group, &g, "dgc:density=0.04,momentum=0.5,values=fp16,warmup_steps=0", table, TENSORS, 1);
    do {
        for (size_t t = 0; t < TENSORS; t++) memset(g.rank[0][t], 0, count_of(t) * sizeof(float));
        g.rank[0][T][LARGE] = 1;
        g.rank[0][T][SMALL] = tiny;
        assert_false(group_step(&group, &g));
        assert_true(remembered(group.scheme[0], "residual", table[T].name, v));
        assert_true(remembered(group.scheme[0], "momentum", table[T].name, u));
        cost = cost_of(group.scheme[0]);
        assert_true(g.rank[0][T][LARGE] == 1 && u[LARGE] == 0 && v[LARGE] == 0);
        if (step == 0) assert_true(u[SMALL] == tiny && v[SMALL] == tiny);
        if (step == 1) assert_true(u[SMALL] == 1.5F * tiny && v[SMALL] == 2.5F * tiny);
        if (++step <= 2) assert_true(g.rank[0][T][SMALL] == 0 && cost.elements_sent == 1);
    } while (g.rank[0][T][SMALL] == 0);
    assert_int_equal(step, 3); /* 1 + 1.5 + 1.75 is more than 4 */
    assert_int_equal(cost.elements_sent, 2);
    assert_true(g.rank[0][T][SMALL] == 0x1p-24F && v[SMALL] == 4.25F * tiny - 0x1p-24F && u[SMALL] == 0);
    group_destroy(&group, &g);
}

RUN_TESTS(NULL, NULL)
