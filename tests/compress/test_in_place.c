/* Gradients that lie one behind the other are summed where they lie; the sums are those of gradients that lie apart. */
#include <math.h>

#include "gradients.h"
#include "support/cmocka.h"

enum { TENSORS = 3, N0 = 4100, N1 = 7, N2 = 2050, ALL = N0 + N1 + N2, RANKS = 3 };
static const tw_tensor table[TENSORS] = {{"w", 2, {41, 100}}, {"b", 1, {N1}}, {"v", 2, {41, 50}}};

typedef struct group {
    tw_scheme *scheme[RANKS];
    float memory[RANKS][ALL + TENSORS], *gradient[RANKS][TENSORS];
    tw_round round[RANKS];
} group;

/* `gap` floats between one gradient and the next. */
static void begin(group *all, size_t gap, int step, int sick)
{
    for (int r = 0; r < RANKS; r++) {
        float *place = all->memory[r];
        for (size_t t = 0; t < TENSORS; t++) {
            size_t count = tw_tensor_count(&table[t]);
            all->gradient[r][t] = place;
            for (size_t i = 0; i < count; i++) place[i] = gradient_draw(1, step, r, t, i);
            place[count] = 77; /* what lies between is nobody's */
            place += count + gap;
        }
        if (r == sick) all->gradient[r][2][5] = INFINITY;
        all->round[r] = (tw_round){0};
        assert_int_equal(tw_scheme_begin(all->scheme[r], all->gradient[r], -1), TW_OK);
        assert_int_equal(tw_scheme_next(all->scheme[r], &all->round[r]), TW_OK);
        assert_int_equal(all->round[r].kind, TW_ROUND_ALLREDUCE);
        assert_int_equal(all->round[r].count, ALL);
        assert_true((all->round[r].values == all->memory[r]) == (gap == 0));
    }
}

static void end(group *all, size_t gap, int skipped)
{
    loopback_sum(all->round, RANKS);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(tw_scheme_next(all->scheme[r], &all->round[r]), TW_OK);
        assert_int_equal(all->round[r].kind, TW_ROUND_DONE);
        assert_int_equal(all->round[r].skipped, skipped);
        for (size_t t = 0; gap && t < TENSORS; t++) assert_true(all->gradient[r][t][tw_tensor_count(&table[t])] == 77);
    }
}

static void check_sums(const group *all, int step)
{
    const float share = (float)(1.0 / RANKS);
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < tw_tensor_count(&table[t]); i++) {
            float sum = share * gradient_draw(1, step, 0, t, i);
            for (int r = 1; r < RANKS; r++) sum += share * gradient_draw(1, step, r, t, i);
            for (int r = 0; r < RANKS; r++) assert_true(all->gradient[r][t][i] == sum);
        }
}

TEST(gradients_in_a_row_are_summed_in_place)
{
    static group all;
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(tw_scheme_create("allreduce", table, TENSORS, r, RANKS, &all.scheme[r]), TW_OK);
    for (int step = 0; step < 6; step++) { /* from the one to the other and back, and after a step with infinity */
        size_t gap = (size_t)(step & 1);
        int skipped = step == 2 || step == 3;
        begin(&all, gap, step, skipped ? 1 : -1);
        end(&all, gap, skipped);
        if (!skipped) check_sums(&all, step);
    }
    for (int r = 0; r < RANKS; r++) tw_scheme_destroy(all.scheme[r]);
}

RUN_TESTS(NULL, NULL)
