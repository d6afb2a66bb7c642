/* The rows that keep bf16, rounded at random: the rounding by all of its noise, the rows by hand, the levels by the
 * reference. */
#include "support.h"

enum { MOST = 300, START = 64 * 15625 };

static const float values[] = {0x1.234566p0F, -0x1.fffffep-3F, 0x1.0001p20F, -0x1.7ffffep-126F,
                               0x1.8p-149F,   0x1.fffffep9F,   1.0F,         -0x1.02p100F,
                               0.0F,          0x1p-133F};
enum { VALUES = sizeof values / sizeof *values };

/* Multiples of a bf16's last place that double adds up without rounding. */
TEST(the_mean_over_all_noise_is_the_value)
{
    for (size_t i = 0; i < VALUES; i++) {
        double sum = 0;
        int is_exact = tw_from_bf16(tw_to_bf16(values[i])) == values[i];
        for (uint32_t noise = 0; noise < 65536; noise++) {
            float kept = tw_from_bf16(tw_to_bf16_random(values[i], noise));
            sum += kept;
            if (is_exact) assert_true(kept == values[i]);
        }
        assert_true(sum == 65536.0 * values[i]);
    }
}

TEST(what_is_not_finite_stays_so)
{
    for (uint32_t noise = 0; noise < 65536; noise++) {
        assert_true(tw_from_bf16(tw_to_bf16_random(INFINITY, noise)) == INFINITY);
        assert_true(tw_from_bf16(tw_to_bf16_random(-INFINITY, noise)) == -INFINITY);
        assert_true(isnan(tw_from_bf16(tw_to_bf16_random(tw_bits_float(0x7FFFFFFFu), noise))));
        assert_true(isnan(tw_from_bf16(tw_to_bf16_random(tw_bits_float(0x7F800001u), noise))));
    }
}

/* What a row works on. */
typedef struct arrays {
    uint16_t u[MOST], v[MOST];
    float second[MOST], g[MOST], value[MOST];
    uint32_t index[MOST];
    tw_moments moments;
    size_t count, done;
} arrays;

/* A gradient's NaN never comes so far. */
static void fill(arrays *x, content kept, content gradient)
{
    memset(x, 0, sizeof *x);
    for (size_t i = 0; i < MOST; i++) {
        float g = tw_bits_float(pattern(gradient, i));
        x->u[i] = (uint16_t)(pattern(kept, i) >> 16);
        x->v[i] = (uint16_t)(pattern(kept, i + MOST) >> 16);
        x->second[i] = fabsf(tw_bits_float(pattern(kept, i + 2 * MOST)));
        x->g[i] = isnan(g) ? 1 : g;
    }
}

typedef enum row { MOMENTUM, WITH_MOMENTS, ADAPT, ACCUMULATE, SELECT, SCALE, ROWS } row;

static const tw_noise noise = {{0x12345678u, 0x9ABCDEF0u}, START};

static void run(const tw_kernels *kernels, row which, const problem *p, arrays *x, int looks)
{
    const tw_rounded_rows *rows = kernels->rounded;
    size_t *done = looks ? &x->done : NULL;
    if (which == MOMENTUM || which == WITH_MOMENTS)
        x->count = rows->momentum_select(which == WITH_MOMENTS ? &x->moments : NULL, x->u, x->v, x->g, p->n, p->a, p->m,
                                         p->nesterov, p->threshold, noise, x->index, x->value, done);
    if (which == ADAPT)
        x->count = rows->adapt_select(&steps[p->nesterov], x->u, x->second, x->v, x->g, p->n, p->a, p->threshold, noise,
                                      x->index, x->value, done);
    if (which == ACCUMULATE)
        x->count = rows->accumulate_select(x->v, x->g, p->n, p->a, p->threshold, noise, x->index, x->value, done);
    if (which == SELECT) x->count = rows->select(x->v, p->n, p->threshold, START, x->index, x->value);
    if (which == SCALE) rows->scale(x->v, p->a, p->n, noise);
}

static void assert_alike(const arrays *expected, const arrays *actual)
{
    assert_int_equal(actual->count, expected->count);
    assert_int_equal(actual->done, expected->done);
    assert_memory_equal(actual->index, expected->index, expected->count * sizeof *expected->index);
    assert_memory_equal(actual->g, expected->g, sizeof actual->g);
    for (size_t i = 0; i < MOST; i++) {
        assert_true(alike((uint32_t)expected->u[i] << 16, (uint32_t)actual->u[i] << 16, 1));
        assert_true(alike((uint32_t)expected->v[i] << 16, (uint32_t)actual->v[i] << 16, 1));
        assert_true(alike(tw_float_bits(expected->second[i]), tw_float_bits(actual->second[i]), 1));
        if (i < expected->count) assert_true(expected->value[i] == actual->value[i]);
    }
    for (int k = 0; k < 16; k++) {
        assert_same_number(expected->moments.sum[k], actual->moments.sum[k], "sum");
        assert_same_number(expected->moments.squares[k], actual->moments.squares[k], "squares");
    }
}

static void compare(const tw_kernels *kernels, row which, const problem *p, content kept, content gradient)
{
    arrays expected, actual;
    for (int looks = 0; looks < 2; looks++) {
        fill(&expected, kept, gradient);
        fill(&actual, kept, gradient);
        run(tw_kernels_at(TW_ISA_SCALAR), which, p, &expected, looks);
        run(kernels, which, p, &actual, looks);
        assert_alike(&expected, &actual);
    }
}

TEST(levels_agree_on_every_size)
{
    for (int level = TW_ISA_SCALAR + 1; level < TW_ISA_LEVELS; level++)
        for (size_t n = 0; n <= MOST && tw_kernels_at((tw_isa_level)level); n += stride())
            for (int which = 0; which < ROWS; which++)
                for (int kind = 0; kind < CONTENTS; kind++) {
                    problem p = problems[(n + (size_t)kind) % PROBLEMS];
                    p.n = n;
                    compare(tw_kernels_at((tw_isa_level)level), (row)which, &p, (content)kind, ORDINARY);
                    compare(tw_kernels_at((tw_isa_level)level), (row)which, &p, ORDINARY, (content)kind);
                }
}

/* What element i adds to v, and its new u, in fp32. */
static float added(row which, const problem *p, const arrays *before, size_t i, float *u, float *second)
{
    float step = p->a * before->g[i];
    *u = tw_from_bf16(before->u[i]);
    *second = before->second[i];
    if (which == ADAPT) return tw_adam_take(&steps[p->nesterov], step, u, second);
    *u = p->m * *u + step;
    return p->nesterov ? p->m * *u + step : *u;
}

static void assert_recursion(row which, const problem *p)
{
    arrays before, x;
    size_t listed = 0;
    fill(&before, ORDINARY, ORDINARY);
    fill(&x, ORDINARY, ORDINARY);
    run(tw_kernels_best(), which, p, &x, 0);
    for (size_t i = 0; i < MOST; i++) {
        uint32_t bits = tw_noise_at(&noise, i);
        float u, second, sum = tw_from_bf16(before.v[i]) + added(which, p, &before, i, &u, &second);
        assert_int_equal(x.u[i], tw_to_bf16_random(u, bits & 0xFFFF));
        assert_int_equal(x.v[i], tw_to_bf16_random(sum, bits >> 16));
        assert_true(x.g[i] == 0 && x.second[i] == second);
        if (!(fabsf(tw_from_bf16(x.v[i])) > p->threshold)) continue;
        assert_int_equal(x.index[listed], START + i);
        assert_true(x.value[listed++] == tw_from_bf16(x.v[i]));
    }
    assert_int_equal(x.count, listed);
}

/* The recursion, an element at a time, with the noise that the header promises. */
TEST(the_rows_are_the_recursion)
{
    for (size_t k = 0; k < PROBLEMS; k++) {
        problem p = problems[k];
        p.n = MOST;
        assert_recursion(MOMENTUM, &p);
        assert_recursion(ADAPT, &p);
    }
}

/* A sum a quarter of the way to the next is kept there once in four times, by u's noise as by v's, and by both at
 * once as seldom as two that do not know of each other. */
TEST(rounding_adds_up_to_nothing)
{
    enum { N = 1 << 18 };
    uint16_t *u = calloc(N, sizeof *u), *v = calloc(N, sizeof *v);
    float *g = calloc(N, sizeof *g);
    size_t up = 0, velocity_up = 0, both = 0, listed;
    uint32_t index[1];
    float value[1];
    for (size_t i = 0; i < N; i++) g[i] = 1 + 0x1p-9F;
    listed = tw_kernels_best()->rounded->momentum_select(NULL, u, v, g, N, 1, 0.9F, 0, 2, noise, index, value, NULL);
    assert_int_equal(listed, 0);
    for (size_t i = 0; i < N; i++) {
        int is_up = v[i] != 0x3F80, is_velocity_up = u[i] != 0x3F80;
        up += (size_t)is_up;
        velocity_up += (size_t)is_velocity_up;
        both += (size_t)(is_up && is_velocity_up);
    }
    assert_true(fabs((double)up - N / 4.0) < 5 * sqrt(N * 0.1875)); /* a quarter: 2^-9 of 2^-7; five deviations */
    assert_true(fabs((double)velocity_up - N / 4.0) < 5 * sqrt(N * 0.1875));
    assert_true(fabs((double)both - N / 16.0) < 5 * sqrt(N / 16.0));
    free(u);
    free(v);
    free(g);
}

RUN_TESTS(NULL, NULL)
