/* Fixed-threshold quantisation against a plain loop, and its books. */
#include <math.h>
#include <string.h>

#include "gradients.h"
#include "packet.h"
#include "support/cmocka.h"

enum { TENSORS = 2, RANKS = 4, STEPS = 12, N0 = 10000, N1 = 90 };
static const tw_tensor table[TENSORS] = {{"w", 2, {100, 100}}, {"b", 1, {N1}}};

/* One rank's share of w: every element above tau sends what its code makes of tau. */
static size_t reference_rank(float *residual, const float *gradient, float tau, float magnitude, float *sum)
{
    size_t sent = 0;
    for (size_t i = 0; i < N0; i++) {
        residual[i] += 0.25F * gradient[i];
        if (!(fabsf(residual[i]) > tau)) continue;
        float step = residual[i] > 0 ? magnitude : -magnitude;
        residual[i] -= step;
        sum[i] += step;
        sent++;
    }
    return sent;
}

TEST(equals_a_plain_loop)
{
    static float residual[RANKS][N0], sum[N0];
    const float tau = (float)(5.3 / RANKS);
    float magnitude = tau;
    tw_values_round(&magnitude, 1, TW_VALUES_SIGN);
    loopback group;
    gradients g;
    memset(residual, 0, sizeof residual);
    group_create(&group, &g, "threshold:tau=5.3,most_density=1", table, TENSORS, RANKS);
    for (int step = 0; step < STEPS; step++) {
        size_t sent[RANKS];
        gradients_draw(&g, 1, step, 0);
        memset(sum, 0, sizeof sum);
        for (int r = 0; r < RANKS; r++) sent[r] = reference_rank(residual[r], g.rank[r][0], tau, magnitude, sum);
        assert_false(group_step(&group, &g));
        assert_memory_equal(g.rank[0][0], sum, sizeof sum);
        for (int r = 0; r < RANKS; r++) {
            tw_cost cost = cost_of(group.scheme[r]);
            assert_int_equal(cost.elements_sent, sent[r]);
        }
    }
    group_destroy(&group, &g);
}

/* Of 10,000 elements that all stand out a hundredth is sent: the largest, the rest waits. */
TEST(cap_sends_the_largest)
{
    loopback group;
    gradients g;
    group_create(&group, &g, "threshold:tau=1,most_density=0.01", table, TENSORS, 1);
    for (size_t i = 0; i < N0; i++) g.rank[0][0][i] = (i % 2 ? -1.0F : 1.0F) * (float)(i * 7919 % N0 + 2);
    assert_false(group_step(&group, &g));
    for (size_t i = 0; i < N0; i++) {
        float sign = i % 2 ? -1 : 1, expected = i * 7919 % N0 >= N0 - 100 ? sign : 0;
        assert_true(g.rank[0][0][i] == expected);
    }
    group_destroy(&group, &g);
}

RUN_TESTS(NULL, NULL)
