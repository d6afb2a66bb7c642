/* The reference against its definition: formulas and searches written out here. */
#include "support.h"

enum { SAMPLE = 1000 };

static void fill(float *x, content kind, size_t from)
{
    for (size_t i = 0; i < SAMPLE; i++) x[i] = tw_bits_float(pattern(kind, from + i));
}

static void assert_same_float(float expected, float actual)
{
    assert_true(alike(tw_float_bits(expected), tw_float_bits(actual), 1));
}

/* The list is what a look at every element of v gives, in order. */
static void assert_list(const float *v, float threshold, size_t count, const uint32_t *index, const float *value)
{
    size_t found = 0;
    for (size_t i = 0; i < SAMPLE; i++) {
        if (!(v[i] > threshold || v[i] < -threshold)) continue;
        assert_true(found < count);
        assert_int_equal(index[found], FIRST + i);
        assert_int_equal(tw_float_bits(value[found]), tw_float_bits(v[i]));
        found++;
    }
    assert_int_equal(found, count);
}

static void assert_zeros(const float *x)
{
    for (size_t i = 0; i < SAMPLE; i++) assert_int_equal(tw_float_bits(x[i]), 0);
}

TEST(momentum_is_its_formula)
{
    const tw_kernels *kernels = tw_kernels_at(TW_ISA_SCALAR);
    float u[SAMPLE], v[SAMPLE], g[SAMPLE], cleared[SAMPLE], old_u[SAMPLE], old_v[SAMPLE], value[SAMPLE];
    uint32_t index[SAMPLE];
    for (size_t k = 0; k < PROBLEMS; k++) {
        const problem *p = &problems[k];
        fill(u, SPECIAL, 0);
        fill(v, SPECIAL, SAMPLE);
        fill(g, SPECIAL, 2 * SAMPLE);
        memcpy(old_u, u, sizeof u);
        memcpy(old_v, v, sizeof v);
        memcpy(cleared, g, sizeof g);
        size_t count = kernels->momentum_select(u, v, cleared, SAMPLE, p->a, p->m, p->nesterov, p->threshold, FIRST,
                                                index, value, NULL);
        assert_zeros(cleared);
        for (size_t i = 0; i < SAMPLE; i++) {
            float product = p->a * g[i], new_u = p->m * old_u[i] + product;
            assert_same_float(new_u, u[i]);
            assert_same_float(old_v[i] + (p->nesterov ? p->m * new_u + product : new_u), v[i]);
        }
        assert_list(v, p->threshold, count, index, value);
    }
}

/* Whoever looks stops before the first group that has a loud element, wherever in it; what stands before it is as if
 * there were no more, the rest as it was. */
TEST(looking_stops_before_a_loud_group)
{
    const tw_kernels *kernels = tw_kernels_at(TW_ISA_SCALAR);
    static const float loud[] = {TW_LOUD, -TW_LOUD, FLT_MAX, INFINITY, -INFINITY, NAN};
    float x[3][SAMPLE], quiet[3][SAMPLE], value[SAMPLE];
    uint32_t index[SAMPLE];
    for (size_t at = 0; at <= SAMPLE; at++)
        for (size_t k = 0; k < 2 * PROBLEMS; k++) {
            const problem *p = &problems[k / 2];
            size_t done, end = at == SAMPLE ? SAMPLE : at / TW_GROUP * TW_GROUP;
            for (size_t a = 0; a < 3; a++) fill(x[a], ORDINARY, a * SAMPLE);
            if (at < SAMPLE) x[2][at] = loud[(at + k) % 6];
            memcpy(quiet, x, sizeof x);
            size_t count =
                k % 2 ? kernels->accumulate_select(x[1], x[2], SAMPLE, p->a, p->threshold, FIRST, index, value, &done)
                      : kernels->momentum_select(x[0], x[1], x[2], SAMPLE, p->a, p->m, p->nesterov, p->threshold, FIRST,
                                                 index, value, &done);
            assert_int_equal(done, end);
            size_t before = k % 2 ? kernels->accumulate_select(quiet[1], quiet[2], end, p->a, p->threshold, FIRST,
                                                               index, value, NULL)
                                  : kernels->momentum_select(quiet[0], quiet[1], quiet[2], end, p->a, p->m, p->nesterov,
                                                             p->threshold, FIRST, index, value, NULL);
            assert_int_equal(count, before);
            assert_memory_equal(x, quiet, sizeof x);
        }
}

/* Quotients, and a step along the velocity. */
TEST(simple_rows_are_their_formulas)
{
    const tw_kernels *kernels = tw_kernels_at(TW_ISA_SCALAR);
    float x[SAMPLE], y[SAMPLE], quotient[SAMPLE], v[SAMPLE], g[SAMPLE];
    fill(x, SPECIAL, 0);
    fill(y, SPECIAL, SAMPLE);
    for (size_t k = 0; k < PROBLEMS; k++) {
        const problem *p = &problems[k];
        memcpy(quotient, x, sizeof quotient);
        memcpy(v, x, sizeof v);
        memcpy(g, y, sizeof g);
        kernels->divide(quotient, p->a, SAMPLE);
        kernels->velocity(v, g, SAMPLE, p->m, p->nesterov);
        for (size_t i = 0; i < SAMPLE; i++) {
            float carried = p->m * x[i], now = carried + y[i], ahead = p->m * now;
            assert_same_float(x[i] / p->a, quotient[i]);
            assert_same_float(now, v[i]);
            assert_same_float(p->nesterov ? ahead + y[i] : now, g[i]);
        }
    }
}

static uint32_t folded_word(float x)
{
    return tw_float_bits(x) ^ tw_float_bits(x) >> 16;
}

/* A group of four counts in the second sum as often as there are groups from it on. */
static void assert_digest(const float *x, size_t n, const tw_digest *digest)
{
    const size_t groups = (n + 3) / 4;
    for (size_t lane = 0; lane < 4; lane++) {
        uint32_t first = 0, second = 0;
        for (size_t i = lane; i < n; i += 4) {
            first += folded_word(x[i]);
            second += (uint32_t)(groups - i / 4) * folded_word(x[i]);
        }
        assert_int_equal(first, digest->first[lane]);
        assert_int_equal(second, digest->second[lane]);
    }
}

static float products(const float *a, const float *b, size_t lane)
{
    float sum = 0;
    for (size_t i = lane; i < SAMPLE; i += 16) sum += a[i] * b[i];
    return sum;
}

TEST(a_descent_is_its_formula)
{
    for (size_t k = 0; k < PROBLEMS; k++) {
        const problem *p = &problems[k];
        tw_descent descent = {.rate = p->a, .momentum = p->m, .nesterov = p->nesterov};
        float mean[SAMPLE], before[SAMPLE], v[SAMPLE], start[SAMPLE], theta[SAMPLE], weights[SAMPLE];
        fill(mean, ORDINARY, 0);
        fill(before, ORDINARY, SAMPLE);
        fill(start, ORDINARY, 2 * SAMPLE);
        memcpy(v, before, sizeof v);
        memcpy(theta, start, sizeof theta);
        tw_kernels_at(TW_ISA_SCALAR)->descent->descend(&descent, mean, v, theta, weights, SAMPLE);
        for (size_t i = 0; i < SAMPLE; i++) {
            float carried = p->m * before[i], now = carried + mean[i], ahead = p->m * now, along = mean[i] + ahead;
            float step = p->a * (p->nesterov ? along : now);
            assert_same_float(now, v[i]);
            assert_same_float(start[i] - step, theta[i]);
        }
        assert_memory_equal(theta, weights, sizeof weights);
        for (size_t lane = 0; lane < 16; lane++) {
            assert_same_float(products(mean, mean, lane), descent.mean[lane]);
            assert_same_float(products(before, before, lane), descent.before[lane]);
            assert_same_float(products(mean, before, lane), descent.both[lane]);
        }
        assert_digest(theta, SAMPLE, &descent.theta);
        assert_digest(v, SAMPLE, &descent.v);
    }
}

TEST(a_digest_has_no_more_than_is_there)
{
    float x[SAMPLE];
    fill(x, ANY_BITS, 0);
    for (size_t n = 0; n < 40; n++) {
        tw_digest digest = {{0}, {0}};
        tw_kernels_at(TW_ISA_SCALAR)->descent->digest(&digest, x, n);
        assert_digest(x, n, &digest);
    }
}

/* What partial sum `lane` holds once the sixteen are folded down to `width`. */
static double folded(const float *x, size_t n, size_t lane, size_t width)
{
    if (width < 16) return folded(x, n, lane, 2 * width) + folded(x, n, lane + width, 2 * width);
    double sum = 0;
    for (size_t i = lane; i < n; i += 16) sum += (double)x[i] * (double)x[i];
    return sum;
}

/* In pieces of which each begins at a multiple of 16, for one partner and for several. */
TEST(drawing_is_its_formula)
{
    enum { PARTNERS = 3 };
    static const size_t pieces[] = {0, 16, 64, 80, SAMPLE};
    const tw_averaging_rows *rows = tw_kernels_at(TW_ISA_SCALAR)->averaging;
    float theirs[PARTNERS][SAMPLE], sent[SAMPLE], old[SAMPLE], sum[SAMPLE], alone[SAMPLE], c[SAMPLE];
    const float *lists[PARTNERS] = {theirs[0], theirs[1], theirs[2]};
    fill(sent, ORDINARY, 0);
    fill(old, ORDINARY, SAMPLE);
    for (size_t p = 0; p < PARTNERS; p++) fill(theirs[p], ORDINARY, (2 + p) * SAMPLE);
    for (size_t partners = 1; partners <= PARTNERS; partners++) {
        tw_average added = {.theirs = lists, .partners = partners, .sent = sent, .share = 0.3f}, set = added;
        memcpy(sum, old, sizeof sum);
        for (size_t p = 0; p + 1 < sizeof pieces / sizeof *pieces; p++) {
            rows->draw(&added, sum, pieces[p], pieces[p + 1] - pieces[p], 1);
            rows->draw(&set, alone, pieces[p], pieces[p + 1] - pieces[p], 0);
        }
        for (size_t i = 0; i < SAMPLE; i++) {
            c[i] = theirs[0][i] - sent[i];
            for (size_t p = 1; p < partners; p++) {
                float term = theirs[p][i] - sent[i];
                c[i] += term;
            }
            c[i] *= 0.3f;
            assert_same_float(c[i], alone[i]);
            assert_same_float(old[i] + c[i], sum[i]);
        }
        assert_same_number(folded(c, SAMPLE, 0, 1), tw_kernels_fold(added.squares), "squares");
        assert_same_number(folded(c, SAMPLE, 0, 1), tw_kernels_fold(set.squares), "squares");
    }
}

TEST(selection_is_brute_force)
{
    const tw_kernels *kernels = tw_kernels_at(TW_ISA_SCALAR);
    float v[SAMPLE], g[SAMPLE], cleared[SAMPLE], old[SAMPLE], value[SAMPLE];
    uint32_t index[SAMPLE];
    for (size_t k = 0; k < PROBLEMS; k++) {
        const problem *p = &problems[k];
        fill(v, SPECIAL, 3 * SAMPLE);
        fill(g, SPECIAL, 4 * SAMPLE);
        memcpy(old, v, sizeof v);
        memcpy(cleared, g, sizeof g);
        size_t count = kernels->select(v, SAMPLE, p->threshold, FIRST, index, value);
        assert_memory_equal(v, old, sizeof v);
        assert_list(v, p->threshold, count, index, value);
        count = kernels->accumulate_select(v, cleared, SAMPLE, p->a, p->threshold, FIRST, index, value, NULL);
        assert_zeros(cleared);
        for (size_t i = 0; i < SAMPLE; i++) assert_same_float(old[i] + p->a * g[i], v[i]);
        assert_list(v, p->threshold, count, index, value);
    }
}

TEST(sum_squares_folds_sixteen_sums)
{
    float x[SAMPLE];
    fill(x, ORDINARY, 0);
    for (size_t n = 0; n <= SAMPLE; n++)
        assert_same_number(folded(x, n, 0, 1), tw_kernels_at(TW_ISA_SCALAR)->sum_squares(x, n), "sum_squares");
}

TEST(squares_are_added_part_by_part)
{
    const tw_kernels *kernels = tw_kernels_at(TW_ISA_SCALAR);
    float x[SAMPLE];
    fill(x, ORDINARY, 0);
    for (size_t first = 0; first <= SAMPLE; first += 16) {
        double partial[16] = {0};
        kernels->add_squares(partial, x, first);
        kernels->add_squares(partial, x + first, SAMPLE - first);
        assert_same_number(kernels->sum_squares(x, SAMPLE), tw_kernels_fold(partial), "add_squares");
    }
}

/* The format that a row of halves.h rounds to. */
typedef struct format {
    const tw_half_rows *rows;
    uint16_t (*to)(float x);
    float (*from)(uint16_t half);
} format;

static void check_shares(const format *f, float a, float most, content kind)
{
    float v[SAMPLE], g[SAMPLE], old[SAMPLE];
    uint16_t share[SAMPLE], kept[SAMPLE];
    fill(v, kind, 0);
    fill(g, kind, SAMPLE);
    memcpy(old, v, sizeof v);
    f->rows->share(share, g, SAMPLE, a);
    f->rows->share_and_keep(kept, v, g, SAMPLE, a, most);
    for (size_t i = 0; i < SAMPLE; i++) {
        float step = a * g[i], sum = old[i] + step;
        assert_true(f->to(step) == share[i] || isnan(step));
        if (!isfinite(sum)) continue;
        assert_int_equal(f->to(sum > most ? most : sum < -most ? -most : sum), kept[i]);
        assert_same_float(sum - f->from(kept[i]), v[i]);
    }
}

/* Nothing is lost: what was there is what was sent and what is left, in double, where the sum is exact. */
static void check_conservation(const format *f)
{
    float v[SAMPLE], g[SAMPLE] = {0}, old[SAMPLE];
    uint16_t sent[SAMPLE];
    fill(v, ORDINARY, 0);
    memcpy(old, v, sizeof v);
    f->rows->share_and_keep(sent, v, g, SAMPLE, 1, INFINITY);
    for (size_t i = 0; i < SAMPLE; i++) assert_true((double)f->from(sent[i]) + v[i] == old[i]);
}

TEST(shares_are_scaled_cut_and_rounded)
{
    const format formats[] = {{tw_kernels_at(TW_ISA_SCALAR)->fp16, tw_to_fp16, tw_from_fp16},
                              {tw_kernels_at(TW_ISA_SCALAR)->bf16, tw_to_bf16, tw_from_bf16}};
    for (size_t k = 0; k < 2; k++) {
        for (int kind = 0; kind < CONTENTS; kind++) {
            check_shares(&formats[k], 1, INFINITY, (content)kind);
            check_shares(&formats[k], 1 / 3.0f, 0.25f, (content)kind);
            check_shares(&formats[k], -0x1p20f, 21834, (content)kind);
        }
        check_conservation(&formats[k]);
    }
}

RUN_TESTS(NULL, NULL)
