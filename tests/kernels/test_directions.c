/* The reference of Adam's direction against Adam in double; that levels agree is test_levels.c's. */
#include "support.h"

enum { MOST = 300 };

/* Moments after a gradient, and the direction, with nothing of the rows'. */
static double taken_in_double(const tw_adam_step *s, double g, double *m, double *v)
{
    *m = (double)s->beta1 * *m + (double)s->fresh * g;
    *v = (double)s->beta2 * *v + (double)s->fresh_square * g * g;
    double ahead = s->nesterov ? (double)s->beta1 * *m + (double)s->fresh * g : *m;
    return (double)s->correction * ahead / ((double)s->correct_root * sqrt(*v) + (double)s->epsilon);
}

static void assert_near(double wanted, float actual)
{
    assert_true(fabs(wanted - (double)actual) <= 4e-6 * (fabs(wanted) + 1e-6));
}

TEST(the_reference_is_adam)
{
    const tw_directions_rows *rows = tw_kernels_at(TW_ISA_SCALAR)->directions;
    for (int k = 0; k < STEPS; k++)
        for (size_t i = 0; i < MOST; i++) {
            float g = tw_bits_float(pattern(ORDINARY, i)), m = tw_bits_float(pattern(ORDINARY, i + MOST));
            float v = fabsf(tw_bits_float(pattern(ORDINARY, i + 2 * MOST))), residual = 0.25F, value;
            float shared = 4 * g, m_too = m, v_too = v;
            uint32_t index;
            double first = (double)m, second = (double)v,
                   wanted = taken_in_double(&steps[k], (double)g, &first, &second);
            float turned = g;
            rows->adapt(&steps[k], &m, &v, &turned, 1);
            assert_near(first, m);
            assert_near(second, v);
            assert_near(wanted, turned);
            assert_int_equal(rows->adapt_select(&steps[k], &m_too, &v_too, &residual, &shared, 1, 0.25F, 0, FIRST,
                                                &index, &value, NULL),
                             residual != 0);
            assert_true(m_too == m && v_too == v && residual == 0.25F + turned && shared == 0);
            assert_true(residual == 0 || (index == FIRST && value == residual));
        }
}

/* A second moment below zero, and one so small that its root is as good as none, come from no training. */
TEST(what_cannot_be_stays_finite)
{
    for (int level = 0; level < TW_ISA_LEVELS; level++) {
        const tw_kernels *kernels = tw_kernels_at((tw_isa_level)level);
        float m[TW_GROUP], v[TW_GROUP], g[TW_GROUP];
        for (size_t i = 0; i < TW_GROUP; i++) {
            m[i] = i % 2 ? 1e30F : -1e30F;
            v[i] = i % 3 ? 0 : -1e6F;
            g[i] = i % 5 ? 0 : 1e20F;
        }
        if (kernels) kernels->directions->adapt(&steps[0], m, v, g, TW_GROUP);
        for (size_t i = 0; kernels && i < TW_GROUP; i++)
            assert_true(fabsf(g[i]) <= TW_ADAM_LARGEST && v[i] <= TW_ADAM_LARGEST_SQUARE);
    }
}

static double within(double x, double most)
{
    return fmax(fmin(x, most), -most);
}

/* Every fifth element never had a gradient. Without divisors each is 1. */
TEST(what_is_shared_is_divided_before_or_after)
{
    const tw_directions_rows *rows = tw_kernels_at(TW_ISA_SCALAR)->directions;
    for (size_t k = 0; k < (size_t)4 * MOST; k++) {
        const tw_shared_step *s = &shared_steps[k % 2];
        float m = tw_bits_float(pattern(ORDINARY, k)), g = tw_bits_float(pattern(ORDINARY, k + 4 * MOST)), shared,
              next = 7, divisor = k % 5 ? fabsf(tw_bits_float(pattern(ORDINARY, k + 8 * MOST))) : 0, turned = g;
        const float *divisors = k % 4 < 2 ? &divisor : NULL;
        double by = divisors ? (double)divisor : 1, over = s->divides ? by : 1;
        rows->share(s, &m, divisors, &g, &shared, 1);
        rows->adopt(s, &next, divisors, &turned, 1, 0);
        if (by == 0) {
            assert_true(shared == 0 && next == 0 && turned == 0);
            continue;
        }
        double terms[] = {(double)s->kept * (double)m / over,
                          (double)s->fresh * within((double)g / over, (double)s->most)};
        assert_true(fabs(terms[0] + terms[1] - (double)shared) <= 4e-7 * (fabs(terms[0]) + fabs(terms[1])));
        assert_near((double)g * over, next);
        assert_near((double)s->correction * (double)g * over / by, turned);
    }
}

/* What arrived may be as large as a float is, and a divisor as small. */
TEST(what_is_adopted_stays_finite)
{
    for (int level = 0; level < TW_ISA_LEVELS; level++) {
        const tw_kernels *kernels = tw_kernels_at((tw_isa_level)level);
        float m[TW_GROUP], g[TW_GROUP], divisor[TW_GROUP];
        for (size_t i = 0; i < TW_GROUP; i++) {
            g[i] = i % 2 ? FLT_MAX : -FLT_MAX;
            divisor[i] = i % 3 ? 1e-30F : 1e30F;
        }
        if (kernels) kernels->directions->adopt(&shared_steps[1], m, divisor, g, TW_GROUP, 0);
        for (size_t i = 0; kernels && i < TW_GROUP; i++)
            assert_true(fabsf(m[i]) <= TW_ADAM_LARGEST && fabsf(g[i]) <= TW_ADAM_LARGEST);
    }
}

RUN_TESTS(NULL, NULL)
