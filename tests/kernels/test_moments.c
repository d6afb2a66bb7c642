/* The moments' rows against the reference, bit for bit, and against their definition. */
#include "support.h"

enum { MOST = 300, SHIFTS = 16 };

static void assert_same_sums(const tw_moments *expected, const tw_moments *actual, const char *what)
{
    for (int k = 0; k < 16; k++) {
        assert_same_number(expected->sum[k], actual->sum[k], what);
        assert_same_number(expected->squares[k], actual->squares[k], what);
    }
}

TEST(levels_agree_on_every_size_and_alignment)
{
    float x[MOST + SHIFTS];
    for (int kind = 0; kind < CONTENTS; kind++) {
        for (size_t i = 0; i < MOST + SHIFTS; i++) x[i] = tw_bits_float(pattern((content)kind, i));
        for (int level = TW_ISA_SCALAR + 1; level < TW_ISA_LEVELS; level++) {
            const tw_kernels *kernels = tw_kernels_at((tw_isa_level)level);
            for (size_t n = 0; kernels && n <= MOST; n++)
                for (size_t shift = 0; shift < SHIFTS; shift++) {
                    tw_moments expected = {.sum = {1, 2}, .squares = {[15] = 3}}, actual = expected;
                    tw_kernels_at(TW_ISA_SCALAR)->moments->add(&expected, x + shift, n);
                    kernels->moments->add(&actual, x + shift, n);
                    assert_same_sums(&expected, &actual, tw_isa_name((tw_isa_level)level));
                }
        }
    }
}

/* One problem for one level: u, v, the lists and the sums, as momentum_select and then add leave them. */
static void check_fused(const tw_kernels *kernels, const problem *p, content kind, content gradient)
{
    float u[2][MOST], v[2][MOST], g[2][MOST], value[2][MOST] = {{0}};
    uint32_t index[2][MOST] = {{0}};
    tw_moments sums[2] = {{.sum = {[3] = 1}}, {.sum = {[3] = 1}}};
    for (size_t i = 0; i < MOST; i++) {
        u[0][i] = u[1][i] = tw_bits_float(pattern(kind, i));
        v[0][i] = v[1][i] = tw_bits_float(pattern(kind, i + MOST));
        g[0][i] = g[1][i] = tw_bits_float(pattern(gradient, i));
    }
    size_t done[2] = {p->n, p->n};
    int looks = gradient != ORDINARY;
    const tw_kernels *scalar = tw_kernels_at(TW_ISA_SCALAR);
    size_t expected = scalar->momentum_select(u[0], v[0], g[0], p->n, p->a, p->m, p->nesterov, p->threshold, FIRST,
                                              index[0], value[0], looks ? &done[0] : NULL);
    scalar->moments->add(&sums[0], v[0], done[0]);
    size_t count = kernels->moments->momentum_select(&sums[1], u[1], v[1], g[1], p->n, p->a, p->m, p->nesterov,
                                                     p->threshold, FIRST, index[1], value[1], looks ? &done[1] : NULL);
    assert_int_equal(count, expected);
    assert_int_equal(done[1], done[0]);
    assert_memory_equal(index[0], index[1], count * sizeof **index);
    assert_memory_equal(g[0], g[1], sizeof g[0]);
    for (size_t i = 0; i < MOST; i++) {
        assert_true(alike(tw_float_bits(u[0][i]), tw_float_bits(u[1][i]), 1));
        assert_true(alike(tw_float_bits(v[0][i]), tw_float_bits(v[1][i]), 1));
        if (i < count) assert_true(alike(tw_float_bits(value[0][i]), tw_float_bits(value[1][i]), 1));
    }
    assert_same_sums(&sums[0], &sums[1], "momentum_select");
}

TEST(selecting_takes_the_moments)
{
    for (int level = 0; level < TW_ISA_LEVELS; level++)
        for (size_t n = 0; n <= MOST && tw_kernels_at((tw_isa_level)level); n++)
            for (int kind = 0; kind < CONTENTS; kind++) {
                problem p = problems[n % PROBLEMS];
                p.n = n;
                check_fused(tw_kernels_at((tw_isa_level)level), &p, (content)kind, ORDINARY);
                check_fused(tw_kernels_at((tw_isa_level)level), &p, ORDINARY, (content)kind);
            }
}

TEST(pieces_add_up)
{
    float x[MOST];
    tw_moments whole = {0}, pieces = {0};
    for (size_t i = 0; i < MOST; i++) x[i] = tw_bits_float(pattern(ORDINARY, i));
    tw_kernels_best()->moments->add(&whole, x, MOST);
    tw_kernels_best()->moments->add(&pieces, x, 64);
    tw_kernels_best()->moments->add(&pieces, x + 64, 16);
    tw_kernels_best()->moments->add(&pieces, x + 80, MOST - 80);
    assert_same_sums(&whole, &pieces, "pieces");
}

/* 0 .. n-1: mean (n-1)/2, variance (n^2-1)/12, all exact in double. */
TEST(finish_gives_mean_and_deviation)
{
    float x[MOST], same[MOST];
    for (size_t n = 1; n <= MOST; n++) {
        tw_moments moments = {0}, constant = {0};
        double mean, deviation;
        x[n - 1] = (float)(n - 1);
        same[n - 1] = 0.1F;
        tw_kernels_best()->moments->add(&moments, x, n);
        tw_moments_finish(&moments, n, &mean, &deviation);
        assert_true(mean == (double)(n - 1) / 2);
        assert_true(fabs(deviation * deviation - ((double)n * (double)n - 1) / 12) < 1e-9);
        tw_kernels_best()->moments->add(&constant, same, n);
        tw_moments_finish(&constant, n, &mean, &deviation);
        assert_true(deviation >= 0 && deviation < 1e-8); /* never the root of a negative rounding error */
    }
}

RUN_TESTS(NULL, NULL)
