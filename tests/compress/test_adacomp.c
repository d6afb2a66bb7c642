/* AdaComp against a second implementation that sorts, and against what must hold of it. */
#include <math.h>
#include <stdio.h>
#include <thinwire/thinwire_by_hand.h>
#include <thinwire/thinwire_plugin.h>

#include "gradients.h"

enum { TENSORS = 2, MOST = 2203, RANKS = 8, STEPS = 30 };

static const tw_tensor table[TENSORS] = {{"matrix", 2, {MOST, 1}}, {"conv", 4, {8, 4, 3, 3}}};

#include "kernels.h"
#include "packet.h"

/* Every eleventh element is zero, and so are whole bins. */
static void fill(gradients *g, int at)
{
    uint32_t words[4];
    for (int r = 0; r < g->ranks; r++)
        for (int t = 0; t < TENSORS; t++)
            for (size_t i = 0; i < tw_tensor_count(&table[t]); i++) {
                tw_random(9, (uint64_t)(at * 64 + r), (uint64_t)t << 32 | i, words);
                float x = (float)(int32_t)words[0] * 0x1p-31F;
                g->rank[r][t][i] = i % 11 == 0 || i / 100 == 2 ? 0 : x * x * x;
            }
}

static void assert_residual(const loopback *group, int r, const tw_tensor *tensor, const float *expected)
{
    float residual[MOST];
    char name[32];
    snprintf(name, sizeof name, "residual/%s", tensor->name);
    assert_int_equal(loopback_saved(group->scheme[r], name, tw_tensor_count(tensor), residual), TW_OK);
    for (size_t i = 0; i < tw_tensor_count(tensor); i++)
        if (residual[i] != expected[i]) fail_msg("rank %d, %s[%zu]: %g, not %g", r, name, i, residual[i], expected[i]);
}

/* ---- the second implementation ----------------------------------------------------------------------------------- */

typedef struct naive {
    int size;
    size_t bin[TENSORS], most[TENSORS], sent;
    unsigned char absent[RANKS][TENSORS];
    float residual[RANKS][TENSORS][MOST];
} naive;

static naive *naive_create(int size, size_t matrix_bin, size_t conv_bin, double most_density)
{
    naive *self = calloc(1, sizeof *self);
    assert_non_null(self);
    self->size = size;
    self->bin[0] = matrix_bin;
    self->bin[1] = conv_bin;
    for (int t = 0; t < TENSORS; t++) {
        self->most[t] = (size_t)ceil((double)tw_tensor_count(&table[t]) * most_density);
        if (self->most[t] < 16) self->most[t] = 16;
    }
    return self;
}

static float bin_maximum(const float *x, size_t n, size_t bin, size_t i)
{
    float maximum = 0;
    for (size_t j = i / bin * bin; j < n && j < (i / bin + 1) * bin; j++) maximum = fmaxf(maximum, fabsf(x[j]));
    return maximum;
}

typedef struct candidate {
    size_t index;
    float magnitude;
} candidate;

static int first_sent(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->magnitude != y->magnitude) return x->magnitude > y->magnitude ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* One rank's step: what it sends is added to sum. */
static void naive_send(naive *self, int r, int t, const float *gradient, float *sum)
{
    size_t n = tw_tensor_count(&table[t]), bin = self->bin[t], bins = (n + bin - 1) / bin, count = 0;
    float *v = self->residual[r][t], share = (float)(1.0 / self->size), maximum = 0;
    candidate chosen[MOST];
    double total = 0;
    for (size_t i = 0; i < n; i++) v[i] += share * gradient[i];
    for (size_t b = 0; b < bins; b++) total += (double)bin_maximum(v, n, bin, b * bin);
    for (size_t i = 0; i < n; i++) {
        if (i % bin == 0) maximum = bin_maximum(v, n, bin, i);
        if (fabsf(v[i] + share * gradient[i]) >= maximum && v[i] != 0) chosen[count++] = (candidate){i, fabsf(v[i])};
    }
    qsort(chosen, count, sizeof *chosen, first_sent);
    if (count > self->most[t]) count = self->most[t];
    float scale = (float)(total / (double)bins);
    tw_values_round(&scale, 1, TW_VALUES_SIGN);
    for (size_t j = 0; j < count; j++) {
        float sent = copysignf(scale, v[chosen[j].index]);
        v[chosen[j].index] -= sent;
        sum[chosen[j].index] += sent;
    }
    self->sent += count;
}

static void naive_step(naive *self, const gradients *g, float sum[TENSORS][MOST])
{
    memset(sum, 0, TENSORS * sizeof *sum);
    for (int t = 0; t < TENSORS; t++)
        for (int r = 0; r < self->size; r++)
            if (!self->absent[r][t]) naive_send(self, r, t, g->rank[r][t], sum[t]);
}

/* Residuals are looked at in every third step: a look has the scheme settle them. */
static void assert_alike(const loopback *group, const gradients *g, const naive *expected, float sum[TENSORS][MOST],
                         int at)
{
    for (int r = 0; r < group->size; r++)
        for (int t = 0; t < TENSORS; t++) {
            for (size_t i = 0; i < tw_tensor_count(&table[t]); i++) assert_true(g->rank[r][t][i] == sum[t][i]);
            if (at % 3 == 2) assert_residual(group, r, &table[t], expected->residual[r][t]);
        }
}

/* Each rank is without the matrix now and then, after steps of each kind. */
static void leave_out(naive *self, loopback *group, int at)
{
    for (int r = 0; r < self->size; r++) {
        self->absent[r][0] = (at + r) % 4 == 3;
        group->absent[r] = self->absent[r];
    }
}

static size_t elements_sent(const loopback *group)
{
    size_t sent = 0;
    for (int r = 0; r < group->size; r++) sent += cost_of(group->scheme[r]).elements_sent;
    return sent;
}

TEST(test_a_second_implementation_agrees)
{
    static const struct {
        const char *spec;
        size_t matrix_bin, conv_bin;
        double most_density;
    } cases[] = {{"adacomp", 500, 50, 0.05},
                 {"adacomp:most_density=1", 500, 50, 1},
                 {"adacomp:bin=7,most_density=0.1", 7, 7, 0.1},
                 {"adacomp:bin=4096,most_density=0.002", 4096, 4096, 0.002},
                 {"adacomp:bin=1,indices=rice", 1, 1, 0.05}};
    static float sum[TENSORS][MOST];
    gradients g;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int size = 1; size <= RANKS; size *= 2) {
            loopback group;
            naive *expected = naive_create(size, cases[c].matrix_bin, cases[c].conv_bin, cases[c].most_density);
            group_create(&group, &g, cases[c].spec, table, TENSORS, size);
            for (int at = 0; at < STEPS; at++) {
                fill(&g, at);
                leave_out(expected, &group, at);
                expected->sent = 0;
                naive_step(expected, &g, sum);
                assert_int_equal(group_step(&group, &g), 0);
                assert_int_equal(elements_sent(&group), expected->sent);
                assert_alike(&group, &g, expected, sum, at);
            }
            group_destroy(&group, &g);
            free(expected);
        }
}

/* ---- what must hold ---------------------------------------------------------------------------------------------- */

/* In a bin of zeros every element would pass |H| >= 0; one whose residual the gradient just cancelled has no sign. */
TEST(test_zeros_are_not_sent)
{
    loopback group;
    gradients g;
    float sent = 3.0F / 5; /* five bins */
    tw_values_round(&sent, 1, TW_VALUES_SIGN);
    group_create(&group, &g, "adacomp:most_density=1", table, TENSORS, 1);
    for (int at = 0; at < 4; at++) {
        /* step 2: what step 1 left of element 5 is exactly cancelled */
        float left = 3 - sent, *x = g.rank[0][0];
        for (int t = 0; t < TENSORS; t++) memset(g.rank[0][t], 0, tw_tensor_count(&table[t]) * sizeof(float));
        if (at == 1) x[5] = 3;
        if (at == 2) x[5] = -left;
        assert_int_equal(group_step(&group, &g), 0);
        assert_int_equal(elements_sent(&group), at == 1);
        for (size_t i = 0; i < MOST; i++) assert_true(x[i] == (at == 1 && i == 5 ? sent : 0));
    }
    group_destroy(&group, &g);
}

TEST(test_all_equal_denormal_and_huge)
{
    static const float levels[] = {1, -1, 0x1p-133F, -0x1p-126F, 0x1p100F};
    loopback group;
    gradients g;
    for (int l = 0; l < 5; l++) {
        group_create(&group, &g, "adacomp:most_density=1", table, TENSORS, 1);
        for (size_t i = 0; i < MOST; i++) g.rank[0][0][i] = levels[l];
        assert_int_equal(group_step(&group, &g), 0);
        for (size_t i = 0; i < MOST; i++) assert_true(g.rank[0][0][i] == levels[l]); /* its own mean */
        group_destroy(&group, &g);
    }
}

/* Many times more candidates than there is room for, all alike: the first ones are sent. */
TEST(test_no_more_than_the_most_is_sent)
{
    enum { LONG = 50000, SENT = 100 };
    static const tw_tensor big = {"big", 2, {LONG / 100, 100}};
    loopback group;
    gradients g;
    group_create(&group, &g, "adacomp:most_density=0.002", &big, 1, 1);
    for (size_t i = 0; i < LONG; i++) g.rank[0][0][i] = -2;
    assert_false(group_step(&group, &g));
    for (size_t i = 0; i < LONG; i++) assert_true(g.rank[0][0][i] == (i < SENT ? -2 : 0));
    group_destroy(&group, &g);
}

TEST(test_bins_follow_the_shape)
{
    tw_comm *comm;
    tw_reducer *reducer;
    assert_int_equal(tw_comm_create_threads(1, &comm), TW_OK);
    assert_int_equal(tw_reducer_create(comm, "adacomp", table, TENSORS, &reducer), TW_OK);
    assert_non_null(strstr(tw_reducer_plan(reducer, 0), "bins of 500"));
    assert_non_null(strstr(tw_reducer_plan(reducer, 1), "bins of 50,"));
    tw_reducer_destroy(reducer);
    assert_int_equal(tw_reducer_create(comm, "adacomp:bin=64", table, TENSORS, &reducer), TW_OK);
    assert_non_null(strstr(tw_reducer_plan(reducer, 1), "bins of 64"));
    tw_reducer_destroy(reducer);
    tw_comm_destroy(comm);
}

/* A sign each, and a magnitude for all of a tensor. */
TEST(test_a_value_is_one_bit)
{
    loopback group;
    gradients g;
    group_create(&group, &g, "adacomp:bin=8,most_density=1", table, TENSORS, 1);
    fill(&g, 0);
    assert_int_equal(group_step(&group, &g), 0);
    tw_cost cost = cost_of(group.scheme[0]);
    assert_true(cost.elements_sent > 100);
    assert_true(cost.packet_bytes - cost.index_bytes <= 24 + TENSORS * (10 + 4 + 1) + cost.elements_sent / 8);
    group_destroy(&group, &g);
}

/* A group is looked at as a whole, although the runs in which a tensor is taken in end in its midst. */
TEST(test_a_sick_group_stays_out_where_bins_do_not_end)
{
    enum { COUNT = 9000, SICK = 7001, GROUP = SICK / TW_GROUP };
    static const tw_tensor matrix = {"long", 2, {90, 100}};
    static float residual[COUNT];
    loopback group;
    gradients g;
    group_create(&group, &g, "adacomp:bin=50", &matrix, 1, 1);
    for (size_t i = 0; i < COUNT; i++) g.rank[0][0][i] = 1 + (float)(i % 7);
    g.rank[0][0][SICK] = NAN;
    assert_true(group_step(&group, &g));
    assert_int_equal(loopback_saved(group.scheme[0], "residual/long", COUNT, residual), TW_OK);
    for (size_t i = 0; i < COUNT; i++) assert_true(residual[i] == (i / TW_GROUP == GROUP ? 0 : 1 + (float)(i % 7)));
    group_destroy(&group, &g);
}

RUN_TESTS(NULL, NULL)
