/* The books of the schemes that apply momentum before they select, and the learning rate they may answer for. */
#include <string.h>

#include "gradients.h"
#include "kept.h"
#include "support/cmocka.h"

enum { TENSORS = 2 };
static const tw_tensor table[TENSORS] = {{"a.weight", 2, {60, 50}}, {"a.bias", 1, {70}}};

/* rate * (all that was sent) + rate * (what is left) = the sum over time of rate * u: with the rate constant that is
 * DGC's identity; with one that changes, what makes the steps those of dense momentum SGD. Exact on such values. A step
 * in four is taken back. */
static void check_books(const char *spec, int masking, int changing)
{
    enum { T = 0, N = 3000, LONG = 12 };
    static double balance[N], velocity[N];
    static float left[N];
    static const float rates[] = {0.5F, 0.5F, 0.25F, 0.125F, 1};
    loopback group;
    gradients g;
    memset(balance, 0, sizeof balance);
    memset(velocity, 0, sizeof velocity);
    group_create(&group, &g, spec, table, TENSORS, 1);
    for (int step = 0; step < LONG; step++) {
        float rate = changing ? rates[step % 5] : 1;
        assert_int_equal(tw_scheme_set_rate(group.scheme[0], rate), TW_OK);
        gradients_draw(&g, 3, step, 0.25);
        for (size_t i = 0; i < N; i++) {
            velocity[i] = 0.5 * velocity[i] + (double)g.rank[0][T][i];
            balance[i] += (double)rate * velocity[i];
        }
        assert_false(group_step(&group, &g));
        int reverted = step % 4 == 3;
        if (reverted) assert_int_equal(tw_scheme_revert(group.scheme[0]), TW_OK);
        for (size_t i = 0; i < N && !reverted; i++) {
            float sent = g.rank[0][T][i];
            balance[i] -= (double)(rate * sent);
            if (masking && sent != 0) velocity[i] = 0;
        }
        assert_true(remembered(group.scheme[0], "residual", "a.weight", left));
        for (size_t i = 0; i < N; i++) assert_true(balance[i] == (double)(rate * left[i]));
        assert_true(remembered(group.scheme[0], "momentum", "a.weight", left));
        for (size_t i = 0; i < N; i++) assert_true(velocity[i] == (double)left[i]);
    }
    group_destroy(&group, &g);
}

#define EXACT "density=0.02,momentum=0.5,warmup_steps=0,values=fp32"

TEST(nothing_is_lost)
{
    check_books("dgc:" EXACT, 1, 0);
    check_books("dgc:masking=off," EXACT, 0, 0);
    check_books("dgc:masking=off,revision=rate," EXACT, 0, 1);
    check_books("sdagc:masking=on," EXACT, 1, 0);
    check_books("sdagc:" EXACT, 0, 0);
    check_books("sdagc:" EXACT, 0, 1);
}

/* What is masked was never to be sent, at any rate. */
TEST(masking_goes_with_a_rate_that_changes)
{
    check_books("dgc:revision=rate," EXACT, 1, 1);
    check_books("sdagc:masking=on," EXACT, 1, 1);
}

/* A tensor of n elements after a step in which some are sent: whether momentum is forgotten there. */
static int forgets(const char *spec, size_t n, size_t sent_of_it)
{
    const tw_tensor only = {"b", 1, {n}};
    loopback group;
    gradients g;
    size_t sent = 0, forgotten = 0;
    float momentum[4096];
    group_create(&group, &g, spec, &only, 1, 1);
    gradients_draw(&g, 5, 0, 0.25);
    assert_false(group_step(&group, &g));
    assert_true(remembered(group.scheme[0], "momentum", "b", momentum));
    for (size_t i = 0; i < n; i++) {
        if (g.rank[0][0][i] == 0) continue;
        sent++;
        forgotten += momentum[i] == 0;
    }
    assert_int_equal(sent, sent_of_it);
    assert_true(forgotten == 0 || forgotten == sent);
    group_destroy(&group, &g);
    return forgotten > 0;
}

/* 16 of 1,600 elements a step: each waits ten times as long as a momentum of 0.9 lasts, and no longer. */
TEST(small_tensors_keep_their_momentum)
{
    assert_false(forgets("dgc-bold:warmup_steps=0,values=fp32", 1, 1));
    assert_false(forgets("dgc-bold:warmup_steps=0,values=fp32", 1600, 16));
    assert_true(forgets("dgc-bold:warmup_steps=0,values=fp32", 1601, 16));
    assert_false(forgets("dgc-bold:warmup_steps=0,values=fp32,momentum=0.75", 640, 16));
    assert_true(forgets("dgc-bold:warmup_steps=0,values=fp32,momentum=0.75", 641, 16));
    assert_true(forgets("sdagc-bold:warmup_steps=0,values=fp32,masking=on", 1601, 16));
    assert_false(forgets("sdagc-bold:warmup_steps=0,values=fp32", 1601, 16));
}

/* As it is with any tensor at such a density, for good or in the first steps of a warm-up. */
TEST(dense_steps_keep_their_momentum)
{
    assert_false(forgets("dgc-bold:warmup_steps=0,values=fp32,density=0.01", 4000, 40));
    assert_true(forgets("dgc-bold:warmup_steps=0,values=fp32,density=0.0097", 4000, 39));
    assert_false(forgets("dgc-bold:warmup_steps=9,values=fp32", 4000, 1000));
    assert_true(forgets("dgc-bold:warmup_steps=9,warmup_density=0.0097,values=fp32", 4000, 39));
}

/* Two groups of one rank, with gradients of their own. */
typedef struct pair {
    loopback group[2];
    gradients g[2];
} pair;

static void pair_create(pair *p, const char *spec)
{
    for (int k = 0; k < 2; k++) {
        gradients_create(&p->g[k], table, TENSORS, 1);
        assert_int_equal(loopback_create(&p->group[k], spec, table, TENSORS, 1), TW_OK);
    }
}

static void pair_destroy(pair *p)
{
    for (int k = 0; k < 2; k++) {
        loopback_destroy(&p->group[k]);
        gradients_destroy(&p->g[k]);
    }
}

static void pair_step(pair *p, int k, int step)
{
    int skipped;
    gradients_draw(&p->g[k], 8, step, 0);
    assert_int_equal(loopback_step(&p->group[k], p->g[k].rank, -1, NULL, &skipped), TW_OK);
}

static void assert_pair_agrees(const pair *p)
{
    for (size_t t = 0; t < TENSORS; t++)
        assert_memory_equal(p->g[0].rank[0][t], p->g[1].rank[0][t], tw_tensor_count(&table[t]) * sizeof(float));
}

/* Unless it is told to, DGC sends what the paper says it sends. */
TEST(the_rate_is_not_dgcs_concern)
{
    pair p;
    pair_create(&p, "dgc:warmup_steps=0");
    for (int step = 0; step < 5; step++) {
        assert_int_equal(tw_scheme_set_rate(p.group[1].scheme[0], 1.0F / (float)(1 + step)), TW_OK);
        for (int k = 0; k < 2; k++) pair_step(&p, k, step);
        assert_pair_agrees(&p);
    }
    pair_destroy(&p);
}

/* A rate that was told before the state was saved, and meets a residual only afterwards, need not be told again. */
static void check_rate_is_kept(const char *spec, const float *rates)
{
    pair p;
    pair_create(&p, spec);
    for (int k = 0; k < 2; k++) {
        tw_scheme *scheme = p.group[k].scheme[0];
        assert_int_equal(tw_scheme_set_rate(scheme, 1), TW_OK);
        pair_step(&p, k, 0);
        assert_int_equal(rates ? tw_scheme_set_rates(scheme, rates) : tw_scheme_set_rate(scheme, 0.1F), TW_OK);
    }
    assert_int_equal(loopback_restart(&p.group[1], spec, table, TENSORS), TW_OK);
    for (int k = 0; k < 2; k++) pair_step(&p, k, 1);
    assert_pair_agrees(&p);
    pair_destroy(&p);
}

TEST(a_rate_just_told_is_kept)
{
    static const float rates[TENSORS] = {0.1F, 0.3F};
    check_rate_is_kept("dgc:density=0.01,warmup_steps=0,revision=rate", NULL);
    check_rate_is_kept("sdagc:density=0.01,warmup_steps=0", NULL);
    check_rate_is_kept("sdagc:density=0.01,warmup_steps=0", rates);
}

/* A schedule that ends at nothing blows no residual up, and one that begins there forgets none. */
TEST(a_rate_scales_by_1024_at_most)
{
    static const float rates[2][2] = {{0x1p-10F, 1e-9F}, {0x1p10F, 1e9F}};
    for (int way = 0; way < 2; way++) {
        pair p;
        pair_create(&p, "sdagc:density=0.01,warmup_steps=0");
        for (int k = 0; k < 2; k++) {
            assert_int_equal(tw_scheme_set_rate(p.group[k].scheme[0], 1), TW_OK);
            pair_step(&p, k, 0);
            assert_int_equal(tw_scheme_set_rate(p.group[k].scheme[0], rates[way][k]), TW_OK);
            pair_step(&p, k, 1);
        }
        assert_pair_agrees(&p);
        pair_destroy(&p);
    }
}

enum { KEYS = 2 * 2 * 2 * 2 * TW_ROUNDING_USES };

static size_t find_key(const tw_noise *keys, size_t count, const tw_noise *key)
{
    size_t at = 0;
    while (at < count && memcmp(keys[at].key, key->key, sizeof key->key) != 0) at++;
    return at;
}

/* Errors that are alike on ranks, or step after step, would add up instead of cancelling out. */
TEST(no_two_roundings_share_their_noise)
{
    tw_scheme_tensor tensors[] = {{.name = "a"}, {.name = "b"}};
    tw_noise keys[KEYS];
    for (size_t i = 0; i < KEYS; i++) {
        tw_scheme scheme = {.size = 2, .count = 2, .tensors = tensors, .step = i >> 1 & 1};
        keys[i] = tw_rounding_make(&scheme, i >> 2 & 1, i & 1, (int64_t)(i >> 3 & 1), (tw_rounding_use)(i >> 4));
        assert_int_equal(find_key(keys, i, &keys[i]), i);
    }
}

RUN_TESTS(NULL, NULL)
