/* SDAGC against a second implementation that sorts, and on the tails of known distributions. */
#include <math.h>
#include <stdlib.h>

#include "corrected_twin.h"
#include "deviation.h"
#include "support/cmocka.h"

enum { MOST_TIMES = 4, LEAST = 16 };

/* ---- a second implementation ------------------------------------------------------------------------------------- */

typedef struct variant {
    rules rules;
    int of_gradient, magnitude, guard, masking;
} variant;

/* By bisection. */
static double exact_quantile(double density)
{
    double low = 0, high = 10;
    for (int i = 0; i < 100; i++) {
        double middle = (low + high) / 2;
        if (erfc(middle / sqrt(2)) > density)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* At 2^-power, four decimals. */
static double quantile_at(int power)
{
    return rint(exact_quantile(ldexp(1, -power)) * 1e4) / 1e4;
}

static double quantile(double density)
{
    int power = (int)ceil(-log2(density));
    double at = quantile_at(power), before = quantile_at(power - 1);
    return at + (before - at) * (density / ldexp(1, -power) - 1);
}

/* As near to the truth as its header says, and exact to four decimals at powers of two. */
TEST(quantiles_are_near)
{
    for (double density = 1e-7; density < 1; density *= 1.01) {
        double off = fabs(exact_quantile(density) / tw_gaussian_quantile(density) - 1);
        assert_true(off < (density <= 0x1p-9 ? 0.005 : density <= 0.5 ? 0.03 : 0.08));
    }
    for (int power = 1; power <= 24; power++)
        assert_true(fabs(exact_quantile(ldexp(1, -power)) - tw_gaussian_quantile(ldexp(1, -power))) < 5.1e-5);
}

static double fold(double partial[16])
{
    for (int half = 8; half; half /= 2)
        for (int k = 0; k < half; k++) partial[k] += partial[k + half];
    return partial[0];
}

static void moments(const float *x, size_t n, double *mean, double *deviation)
{
    double sum[16] = {0}, squares[16] = {0};
    for (size_t i = 0; i < n; i++) {
        sum[i % 16] += (double)x[i];
        squares[i % 16] += (double)x[i] * (double)x[i];
    }
    *mean = fold(sum) / (double)n;
    *deviation = sqrt(fold(squares) / (double)n - *mean * *mean);
}

static double clamped(double x, double least, double most)
{
    return x < least ? least : x > most ? most : x;
}

static size_t wanted_of(size_t n, double density)
{
    size_t wanted = (size_t)ceil((double)n * density);
    return wanted < LEAST ? LEAST : wanted > n ? n : wanted;
}

/* What stands out. Draws have no ties. */
static void send_tail(twin *t, const rules *common, int rank, size_t tensor, float scale, int step, const float *g,
                      float *sum)
{
    const variant *how = (const variant *)common;
    float *u = t->u.rank[rank][tensor], *v = t->v.rank[rank][tensor];
    size_t n = count_of(tensor), passed = 0;
    double density = common->density(step), mean, deviation, *correction = &t->correction[rank][tensor];
    moments(how->of_gradient ? g : v, n, &mean, &deviation);
    if (how->of_gradient) {
        mean *= (double)scale;
        deviation *= (double)scale;
    }
    float *sorted = sorted_magnitudes(v, n);
    size_t wanted = wanted_of(n, density), most = wanted_of(n, clamped(MOST_TIMES * density, 0, 1));
    double tau = quantile(density) * *correction * deviation;
    double edge = how->magnitude ? tau + fabs(mean) : tau - fabs(mean), last = (double)sorted[wanted - 1];
    char *is_sent = calloc(n, 1);
    for (size_t i = 0; i < n; i++) {
        double x = how->magnitude ? fabs((double)v[i]) : fabs((double)v[i] - mean);
        is_sent[i] = fabsf(v[i]) >= sorted[most - 1] && x > (how->magnitude ? edge : tau);
        passed += (size_t)is_sent[i];
    }
    for (size_t i = 0; i < n; i++) {
        if (passed < LEAST) is_sent[i] = fabsf(v[i]) >= sorted[LEAST - 1];
        if (!is_sent[i]) continue;
        sum[i] += v[i];
        v[i] = 0;
        if (how->masking && 100 * wanted < n) u[i] = 0; /* a momentum of 0.9 lasts ten steps */
    }
    double p = (double)passed, w = (double)wanted;
    double error = 4 * p > w && p < 4 * w ? sqrt(density) * (p - w) / (p + w) : clamped(last / edge, 0.9, 1 / 0.9) - 1;
    if (how->guard) *correction *= 1 + 0.5 * error;
    free(sorted);
    free(is_sent);
}

TEST(equals_reference)
{
#define SPEC "sdagc:density=0.008,warmup_steps=12," LOOPBACK_EXACT
    static const variant variants[] = {
        {{SPEC, falling_ladder, 0, 0, send_tail}, .guard = 1},
        {{SPEC ",clip=25,nesterov=on", falling_ladder, 25, 1, send_tail}, .guard = 1},
        {{SPEC ",criterion=magnitude,masking=on", falling_ladder, 0, 0, send_tail},
         .magnitude = 1,
         .masking = 1,
         .guard = 1},
        {{SPEC ",statistics=gradient", falling_ladder, 0, 0, send_tail}, .of_gradient = 1, .guard = 1},
        {{SPEC ",guard=off", falling_ladder, 0, 0, send_tail}, .guard = 0},
    };
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) check_twin(&variants[i].rules);
}

/* ---- the threshold ----------------------------------------------------------------------------------------------- */

enum { MANY = 1000000 };

static void draw_tail(float *x, size_t n, int laplace)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t words[4];
        tw_random(3, 0, i, words);
        double a = (words[0] + 0.5) / 4294967296.0, b = words[1] / 4294967296.0;
        double gaussian = sqrt(-2 * log(a)) * cos(6.283185307179586 * b);
        x[i] = (float)(laplace ? copysign(log(a), b - 0.5) : gaussian);
    }
}

/* What passes 3 standard deviations of a fresh draw. */
static double density_of(const char *spec, int laplace)
{
    static const tw_tensor tensor = {"w", 2, {1000, MANY / 1000}};
    loopback group;
    gradients g;
    group_create(&group, &g, spec, &tensor, 1, 1);
    draw_tail(g.rank[0][0], MANY, laplace);
    assert_false(group_step(&group, &g));
    tw_cost cost = cost_of(group.scheme[0]);
    group_destroy(&group, &g);
    return (double)cost.elements_sent / MANY;
}

TEST(keeps_the_tails)
{
    const char *three = "sdagc:density=0.01,lambda=3,guard=off,warmup_steps=0,values=fp32";
    assert_true(fabs(density_of(three, 0) - 2.70e-3) < 2e-4);
    assert_true(fabs(density_of(three, 1) - 1.437e-2) < 5e-4);
    /* The quantile of the density itself; and never more than four times it. */
    assert_true(fabs(density_of("sdagc:density=0.0078125,warmup_steps=0,values=fp32", 0) - 0.0078125) < 4e-4);
    assert_true(density_of("sdagc:density=0.001,lambda=3,warmup_steps=0,values=fp32", 1) == 4e-3);
}

/* A step unlike the one before, whose moments foretell the threshold: it may be far lower, and then all that passes is
 * found; or far higher, and then lambda gives way by as much as it may in a step. */
TEST(wrong_forecasts_cost_nothing)
{
    loopback group;
    gradients g;
    double before, after;
    group_create(&group, &g, "sdagc:density=0.01,momentum=0,statistics=gradient,warmup_steps=0,min_dims=2", table,
                 TENSORS, 1);
    gradients_draw(&g, 9, 0, 0);
    assert_false(group_step(&group, &g));
    gradients_draw(&g, 9, 1, 0);
    for (size_t i = 0; i < count_of(0); i++) g.rank[0][0][i] *= 1e-3F;
    for (size_t i = 0; i < count_of(2); i++) g.rank[0][2][i] *= 1e-3F;
    assert_false(group_step(&group, &g));
    tw_cost cost = cost_of(group.scheme[0]);
    assert_int_equal(cost.elements_sent, MOST_TIMES * (30 + 90));
    assert_true(remembered(group.scheme[0], "correction", "a.weight", &before));
    gradients_draw(&g, 9, 2, 0);
    g.rank[0][0][5] = 1e6F;
    assert_false(group_step(&group, &g));
    assert_true(remembered(group.scheme[0], "correction", "a.weight", &after));
    assert_true(fabs(after / before - 0.95) < 1e-12);
    group_destroy(&group, &g);
}

/* On noise, residuals and all, the guard keeps the density. */
TEST(guard_keeps_the_density)
{
    enum { N = 20000, LONG = 500 };
    static const char *const specs[] = {"sdagc:density=0.005,warmup_steps=0,momentum=0",
                                        "sdagc:density=0.005,warmup_steps=100",
                                        "sdagc:density=0.005,warmup_steps=0,masking=on,criterion=magnitude"};
    static const tw_tensor tensor = {"w", 2, {100, N / 100}};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        loopback group;
        gradients g;
        double sent = 0;
        group_create(&group, &g, specs[s], &tensor, 1, 1);
        for (int step = 0; step < LONG; step++) {
            gradients_draw(&g, 7, step, 0);
            assert_false(group_step(&group, &g));
            tw_cost cost = cost_of(group.scheme[0]);
            if (step >= LONG / 2) sent += (double)cost.elements_sent / N / (LONG / 2);
        }
        assert_true(fabs(sent / 0.005 - 1) < 0.1);
        group_destroy(&group, &g);
    }
}

/* A step that is taken back has not steered either, nor has one that a tensor had no part in. */
TEST(a_step_that_is_taken_back_has_not_steered)
{
    static const unsigned char without_b[TENSORS] = {0, 0, 1};
    static const char *const names[] = {"a.weight", "b.weight"};
    loopback group;
    gradients g;
    double before, after;
    group_create(&group, &g, "sdagc:density=0.01,warmup_steps=0", table, TENSORS, 1);
    for (int step = 0; step < 6; step++) {
        double had[2];
        for (int i = 0; i < 2; i++)
            if (!remembered(group.scheme[0], "correction", names[i], &had[i])) had[i] = 1;
        group.absent[0] = step % 3 == 1 ? without_b : NULL;
        gradients_draw(&g, 5, step, 0);
        assert_false(group_step(&group, &g));
        assert_true(remembered(group.scheme[0], "correction", names[0], &after) && after != had[0]);
        if (step % 3 == 0) continue;
        assert_int_equal(tw_scheme_revert(group.scheme[0]), TW_OK);
        for (int i = 0; i < 2; i++)
            assert_true(remembered(group.scheme[0], "correction", names[i], &before) && before == had[i]);
    }
    group_destroy(&group, &g);
}

/* ---- readings of the revision that drop something ---------------------------------------------------------------- */

/* Nothing passes, so that each step sends the largest alone, of a gradient 1, 2, ..., 200 that never changes. */
static void check_largest(const char *spec, const float *expected, int steps)
{
    enum { N = 200 };
    static const tw_tensor tensor = {"w", 2, {1, N}};
    loopback group;
    gradients g;
    float left[N];
    group_create(&group, &g, spec, &tensor, 1, 1);
    for (int step = 0; step < steps; step++) {
        for (size_t i = 0; i < N; i++) g.rank[0][0][i] = (float)(i + 1);
        assert_false(group_step(&group, &g));
        size_t sent = N - 1 - (size_t)step;
        for (size_t i = 0; i < N; i++) assert_true(g.rank[0][0][i] == (i == sent ? expected[step] : 0));
        assert_true(remembered(group.scheme[0], "residual", "w", left));
        assert_true(left[sent] == 0); /* the rest is dropped */
    }
    float before = left[N - (size_t)steps];
    assert_int_equal(tw_scheme_revert(group.scheme[0]), TW_OK);
    assert_true(remembered(group.scheme[0], "residual", "w", left));
    assert_true(before == 0 && left[N - (size_t)steps] == (float)steps * (float)(N + 1 - steps)); /* all of it */
    group_destroy(&group, &g);
}

TEST(revisions_damp_and_drop)
{
    /* Silent for one, two, three, four steps: divided by as many. */
    static const float by_age[] = {200, 199, 198, 197};
    check_largest("sdagc:lambda=1e6,guard=off,momentum=0,min_sent=1,warmup_steps=0,values=fp32,revision=age,damping=1",
                  by_age, 4);
    /* Nobody passes where one should: a quarter. */
    static const float by_density[] = {50, 99.5F, 148.5F};
    check_largest("sdagc:lambda=1e6,guard=off,momentum=0,min_sent=1,warmup_steps=0,values=fp32,revision=density",
                  by_density, 3);
}

TEST(rates_are_checked)
{
    tw_scheme *scheme;
    assert_int_equal(tw_scheme_create("sdagc", table, TENSORS, 0, 1, &scheme), TW_OK);
    assert_int_equal(tw_scheme_set_rate(scheme, 0), TW_OK);
    assert_int_equal(tw_scheme_set_rate(scheme, -1), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_scheme_set_rate(scheme, NAN), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_scheme_set_rate(scheme, INFINITY), TW_ERROR_ARGUMENT);
    tw_scheme_destroy(scheme);
}

/* ---- state ------------------------------------------------------------------------------------------------------- */

RUN_TESTS(NULL, NULL)
