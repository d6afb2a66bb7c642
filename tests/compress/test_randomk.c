/* random-k: where it draws, that it is unbiased with the variance it should have, and its books. */
#include <math.h>
#include <string.h>

#include "gradients.h"
#include "support/cmocka.h"

enum { TENSORS = 2, N0 = 1003, N1 = 30, K = 101 };
static const tw_tensor table[TENSORS] = {{"w", 2, {17, 59}}, {"b", 1, {N1}}};

static size_t bin_start(size_t j)
{
    return j * N0 / K;
}

static size_t bin_size_at(size_t i)
{
    size_t j = 0;
    while (bin_start(j + 1) <= i) j++;
    return bin_start(j + 1) - bin_start(j);
}

/* One of each bin, its share made up to the bin's size; over the steps every element equally often. */
TEST(draws_one_of_each_bin)
{
    enum { STEPS = 4000 };
    static int hits[N0];
    loopback group;
    gradients g;
    memset(hits, 0, sizeof hits);
    group_create(&group, &g, "randomk:density=0.1,feedback=off", table, TENSORS, 1);
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < N0; i++) g.rank[0][0][i] = 1;
        assert_false(group_step(&group, &g));
        for (size_t j = 0; j < K; j++) {
            size_t drawn = 0, start = bin_start(j), end = bin_start(j + 1);
            for (size_t i = start; i < end; i++) {
                float value = g.rank[0][0][i];
                assert_true(value == 0 || value == (float)(end - start));
                drawn += value != 0;
                hits[i] += value != 0;
            }
            assert_int_equal(drawn, 1);
        }
    }
    for (size_t i = 0; i < N0; i++) {
        double p = 1 / (double)bin_size_at(i), deviation = sqrt(STEPS * p * (1 - p));
        assert_true(fabs(hits[i] - STEPS * p) < 5 * deviation);
    }
    group_destroy(&group, &g);
}

TEST(unbiased_with_the_variance_of_its_bins)
{
    enum { STEPS = 4000 };
    static double mean[N0];
    loopback group;
    gradients g;
    double error = 0, expected = 0;
    memset(mean, 0, sizeof mean);
    group_create(&group, &g, "randomk:density=0.1,feedback=off,seed=9", table, TENSORS, 1);
    for (int step = 0; step < STEPS; step++) {
        gradients_draw(&g, 4, 0, 0);
        assert_false(group_step(&group, &g));
        for (size_t i = 0; i < N0; i++) {
            double x = (double)gradient_draw(4, 0, 0, 0, i), y = (double)g.rank[0][0][i];
            mean[i] += y / STEPS;
            error += (y - x) * (y - x) / STEPS;
        }
    }
    for (size_t i = 0; i < N0; i++) {
        double x = (double)gradient_draw(4, 0, 0, 0, i), b = (double)bin_size_at(i);
        assert_true(fabs(mean[i] - x) <= 5 * sqrt((b - 1) / STEPS) * fabs(x));
        expected += (b - 1) * x * x;
    }
    assert_true(fabs(error / expected - 1) < 0.02);
    group_destroy(&group, &g);
}

/* 65,504 is the end of fp16: what does not fit into a share of it waits. */
TEST(halves_never_overflow)
{
    loopback group;
    gradients g;
    group_create(&group, &g, "randomk:density=1,values=fp16", table, TENSORS, 4);
    for (int r = 0; r < 4; r++) g.rank[r][0][7] = 1e5F;
    assert_false(group_step(&group, &g));
    assert_true(g.rank[0][0][7] == 4 * 16376);
    group_destroy(&group, &g);
}

TEST(no_index_travels)
{
    loopback group;
    gradients g;
    group_create(&group, &g, "randomk:values=bf16", table, TENSORS, 2);
    gradients_draw(&g, 6, 0, 0);
    assert_false(group_step(&group, &g));
    tw_cost cost = cost_of(group.scheme[1]);
    assert_int_equal(cost.packet_bytes, 2 * K);
    assert_int_equal(cost.elements_sent, K);
    assert_int_equal(cost.index_bytes, 0);
    assert_int_equal(cost.exact_bytes, 2 * N1);
    group_destroy(&group, &g);
}

RUN_TESTS(NULL, NULL)
