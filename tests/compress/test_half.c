/* fp16 and bf16 against their definition: shares rounded, summed in fp32 in rank order, rounded once more. */
#include <string.h>

#include "gradients.h"
#include "support/cmocka.h"

enum { TENSORS = 2, N0 = 4100, N1 = 7 };
static const tw_tensor table[TENSORS] = {{"w", 2, {41, 100}}, {"b", 1, {N1}}};

static float rounded(float x, int fp16)
{
    return fp16 ? tw_from_fp16(tw_to_fp16(x)) : tw_from_bf16(tw_to_bf16(x));
}

static float expected(int step, int size, size_t tensor, size_t i, int fp16)
{
    float scale = (float)(1.0 / size);
    float sum = rounded(scale * gradient_draw(1, step, 0, tensor, i), fp16);
    for (int r = 1; r < size; r++) sum += rounded(scale * gradient_draw(1, step, r, tensor, i), fp16);
    return rounded(sum, fp16);
}

static void check_sum(const char *spec, int fp16, int size)
{
    loopback group;
    gradients g;
    group_create(&group, &g, spec, table, TENSORS, size);
    for (int step = 0; step < 3; step++) {
        gradients_draw(&g, 1, step, 0);
        assert_false(group_step(&group, &g));
        for (size_t t = 0; t < TENSORS; t++)
            for (size_t i = 0; i < tw_tensor_count(&table[t]); i++)
                assert_true(g.rank[0][t][i] == expected(step, size, t, i, fp16));
    }
    tw_cost cost = cost_of(group.scheme[0]);
    assert_int_equal(cost.packet_bytes, 2 * (N0 + N1)); /* biases too: every tensor is compressed */
    assert_int_equal(cost.exact_bytes, 0);
    group_destroy(&group, &g);
}

TEST(sums_are_as_defined)
{
    for (int size = 1; size <= 8; size *= 2) {
        check_sum("fp16", 1, size);
        check_sum("bf16", 0, size);
    }
}

/* 65,504 is the end of fp16: two shares of 40,000 overflow the sum. With feedback, what fits is sent step by step. */
TEST(overflow_skips_or_waits)
{
    static const struct {
        const char *spec;
        int skipped;
        float first, second;
    } cases[] = {{"fp16", 1, 0, 0}, {"fp16:feedback=on", 0, 65504, 14496}, {"bf16", 0, 79872, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        loopback group;
        gradients g;
        group_create(&group, &g, cases[c].spec, table, TENSORS, 2);
        g.rank[0][1][3] = g.rank[1][1][3] = 80000;
        int skipped = group_step(&group, &g);
        assert_int_equal(skipped, cases[c].skipped);
        if (!skipped) assert_true(g.rank[0][1][3] == cases[c].first);
        for (int r = 0; r < 2; r++)
            for (size_t t = 0; t < TENSORS; t++) memset(g.rank[r][t], 0, tw_tensor_count(&table[t]) * sizeof(float));
        assert_false(group_step(&group, &g));
        assert_true(g.rank[1][1][3] == cases[c].second);
        group_destroy(&group, &g);
    }
}

RUN_TESTS(NULL, NULL)
