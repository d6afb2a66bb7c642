/* The rows of Adam's direction: against Adam in double, and every level against the reference, bit for bit. */
#include "support.h"

enum { MOST = 300, SHIFTS = 16 };

static const tw_adam_step steps[] = {
    {.beta1 = 0.9F,
     .fresh = 0.1F,
     .beta2 = 0.999F,
     .fresh_square = 0.001F,
     .correction = 10,
     .correct_root = 30,
     .epsilon = 1e-8F},
    {.beta1 = 0.75F,
     .fresh = 0.25F,
     .beta2 = 0.9375F,
     .fresh_square = 0.0625F,
     .correction = 1,
     .correct_root = 2,
     .epsilon = 0x1p-20F,
     .nesterov = 1},
};
enum { STEPS = sizeof steps / sizeof *steps };

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

static void the_reference_is_adam(void **state)
{
    (void)state;
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
static void what_cannot_be_stays_finite(void **state)
{
    (void)state;
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

/* What a row works on. */
typedef struct arrays {
    float m[MOST + SHIFTS], v[MOST + SHIFTS], residual[MOST + SHIFTS], g[MOST + SHIFTS], value[MOST];
    uint32_t index[MOST];
    size_t count, done;
} arrays;

static void fill(arrays *x, content kept, content gradient)
{
    memset(x, 0, sizeof *x);
    for (size_t i = 0; i < MOST + SHIFTS; i++) {
        x->m[i] = tw_bits_float(pattern(kept, i));
        x->v[i] = tw_bits_float(pattern(kept, i + MOST));
        x->residual[i] = tw_bits_float(pattern(kept, i + 2 * MOST));
        x->g[i] = tw_bits_float(pattern(gradient, i));
    }
}

static void assert_alike(const arrays *expected, const arrays *actual)
{
    assert_int_equal(actual->count, expected->count);
    assert_int_equal(actual->done, expected->done);
    assert_memory_equal(actual->index, expected->index, expected->count * sizeof *expected->index);
    for (size_t i = 0; i < MOST + SHIFTS; i++) {
        assert_true(alike(tw_float_bits(expected->m[i]), tw_float_bits(actual->m[i]), 1));
        assert_true(alike(tw_float_bits(expected->v[i]), tw_float_bits(actual->v[i]), 1));
        assert_true(alike(tw_float_bits(expected->residual[i]), tw_float_bits(actual->residual[i]), 1));
        assert_true(alike(tw_float_bits(expected->g[i]), tw_float_bits(actual->g[i]), 1));
    }
    for (size_t i = 0; i < expected->count; i++)
        assert_true(alike(tw_float_bits(expected->value[i]), tw_float_bits(actual->value[i]), 1));
}

static void select_into(const tw_kernels *kernels, const problem *p, size_t shift, int looks, arrays *x)
{
    x->count = kernels->directions->adapt_select(&steps[p->nesterov], x->m + shift, x->v + shift, x->residual + shift,
                                                 x->g + shift, p->n, p->a, p->threshold, FIRST, x->index, x->value,
                                                 looks ? &x->done : NULL);
}

static void check_level(const tw_kernels *kernels, const problem *p, size_t shift, content kept, content gradient)
{
    static arrays expected, actual;
    const tw_kernels *scalar = tw_kernels_at(TW_ISA_SCALAR);
    for (int looks = 0; looks < 2; looks++) {
        fill(&expected, kept, gradient);
        fill(&actual, kept, gradient);
        select_into(scalar, p, shift, looks, &expected);
        select_into(kernels, p, shift, looks, &actual);
        assert_alike(&expected, &actual);
    }
    fill(&expected, kept, gradient);
    fill(&actual, kept, gradient);
    scalar->directions->adapt(&steps[p->nesterov], expected.m + shift, expected.v + shift, expected.g + shift, p->n);
    kernels->directions->adapt(&steps[p->nesterov], actual.m + shift, actual.v + shift, actual.g + shift, p->n);
    assert_alike(&expected, &actual);
}

static void levels_agree_on_every_size(void **state)
{
    (void)state;
    for (int level = TW_ISA_SCALAR + 1; level < TW_ISA_LEVELS; level++)
        for (size_t n = 0; n <= MOST && tw_kernels_at((tw_isa_level)level); n += stride())
            for (int kind = 0; kind < CONTENTS; kind++) {
                problem p = problems[n % PROBLEMS];
                p.n = n;
                check_level(tw_kernels_at((tw_isa_level)level), &p, n % SHIFTS, (content)kind, ORDINARY);
                check_level(tw_kernels_at((tw_isa_level)level), &p, n % SHIFTS, ORDINARY, (content)kind);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_is_adam),
        cmocka_unit_test(what_cannot_be_stays_finite),
        cmocka_unit_test(levels_agree_on_every_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
