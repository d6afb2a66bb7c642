/* demo: the golden values of its equations, a second implementation as the paper writes it, and the cosine transform
 * that both rest on against its formula. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cosine.h"
#include "gradients.h"
#include "support/assert.h"

#define EXACT "values=fp32"

/* ---- the transform ----------------------------------------------------------------------------------------------- */

enum { LONGEST = 64 };

static double weight_of(size_t k, size_t i, size_t n)
{
    return sqrt((k ? 2.0 : 1.0) / (double)n) * cos(acos(-1) * (2.0 * (double)i + 1) * (double)k / (2.0 * (double)n));
}

/* D_h x D_w^T by its formula, or the inverse. */
static void transform(const double *x, size_t height, size_t width, int inverse, double *c)
{
    for (size_t k = 0; k < height; k++)
        for (size_t l = 0; l < width; l++) {
            double sum = 0;
            for (size_t i = 0; i < height; i++)
                for (size_t j = 0; j < width; j++)
                    sum += x[i * width + j] * (inverse ? weight_of(i, k, height) * weight_of(j, l, width)
                                                       : weight_of(k, i, height) * weight_of(l, j, width));
            c[k * width + l] = sum;
        }
}

TEST(transforms_as_the_formula_says)
{
    static const size_t sides[][2] = {{1, 1}, {1, 8}, {7, 1}, {2, 3}, {4, 2}, {5, 13}, {26, 1}, {16, 31}, {64, 10}};
    tw_cosine cosine = {0};
    assert_ok(tw_cosine_create(&cosine, LONGEST));
    for (size_t s = 0; s < sizeof sides / sizeof *sides; s++) {
        size_t height = sides[s][0], width = sides[s][1], n = height * width;
        float x[1024], before[1024];
        double exact[1024], wanted[1024], squares = 0, came = 0;
        assert_ok(tw_cosine_know(&cosine, height));
        assert_ok(tw_cosine_know(&cosine, width));
        for (size_t i = 0; i < n; i++) exact[i] = (double)(x[i] = before[i] = gradient_draw(s, 0, 0, 0, i));
        transform(exact, height, width, 0, wanted);
        tw_cosine_forward(&cosine, x, height, width);
        for (size_t i = 0; i < n; i++) {
            assert_near(x[i], wanted[i], 2e-5);
            squares += exact[i] * exact[i];
            came += (double)x[i] * (double)x[i];
        }
        assert_near(came / squares, 1, 1e-6);
        tw_cosine_inverse(&cosine, x, height, width);
        for (size_t i = 0; i < n; i++) assert_near(x[i], before[i], 2e-5);
    }
    tw_cosine_destroy(&cosine);
}

/* ---- golden values ----------------------------------------------------------------------------------------------- */

static float golden_gradient(int t, int i)
{
    return (float)((7 * i + 3 * t + 5) % 11 - 5) / 4;
}

static void read_momentum(const loopback *group, int rank, const char *key, size_t n, double *momentum)
{
    float *saved = calloc(n, sizeof *saved);
    assert_ok(loopback_saved(group->scheme[rank], key, n, saved));
    for (size_t i = 0; i < n; i++) momentum[i] = (double)saved[i];
    free(saved);
}

/* One tensor of eight, two coefficients of a block of eight, a rate of 0.1: of the published release. */
TEST(golden_values)
{
    enum { N = 8 };
    static const tw_tensor small[] = {{"w", 1, {N}}};
    const double kept[N] = {-.041673, -.012037, .012647, .055746, .050423, .053289, .021076, .010479};
    const double moved[N] = {.1, -.3, .1, -.1, .1, .1, .1, .1};
    double coefficients[N], delta[N], theta[N] = {0};
    loopback group;
    gradients g;
    group_create(&group, &g, "demo:chunk=64,k=16," EXACT, small, 1, 1);
    for (int t = 1; t <= 3; t++) {
        for (int i = 0; i < N; i++) g.rank[0][0][i] = golden_gradient(t, i);
        assert_false(group_step(&group, &g));
        for (int i = 0; i < N; i++) theta[i] -= 0.1 * (double)g.rank[0][0][i];
    }
    read_momentum(&group, 0, "coefficients64/w", N, coefficients);
    transform(coefficients, 1, N, 1, delta);
    for (int i = 0; i < N; i++) {
        assert_near(theta[i], moved[i], 1e-6);
        assert_near(0.1 * delta[i], kept[i], 1e-6);
    }
    group_destroy(&group, &g);
}

/* ---- a second implementation: the momentum is of elements, as in the paper --------------------------------------- */

enum { TENSORS = 3, RANKS = 3, MOST = 400, BLOCK = 16 };
static const tw_tensor table[TENSORS] = {{"blocks", 2, {12, 10}}, {"flat", 1, {42}}, {"filters", 3, {6, 4, 5}}};
static const size_t blocks[TENSORS][2] = {{4, 2}, {1, 3}, {3, 4}}; /* their sides: divisors up to the root of 16 */
enum { K = 5 };

typedef struct block_of {
    size_t first, height, width, columns;
} block_of;

static void fetch(const double *tensor, const block_of *b, double *dst)
{
    for (size_t r = 0; r < b->height; r++)
        for (size_t c = 0; c < b->width; c++) dst[r * b->width + c] = tensor[b->first + r * b->columns + c];
}

static void put(double *tensor, const block_of *b, const double *src)
{
    for (size_t r = 0; r < b->height; r++)
        for (size_t c = 0; c < b->width; c++) tensor[b->first + r * b->columns + c] = src[r * b->width + c];
}

/* Takes the largest coefficients of a block out of the momentum, and counts them for the mean. */
static void send_block(double *momentum, const block_of *b, double *sum, double *senders)
{
    double x[BLOCK] = {0}, c[BLOCK], sent[BLOCK] = {0};
    size_t n = b->height * b->width, wanted = (size_t)fmax(1, floor((double)n * K / BLOCK + 0.5));
    fetch(momentum, b, x);
    transform(x, b->height, b->width, 0, c);
    for (size_t j = 0; j < wanted; j++) {
        size_t best = 0;
        for (size_t i = 1; i < n; i++)
            if (fabs(c[i]) > fabs(c[best])) best = i;
        sent[best] = c[best];
        sum[best] += c[best];
        senders[best]++;
        c[best] = 0;
    }
    transform(sent, b->height, b->width, 1, c);
    for (size_t i = 0; i < n; i++) x[i] -= c[i];
    put(momentum, b, x);
}

/* A step of all ranks; `out` is the mean over the senders, or over all ranks. */
static void second_step(size_t t, double momenta[RANKS][MOST], gradients *g, double decay, int by_senders, double *out)
{
    size_t count = tw_tensor_count(&table[t]), rows = table[t].dims < 2 ? 1 : table[t].shape[0];
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < count; i++) momenta[r][i] = decay * momenta[r][i] + (double)g->rank[r][t][i];
    block_of b = {0, blocks[t][0], blocks[t][1], count / rows};
    for (size_t row = 0; row < rows; row += b.height)
        for (size_t column = 0; column < b.columns; column += b.width) {
            double sum[BLOCK] = {0}, senders[BLOCK] = {0}, mean[BLOCK];
            b.first = row * b.columns + column;
            for (int r = 0; r < RANKS; r++) send_block(momenta[r], &b, sum, senders);
            for (size_t i = 0; i < b.height * b.width; i++) sum[i] /= by_senders ? fmax(1, senders[i]) : RANKS;
            transform(sum, b.height, b.width, 1, mean);
            put(out, &b, mean);
        }
}

static void check_steps(const char *options, double decay, int by_senders, int signs)
{
    enum { STEPS = 50, RESTART = 20 };
    static double momenta[TENSORS][RANKS][MOST];
    char spec[128];
    loopback group;
    gradients g, given;
    memset(momenta, 0, sizeof momenta);
    snprintf(spec, sizeof spec, "demo:chunk=16,k=5," EXACT "%s", options);
    gradients_create(&given, table, TENSORS, RANKS);
    group_create(&group, &g, spec, table, TENSORS, RANKS);
    for (int step = 0; step < STEPS; step++) {
        gradients_draw(&g, 4, step, 0);
        gradients_draw(&given, 4, step, 0);
        if (step == RESTART) assert_ok(loopback_restart(&group, spec, table, TENSORS));
        assert_false(group_step(&group, &g));
        for (size_t t = 0; t < TENSORS; t++) {
            double out[MOST];
            second_step(t, momenta[t], &given, decay, by_senders, out);
            for (size_t i = 0; i < tw_tensor_count(&table[t]); i++) {
                double came = (double)g.rank[0][t][i];
                if (!signs) assert_near(came, out[i], 1e-4);
                if (signs && fabs(out[i]) > 1e-4) assert_near(came, out[i] > 0 ? 1 : -1, 0);
            }
        }
    }
    group_destroy(&group, &g);
    gradients_destroy(&given);
}

TEST(equals_the_papers_form)
{
    check_steps(",map=none,momentum=0.9", 0.9, 1, 0);
    check_steps(",map=none,momentum=0.9,agg=mean", 0.9, 0, 0);
    check_steps("", 0.999, 1, 1);
}

/* ---- identities -------------------------------------------------------------------------------------------------- */

static void step_of(loopback *group, const char *spec, gradients *g, int alike)
{
    int skipped;
    gradients_create(g, table, TENSORS, group->size);
    gradients_draw(g, 7, 0, 0);
    for (int r = 1; alike && r < group->size; r++)
        for (size_t t = 0; t < TENSORS; t++)
            memcpy(g->rank[r][t], g->rank[0][t], tw_tensor_count(&table[t]) * sizeof(float));
    assert_ok(loopback_create(group, spec, table, TENSORS, group->size));
    assert_ok(loopback_step(group, g->rank, -1, NULL, &skipped));
    assert_false(skipped);
}

/* Where all is sent nothing is kept, and what comes out is the sign of the mean. So it is of what is not compressed. */
TEST(all_sent_is_the_sign_of_the_mean)
{
    static const char *const specs[] = {"demo:chunk=16,k=16," EXACT, "demo:dense=*,leftovers=fp32"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        loopback group = {.size = RANKS};
        gradients g;
        double kept[MOST];
        step_of(&group, specs[s], &g, 0);
        for (size_t t = 0; t < TENSORS; t++)
            for (size_t i = 0; i < tw_tensor_count(&table[t]); i++) {
                float mean = 0;
                for (int r = 0; r < RANKS; r++) mean += gradient_draw(7, 0, r, t, i) / RANKS;
                if (fabsf(mean) > 1e-4F) assert_near(g.rank[0][t][i], mean > 0 ? 1 : -1, 0);
            }
        if (s == 0) read_momentum(&group, 1, "coefficients16/blocks", 120, kept);
        for (size_t i = 0; s == 0 && i < 120; i++) assert_true(kept[i] == 0);
        loopback_destroy(&group);
        gradients_destroy(&g);
    }
}

TEST(ranks_with_one_gradient_are_one_rank)
{
    loopback one = {.size = 1}, two = {.size = 2};
    gradients a, b;
    step_of(&one, "demo:chunk=16,k=5,map=none," EXACT, &a, 1);
    step_of(&two, "demo:chunk=16,k=5,map=none," EXACT, &b, 1);
    for (size_t t = 0; t < TENSORS; t++)
        assert_memory_equal(a.rank[0][t], b.rank[0][t], tw_tensor_count(&table[t]) * sizeof(float));
    loopback_destroy(&one);
    loopback_destroy(&two);
    gradients_destroy(&a);
    gradients_destroy(&b);
}

/* Without decay what arrived and what is kept are what was given, whatever is sent of it and however it is rounded. */
TEST(nothing_is_lost_without_decay)
{
    enum { STEPS = 30, N = 120 };
    loopback group;
    gradients g;
    double given[N] = {0}, coefficients[N], sum[N] = {0};
    group_create(&group, &g, "demo:chunk=16,k=3,momentum=1,map=none,agg=mean", table, TENSORS, RANKS);
    for (int step = 0; step < STEPS; step++) {
        gradients_draw(&g, 5, step, 0);
        for (int r = 0; r < RANKS; r++)
            for (size_t i = 0; i < N; i++) given[i] += (double)g.rank[r][0][i] / RANKS;
        assert_false(group_step(&group, &g));
        for (int r = 0; step % 7 == 6 && r < RANKS; r++) assert_ok(tw_scheme_revert(group.scheme[r]));
        for (size_t i = 0; step % 7 != 6 && i < N; i++) given[i] -= (double)g.rank[0][0][i];
    }
    for (int r = 0; r < RANKS; r++) {
        read_momentum(&group, r, "coefficients16/blocks", N, coefficients);
        for (size_t i = 0; i < N; i++) sum[i] += coefficients[i];
    }
    for (block_of b = {0, 4, 2, 10}; b.first < N; b.first += b.first % 10 == 8 ? 32 : 2) {
        double c[8] = {0}, kept[8];
        fetch(sum, &b, c);
        transform(c, 4, 2, 1, kept);
        for (size_t i = 0; i < 8; i++) assert_near(given[b.first + i / 2 * 10 + i % 2], kept[i], 1e-4);
    }
    group_destroy(&group, &g);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

/* What rank 0's packet says of its coefficients, which are 4 but for rounding, becomes enormous. */
static void enlarge(void *packets[], size_t sizes[], int senders)
{
    const float large = 1e38F;
    unsigned char *packet = packets[0];
    (void)senders;
    for (size_t i = 0; i + sizeof large <= sizes[0]; i++) {
        float told;
        memcpy(&told, packet + i, sizeof told);
        if (fabsf(told - 4) < 1e-3F) memcpy(packet + i, &large, sizeof large);
    }
    loopback_seal(packet, sizes[0]);
}

/* The mean over the one sender is 2e38 of each of four coefficients, of which half of the sum goes beyond floats. */
TEST(coefficients_beyond_floats_are_skipped)
{
    static const tw_tensor square[] = {{"w", 2, {2, 2}}};
    loopback group;
    gradients g;
    int skipped;
    group_create(&group, &g, "demo:chunk=4,k=4," EXACT, square, 1, 2);
    g.rank[0][0][0] = 16;
    assert_ok(loopback_step(&group, g.rank, -1, enlarge, &skipped));
    assert_true(skipped);
    group_destroy(&group, &g);
}

TEST(what_is_refused)
{
    loopback group, other;
    tw_scheme *scheme;
    assert_int_equal(tw_scheme_create("demo:chunk=10,k=11", table, TENSORS, 0, 1, &scheme), TW_ERROR_SPEC);
    assert_non_null(strstr(tw_last_error(), "demo: k=11 is more than a chunk has, 10"));
    assert_int_equal(tw_scheme_create("demo:map=muon", table, TENSORS, 0, 1, &scheme), TW_ERROR_SPEC);
    assert_non_null(strstr(tw_last_error(), "map must be one of sign|none"));
    assert_ok(loopback_create(&group, "demo:chunk=16,k=4", table, TENSORS, 1));
    assert_ok(loopback_create(&other, "demo:chunk=64,k=4", table, TENSORS, 1));
    tw_state *saved = loopback_save(group.scheme[0], "");
    assert_int_equal(tw_scheme_load_state(other.scheme[0], "", saved), TW_ERROR_STATE); /* other blocks' */
    tw_state_destroy(saved);
    loopback_destroy(&group);
    loopback_destroy(&other);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* The release sends 12 bytes a coefficient, which is 43 times less than fp32. */
TEST(a_packet_is_hundreds_of_times_smaller)
{
    double ratio = group_ratio("demo", 1024);
    assert_true(ratio > 360 && ratio < 440);
}

RUN_TESTS(NULL, NULL)
