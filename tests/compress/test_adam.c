/* Adam behind which dgc compresses, against a second Adam that knows nothing of messages. */
#include "adam_twin.h"

enum { STEPS = 24 };
static const float BETA2 = 0.9375F;
#define BETAS BETA1_EPSILON ",beta2=0.9375,"

/* ---- identities ---- */

/* One rank that sends everything has Adam's steps, bit for bit, of what is compressed and of what is not. */
TEST(test_density_one_is_adam)
{
    loopback group;
    gradients g;
    twin *t = twin_create(BETA2);
    group_create(&group, &g, "dgc-adam:density=1,nesterov=off,warmup_steps=0," BETAS LOOPBACK_EXACT, table, TENSORS, 1);
    for (t->steps = 1; t->steps <= STEPS; t->steps++) {
        gradients_draw(&g, 1, (int)t->steps, 0);
        assert_false(group_step(&group, &g));
        for (size_t k = 0; k < TENSORS; k++)
            for (size_t i = 0; i < counts[k]; i++)
                assert_true(g.rank[0][k][i] == twin_direction(t, k, i, gradient_draw(1, (int)t->steps, 0, k, i)));
    }
    group_destroy(&group, &g);
    free(t);
}

/* What is not compressed takes Adam's steps of the mean, however many ranks there are; a step that was skipped or taken
 * back leaves no trace but in the count. */
TEST(test_leftovers_take_the_steps_of_the_mean)
{
    enum { BAD = 5, BACK = 9 };
    loopback group;
    gradients g;
    twin *t = twin_create(BETA2);
    group_create(&group, &g, "dgc-adam:dense=*,leftovers=fp32,nesterov=off," BETAS "warmup_steps=0", table, TENSORS,
                 RANKS);
    for (t->steps = 1; t->steps <= STEPS; t->steps++) {
        gradients_draw(&g, 1, (int)t->steps, 0);
        if (t->steps == BAD) g.rank[2][0][3] = NAN;
        assert_int_equal(group_step(&group, &g), t->steps == BAD);
        if (t->steps == BACK)
            for (int r = 0; r < RANKS; r++) assert_int_equal(tw_scheme_revert(group.scheme[r]), TW_OK);
        if (t->steps == BAD || t->steps == BACK) continue;
        for (size_t k = 0; k < TENSORS; k++)
            for (size_t i = 0; i < counts[k]; i++) {
                float mean = 0;
                for (int r = 0; r < RANKS; r++) mean += gradient_draw(1, (int)t->steps, r, k, i) * 0.25F;
                assert_true(g.rank[0][k][i] == twin_direction(t, k, i, mean));
            }
    }
    group_destroy(&group, &g);
    free(t);
}

/* ---- what each rank sends is its own direction ---- */

static void check_conserves(const char *spec, int nesterov)
{
    size_t n = counts[0];
    loopback group;
    gradients g;
    twin *own[RANKS];
    double *owed = calloc(n, sizeof *owed), *arrived = calloc(n, sizeof *arrived);
    float *left = calloc(n, sizeof *left);
    for (int r = 0; r < RANKS; r++) own[r] = twin_create(BETA2);
    group_create(&group, &g, spec, table, TENSORS, RANKS);
    for (int step = 1; step <= STEPS; step++) {
        gradients_draw(&g, 3, step, 0);
        for (int r = 0; r < RANKS; r++) {
            own[r]->steps = (uint64_t)step;
            for (size_t i = 0; i < n; i++)
                owed[i] += (double)twin_ahead(own[r], 0, i, 0.25F * g.rank[r][0][i], RANKS, nesterov);
        }
        assert_false(group_step(&group, &g));
        for (size_t i = 0; i < n; i++) arrived[i] += (double)g.rank[0][0][i];
    }
    for (int r = 0; r < RANKS; r++) {
        assert_true(remembered(group.scheme[r], "residual", "a.weight", left));
        for (size_t i = 0; i < n; i++) arrived[i] += (double)left[i];
    }
    for (size_t i = 0; i < n; i++) assert_true(fabs(arrived[i] - owed[i]) < 1e-4);
    group_destroy(&group, &g);
    for (int r = 0; r < RANKS; r++) free(own[r]);
    free(owed);
    free(arrived);
    free(left);
}

/* Whatever is sent of it, and however it is rounded: what arrived and what is left are the ranks' directions, of which
 * each is divided by what it holds for the mean's root. */
TEST(test_directions_arrive_or_are_left)
{
    check_conserves("dgc-adam:nesterov=off,density=0.02,masking=off," BETAS "warmup_steps=0", 0);
    check_conserves("dgc-adam:nesterov=off,density=0.1,values=lm2," BETAS "warmup_steps=6", 0);
    check_conserves("dgc-adam:density=0.02,masking=off," BETAS "warmup_steps=0", 1);
    check_conserves("dgc-adam:density=0.05,values=fp32," BETAS "warmup_steps=0", 1);
}

/* A state may say what no square is, and what comes of it is finite. */
TEST(test_squares_below_zero_make_no_nan)
{
    size_t n = counts[0], shape[] = {n};
    loopback group;
    gradients g;
    float *squares = calloc(n, sizeof *squares);
    for (size_t i = 0; i < n; i++) squares[i] = -1e6F;
    group_create(&group, &g, "dgc-adam:warmup_steps=0", table, TENSORS, 1);
    tw_state *saved = loopback_save(group.scheme[0], "");
    assert_int_equal(tw_state_put(saved, "second_moment/a.weight", TW_F32, 1, shape, squares), TW_OK);
    assert_int_equal(tw_scheme_load_state(group.scheme[0], "", saved), TW_OK);
    gradients_draw(&g, 1, 1, 0);
    assert_false(group_step(&group, &g));
    assert_true(remembered(group.scheme[0], "residual", "a.weight", squares));
    for (size_t i = 0; i < n; i++) assert_true(isfinite(g.rank[0][0][i]) && isfinite(squares[i]));
    tw_state_destroy(saved);
    group_destroy(&group, &g);
    free(squares);
}

TEST(test_moments_there_must_be)
{
    tw_scheme *scheme;
    assert_int_equal(tw_scheme_create("dgc-adam:momentum=0", table, TENSORS, 0, 1, &scheme), TW_ERROR_SPEC);
    assert_non_null(strstr(tw_last_error(), "beta2=0.999 with momentum=0"));
}

RUN_TESTS(NULL, NULL)
