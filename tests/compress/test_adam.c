/* Adam behind which dgc compresses, against a second Adam that knows nothing of messages. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gradients.h"
#include "support/cmocka.h"

enum { RANKS = 4, TENSORS = 2, STEPS = 24 };

static const tw_tensor table[TENSORS] = {{"a.weight", 2, {60, 50}}, {"a.bias", 1, {70}}};

static size_t count_of(size_t tensor)
{
    return tw_tensor_count(&table[tensor]);
}

/* ---- the second Adam, as optimisers write it ---- */

static const float BETA1 = 0.75F, BETA2 = 0.9375F, EPSILON = 0x1p-20F; /* what a spec can say exactly */
#define BETAS "momentum=0.75,beta2=0.9375,epsilon=9.5367431640625e-7,"

typedef struct twin {
    float *first[TENSORS], *second[TENSORS];
    int steps;
} twin;

static void twin_create(twin *t)
{
    *t = (twin){.steps = 0};
    for (size_t i = 0; i < TENSORS; i++) {
        t->first[i] = calloc(count_of(i), sizeof(float));
        t->second[i] = calloc(count_of(i), sizeof(float));
    }
}

static void twin_destroy(twin *t)
{
    for (size_t i = 0; i < TENSORS; i++) {
        free(t->first[i]);
        free(t->second[i]);
    }
}

/* `ranks`: 1 for a whole gradient, else that of how many ranks it is a share. */
static float twin_ahead(twin *t, size_t tensor, size_t i, float g, int ranks, int nesterov)
{
    float *m = &t->first[tensor][i], *v = &t->second[tensor][i];
    *m = BETA1 * *m + (1 - BETA1) * g;
    *v = BETA2 * *v + (1 - BETA2) * (g * g);
    float m_root = (float)(1 / (1 - pow((double)BETA1, t->steps)));
    float v_root = (float)(sqrt(ranks) / sqrt(1 - pow((double)BETA2, t->steps)));
    float first = nesterov ? BETA1 * *m + (1 - BETA1) * g : *m;
    return m_root * first / (v_root * sqrtf(*v) + EPSILON);
}

static float twin_direction(twin *t, size_t tensor, size_t i, float g, int ranks)
{
    return twin_ahead(t, tensor, i, g, ranks, 0);
}

static int step_of(loopback *group, gradients *g)
{
    int skipped;
    float **ranks[RANKS];
    for (int r = 0; r < group->size; r++) ranks[r] = g->rank[r];
    assert_int_equal(loopback_step(group, ranks, -1, NULL, &skipped), TW_OK);
    return skipped;
}

/* ---- identities ---- */

/* One rank that sends everything has Adam's steps, bit for bit, of what is compressed and of what is not. */
static void test_density_one_is_adam(void **state)
{
    (void)state;
    loopback group;
    gradients g;
    twin t;
    twin_create(&t);
    group_create(&group, &g, "dgc-adam:density=1,nesterov=off,warmup_steps=0," BETAS LOOPBACK_EXACT, table, TENSORS, 1);
    for (t.steps = 1; t.steps <= STEPS; t.steps++) {
        gradients_draw(&g, 1, t.steps, 0);
        assert_false(step_of(&group, &g));
        for (size_t k = 0; k < TENSORS; k++)
            for (size_t i = 0; i < count_of(k); i++)
                assert_true(g.rank[0][k][i] == twin_direction(&t, k, i, gradient_draw(1, t.steps, 0, k, i), 1));
    }
    group_destroy(&group, &g);
    twin_destroy(&t);
}

/* What is not compressed takes Adam's steps of the mean, however many ranks there are; a step that was skipped or taken
 * back leaves no trace but in the count. */
static void test_leftovers_take_the_steps_of_the_mean(void **state)
{
    (void)state;
    enum { BAD = 5, BACK = 9 };
    loopback group;
    gradients g;
    twin t;
    twin_create(&t);
    group_create(&group, &g, "dgc-adam:dense=*,leftovers=fp32,nesterov=off," BETAS "warmup_steps=0", table, TENSORS,
                 RANKS);
    for (t.steps = 1; t.steps <= STEPS; t.steps++) {
        gradients_draw(&g, 1, t.steps, 0);
        if (t.steps == BAD) g.rank[2][0][3] = NAN;
        assert_int_equal(step_of(&group, &g), t.steps == BAD);
        if (t.steps == BACK)
            for (int r = 0; r < RANKS; r++) assert_int_equal(tw_scheme_revert(group.scheme[r]), TW_OK);
        if (t.steps == BAD || t.steps == BACK) continue;
        for (size_t k = 0; k < TENSORS; k++)
            for (size_t i = 0; i < count_of(k); i++) {
                float mean = 0;
                for (int r = 0; r < RANKS; r++) mean += gradient_draw(1, t.steps, r, k, i) * 0.25F;
                assert_true(g.rank[0][k][i] == twin_direction(&t, k, i, mean, 1));
            }
    }
    group_destroy(&group, &g);
    twin_destroy(&t);
}

/* ---- what each rank sends is its own direction ---- */

static void check_conserves(const char *spec, int nesterov)
{
    size_t n = count_of(0);
    loopback group;
    gradients g;
    twin own[RANKS];
    double *owed = calloc(n, sizeof *owed), *arrived = calloc(n, sizeof *arrived);
    float *left = calloc(n, sizeof *left);
    for (int r = 0; r < RANKS; r++) twin_create(&own[r]);
    group_create(&group, &g, spec, table, TENSORS, RANKS);
    for (int step = 1; step <= STEPS; step++) {
        gradients_draw(&g, 3, step, 0);
        for (int r = 0; r < RANKS; r++) {
            own[r].steps = step;
            for (size_t i = 0; i < n; i++)
                owed[i] += (double)twin_ahead(&own[r], 0, i, 0.25F * g.rank[r][0][i], RANKS, nesterov);
        }
        assert_false(step_of(&group, &g));
        for (size_t i = 0; i < n; i++) arrived[i] += (double)g.rank[0][0][i];
    }
    for (int r = 0; r < RANKS; r++) {
        assert_true(remembered(group.scheme[r], "residual", "a.weight", left));
        for (size_t i = 0; i < n; i++) arrived[i] += (double)left[i];
    }
    for (size_t i = 0; i < n; i++) assert_true(fabs(arrived[i] - owed[i]) < 1e-4);
    group_destroy(&group, &g);
    for (int r = 0; r < RANKS; r++) twin_destroy(&own[r]);
    free(owed);
    free(arrived);
    free(left);
}

/* Whatever is sent of it, and however it is rounded: what arrived and what is left are the ranks' directions, of which
 * each is divided by what it holds for the mean's root. */
static void test_directions_arrive_or_are_left(void **state)
{
    (void)state;
    check_conserves("dgc-adam:nesterov=off,density=0.02,masking=off," BETAS "warmup_steps=0", 0);
    check_conserves("dgc-adam:nesterov=off,density=0.1,values=lm2," BETAS "warmup_steps=6", 0);
    check_conserves("dgc-adam:density=0.02,masking=off," BETAS "warmup_steps=0", 1);
    check_conserves("dgc-adam:density=0.05,values=fp32," BETAS "warmup_steps=0", 1);
}

/* A state may say what no square is, and what comes of it is finite. */
static void test_squares_below_zero_make_no_nan(void **state)
{
    (void)state;
    size_t n = count_of(0), shape[] = {n};
    loopback group;
    gradients g;
    float *squares = calloc(n, sizeof *squares);
    for (size_t i = 0; i < n; i++) squares[i] = -1e6F;
    group_create(&group, &g, "dgc-adam:warmup_steps=0", table, TENSORS, 1);
    tw_state *saved = loopback_save(group.scheme[0], "");
    assert_int_equal(tw_state_put(saved, "second_moment/a.weight", TW_F32, 1, shape, squares), TW_OK);
    assert_int_equal(tw_scheme_load_state(group.scheme[0], "", saved), TW_OK);
    gradients_draw(&g, 1, 1, 0);
    assert_false(step_of(&group, &g));
    assert_true(remembered(group.scheme[0], "residual", "a.weight", squares));
    for (size_t i = 0; i < n; i++) assert_true(isfinite(g.rank[0][0][i]) && isfinite(squares[i]));
    tw_state_destroy(saved);
    group_destroy(&group, &g);
    free(squares);
}

static void test_moments_there_must_be(void **state)
{
    (void)state;
    tw_scheme *scheme;
    assert_int_equal(tw_scheme_create("dgc-adam:momentum=0", table, TENSORS, 0, 1, &scheme), TW_ERROR_SPEC);
    assert_non_null(strstr(tw_last_error(), "beta2=0.999 with momentum=0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_density_one_is_adam),
        cmocka_unit_test(test_leftovers_take_the_steps_of_the_mean),
        cmocka_unit_test(test_directions_arrive_or_are_left),
        cmocka_unit_test(test_squares_below_zero_make_no_nan),
        cmocka_unit_test(test_moments_there_must_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
