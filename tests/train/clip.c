/* Clipping against norms of Pythagorean numbers, which are exact. */
#include "clip.h"
#include "support.h"

#include <math.h>

/* As two tensors, the first of one element. */
static void clip(float *values, size_t count, double limit)
{
    const tw_tensor tensors[] = {{.dims = 1, .shape = {1}}, {.dims = 1, .shape = {count - 1}}};
    clip_norm(tensors, 2, values, limit);
}

static void assert_clipped(double limit, float x, float y)
{
    float values[20] = {0};
    values[1] = 3;
    values[18] = -4; /* behind the last full row of lanes */
    clip(values, 20, limit);
    assert_true(values[1] == x);
    assert_true(values[18] == y);
    for (int i = 0; i < 20; i++)
        if (i != 1 && i != 18) assert_true(values[i] == 0);
}

TEST(only_longer_gradients_are_scaled)
{
    assert_clipped(6, 3, -4);
    assert_clipped(5, 3, -4);
    assert_clipped(2.5, 1.5f, -2);
    assert_clipped(1.25, 0.75f, -1);
    assert_clipped(0x1p-120, 0.6f * 0x1p-120f, -0.8f * 0x1p-120f);
}

TEST(every_element_counts)
{
    float values[33];
    for (int i = 0; i < 33; i++) {
        memset(values, 0, sizeof values);
        values[i] = 8;
        clip(values, 33, 2);
        assert_true(values[i] == 2);
    }
}

/* Whose square no float holds. */
TEST(huge_gradients_are_scaled)
{
    float values[2] = {0x1p127f, 0};
    clip(values, 2, 1);
    assert_true(values[0] == 1 && values[1] == 0);
}

/* The reducer, or the gossip, has to see them. */
TEST(what_is_not_finite_stays)
{
    float values[2] = {1, NAN};
    clip(values, 2, 0.5);
    assert_true(values[0] == 1 && isnan(values[1]));
    values[1] = INFINITY;
    clip(values, 2, 0.5);
    assert_true(values[0] == 1 && isinf(values[1]));
}

RUN_TESTS(NULL, NULL)
