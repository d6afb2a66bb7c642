/* chunktopk: the golden values of its equations, a naive second implementation, what its options say, and what it
 * weighs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gradients.h"
#include "support/assert.h"

/* All that is told of a tensor, and nothing else, travels. */
#define EXACT "values=fp32,min_elements=1"

/* ---- golden values ----------------------------------------------------------------------------------------------- */

enum { SMALL = 16 };
static const tw_tensor small[] = {{"w", 1, {SMALL}}};

static float golden_gradient(int t, int i)
{
    return (float)((7 * i + 3 * t + 5) % 11 - 5) / 4;
}

/* Three rounds of `ranks` ranks, whose gradients are some steps apart; sums of what arrived, and the last rank's
 * residual in units of its gradient. */
static void play_golden(const char *options, int ranks, float *theta, float *residual)
{
    char spec[256];
    loopback group;
    gradients g;
    int skipped;
    gradients_create(&g, small, 1, ranks);
    memset(theta, 0, SMALL * sizeof *theta);
    snprintf(spec, sizeof spec, "chunktopk:chunk=8,k=2,decay=0.5,min_elements=1,%s", options);
    assert_ok(loopback_create(&group, spec, small, 1, ranks));
    for (int t = 1; t <= 3; t++) {
        for (int r = 0; r < ranks; r++)
            for (int i = 0; i < SMALL; i++) g.rank[r][0][i] = golden_gradient(t + 2 * r, i);
        assert_ok(loopback_step(&group, g.rank, -1, NULL, &skipped));
        assert_false(skipped);
        for (int i = 0; i < SMALL; i++) theta[i] -= g.rank[0][0][i];
    }
    assert_ok(loopback_saved(group.scheme[ranks - 1], "residual/w", SMALL, residual));
    for (int i = 0; i < SMALL; i++) residual[i] *= (float)ranks;
    loopback_destroy(&group);
    gradients_destroy(&g);
}

static void assert_floats(const float *got, const double *golden)
{
    for (int i = 0; i < SMALL; i++) assert_near(got[i], golden[i], 1e-6);
}

TEST(golden_values_of_one_rank)
{
    const double kept[SMALL] = {-.9375, 0, 0, -.75, 0, -.375, -1, .5625, -.25, -.875, .125, -.9375, 0, 0, -.75, 0};
    const double came[SMALL] = {0, -1.4375, 1.25, -1.5, -1, -1.25, -1.125, 0, 0, 0, 0, 0, -1.4375, 1.25, -1.5, -1};
    float theta[SMALL], residual[SMALL];
    play_golden("values=fp32", 1, theta, residual);
    assert_floats(theta, came);
    assert_floats(residual, kept);
}

/* Four values travel in each round, in two bits. */
TEST(golden_values_of_the_releases_quantiser)
{
    const double kept[SMALL] = {-.9375, .145833, 0,    -.6875, 1,       -.34375, 0,      .5625,
                                -.25,   -.875,   .125, -.9375, .145833, 0,       -.6875, -.291667};
    const double came[SMALL] = {0,      -1.291667, 1.25, -1.375, 0,         -1.125, -.25,   0,
                                -.0625, 0,         0,    0,      -1.291667, 1.25,   -1.375, -1.291667};
    float theta[SMALL], residual[SMALL];
    play_golden("values=ref2", 1, theta, residual);
    assert_floats(theta, came);
    assert_floats(residual, kept);
}

TEST(golden_values_of_two_ranks)
{
    const double mean[SMALL] = {-.5,     -1.34375, .5625, -.75, -.5,      -.625, -.5625, 0,
                                -.71875, .625,     -.75,  -.5,  -1.34375, .0625, -.75,   -.5};
    const double senders[SMALL] = {-1,      -2.6875, 1.125, -1.5, -1,      -1.25, -1.125, 0,
                                   -1.4375, 1.25,    -1.5,  -1,   -2.6875, .125,  -1.5,   -1};
    const double kept[SMALL] = {0, -.375, 0, .5625, -.25, -.875, .125, -.9375, 0, 0, -.75, 0, -.375, -1, .5625, -.5};
    float theta[SMALL], residual[SMALL];
    play_golden("values=fp32,agg=mean", 2, theta, residual);
    assert_floats(theta, mean);
    assert_floats(residual, kept);
    play_golden("values=fp32,agg=senders", 2, theta, residual);
    assert_floats(theta, senders);
    assert_floats(residual, kept);
}

/* ---- a second implementation ------------------------------------------------------------------------------------- */

enum { TENSORS = 4, RANKS = 3, MOST = 40 * 3 * 5 * 7 };
static const tw_tensor table[TENSORS] = {
    {"ragged", 2, {70, 53}}, {"filters", 4, {40, 3, 5, 7}}, {"flat", 1, {1000}}, {"thin", 2, {1, 37}}};
enum { CHUNK = 300, K = 11 }; /* squares of 17 x 17 = 289 elements, of which are sent round(289 * 11 / 300) */

static int takes_part(size_t i, const tw_tensor *tensor, size_t row, size_t column, size_t height, size_t width)
{
    size_t columns = tensor->dims < 2 ? tw_tensor_count(tensor) : tw_tensor_count(tensor) / tensor->shape[0];
    return i / columns - row < height && i % columns - column < width;
}

/* The largest of a chunk, one after the other: of equal ones the first. */
static void send_largest(const tw_tensor *tensor, size_t row, size_t column, size_t height, size_t width, float *v,
                         float *sent)
{
    size_t n = 0, count = tw_tensor_count(tensor);
    for (size_t i = 0; i < count; i++) n += (size_t)takes_part(i, tensor, row, column, height, width);
    double wanted = fmax(1, floor((double)n * K / CHUNK + 0.5));
    for (int j = 0; j < (int)wanted; j++) {
        size_t best = count;
        for (size_t i = 0; i < count; i++)
            if (takes_part(i, tensor, row, column, height, width) && v[i] != 0 &&
                (best == count || fabsf(v[i]) > fabsf(v[best])))
                best = i;
        if (best == count) return;
        sent[best] = v[best];
        v[best] = 0;
    }
}

static size_t largest_part(size_t side)
{
    size_t largest = 1;
    for (size_t part = 2; part <= 17; part++) largest = side % part ? largest : part;
    return largest;
}

static void send_chunks(const tw_tensor *tensor, int even, float *v, float *sent)
{
    size_t count = tw_tensor_count(tensor), rows = tensor->dims < 2 ? 1 : tensor->shape[0], columns = count / rows;
    size_t height = tensor->dims < 2 ? 1 : 17, width = tensor->dims < 2 ? CHUNK : 17;
    if (even) height = largest_part(rows), width = largest_part(columns);
    memset(sent, 0, count * sizeof *sent);
    for (size_t row = 0; row < rows; row += height)
        for (size_t column = 0; column < columns; column += width)
            send_largest(tensor, row, column, height, width, v, sent);
}

static void check_naive(const char *spec, int by_senders, int even)
{
    enum { STEPS = 8 };
    static float v[RANKS][TENSORS][MOST], sent[MOST], sum[TENSORS][MOST], senders[TENSORS][MOST];
    loopback group;
    gradients g;
    memset(v, 0, sizeof v);
    group_create(&group, &g, spec, table, TENSORS, RANKS);
    for (int step = 0; step < STEPS; step++) {
        gradients_draw(&g, 3, step, step % 2 ? 0.25 : 0); /* on the grid many are equal */
        memset(sum, 0, sizeof sum);
        memset(senders, 0, sizeof senders);
        for (int r = 0; r < RANKS; r++)
            for (size_t t = 0; t < TENSORS; t++) {
                size_t count = tw_tensor_count(&table[t]);
                for (size_t i = 0; i < count; i++) v[r][t][i] = 0.75F * v[r][t][i] + g.rank[r][t][i] * (1.0F / RANKS);
                send_chunks(&table[t], even, v[r][t], sent);
                for (size_t i = 0; i < count; i++) sum[t][i] += sent[i];
                for (size_t i = 0; i < count; i++) senders[t][i] += (float)(sent[i] != 0);
            }
        if (step == 5) assert_ok(loopback_restart(&group, spec, table, TENSORS));
        assert_false(group_step(&group, &g));
        for (size_t t = 0; t < TENSORS; t++)
            for (size_t i = 0; i < tw_tensor_count(&table[t]); i++) {
                float share = by_senders && senders[t][i] > 0 ? (float)RANKS / senders[t][i] : 1;
                assert_true(g.rank[0][t][i] == sum[t][i] * share);
            }
    }
    group_destroy(&group, &g);
}

TEST(equals_the_naive_implementation)
{
    check_naive("chunktopk:chunk=300,k=11,decay=0.75," EXACT, 0, 0);
    check_naive("chunktopk:chunk=300,k=11,decay=0.75,agg=senders," EXACT, 1, 0);
    check_naive("chunktopk:chunk=300,k=11,decay=0.75,cut=even," EXACT, 0, 1);
}

/* ---- what options say -------------------------------------------------------------------------------------------- */

static void step_of(const char *spec, gradients *g, int alike)
{
    loopback group;
    int skipped;
    gradients_create(g, table, TENSORS, RANKS);
    gradients_draw(g, 5, 0, 0);
    for (int r = 1; alike && r < RANKS; r++)
        for (size_t t = 0; t < TENSORS; t++)
            memcpy(g->rank[r][t], g->rank[0][t], tw_tensor_count(&table[t]) * sizeof(float));
    assert_ok(loopback_create(&group, spec, table, TENSORS, RANKS));
    assert_ok(loopback_step(&group, g->rank, -1, NULL, &skipped));
    loopback_destroy(&group);
}

static void assert_same_step(const char *one, const char *other, int alike)
{
    gradients a, b;
    step_of(one, &a, alike);
    step_of(other, &b, alike);
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < tw_tensor_count(&table[t]); i++)
            if (a.rank[0][t][i] != b.rank[0][t][i]) fail_msg("%s is not %s", one, other);
    gradients_destroy(&a);
    gradients_destroy(&b);
}

/* Where all is sent, it is an all-reduce; the mean over the senders is the mean where all send the same elements. */
TEST(options_that_make_it_something_else)
{
    assert_same_step("chunktopk:chunk=64,k=64," EXACT, "allreduce", 0);
    assert_same_step("chunktopk:chunk=64,k=64,agg=senders," EXACT, "allreduce", 0);
    assert_same_step("chunktopk:chunk=100,k=5,agg=senders," EXACT, "chunktopk:chunk=100,k=5," EXACT, 1);
    assert_same_step("chunktopk:decay=0", "chunktopk:decay=1", 0); /* of nothing kept */
}

static void refuse(const char *spec, const char *words)
{
    tw_scheme *scheme;
    assert_int_equal(tw_scheme_create(spec, table, TENSORS, 0, 1, &scheme), TW_ERROR_SPEC);
    assert_non_null(strstr(tw_last_error(), words));
}

TEST(what_is_refused)
{
    refuse("chunktopk:chunk=10,k=11", "k=11 is more than a chunk has, 10");
    refuse("chunktopk:k=0", "k must be");
    refuse("chunktopk:decay=1.5", "decay must be");
    refuse("chunktopk:agg=median", "agg must be one of mean|senders");
    refuse("chunktopk:cut=odd", "cut must be one of ragged|even");
}

/* The first rank's packet says of an element that it alone sends what is too much when doubled. */
static void enlarge(void *packets[], size_t sizes[], int senders)
{
    const float told = 4, large = 2e38F;
    unsigned char *packet = packets[0];
    (void)senders;
    for (size_t i = 0; i + sizeof told <= sizes[0]; i++)
        if (memcmp(packet + i, &told, sizeof told) == 0) memcpy(packet + i, &large, sizeof large);
    loopback_seal(packet, sizes[0]);
}

TEST(a_mean_over_senders_that_overflows_is_skipped)
{
    loopback group;
    gradients g;
    int skipped;
    group_create(&group, &g, "chunktopk:chunk=16,k=1,agg=senders," EXACT, small, 1, 2);
    g.rank[0][0][3] = 8;
    g.rank[1][0][5] = 2;
    assert_ok(loopback_step(&group, g.rank, -1, enlarge, &skipped));
    assert_true(skipped);
    group_destroy(&group, &g);
}

/* ---- hostile packets --------------------------------------------------------------------------------------------- */

/* Whole packets of rank 1, made by a rank with other options. */
static void check_stranger(const char *spec, const char *theirs, const tw_tensor *their_table, const char *words)
{
    tw_scheme *scheme[2];
    gradients g;
    tw_round round[2] = {{0}, {0}};
    gradients_create(&g, their_table, 1, 2);
    gradients_draw(&g, 2, 0, 0);
    assert_ok(tw_scheme_create(spec, table, 1, 0, 2, &scheme[0]));
    assert_ok(tw_scheme_create(theirs, their_table, 1, 1, 2, &scheme[1]));
    for (int r = 0; r < 2; r++) {
        assert_ok(tw_scheme_begin(scheme[r], g.rank[r], -1));
        assert_ok(tw_scheme_next(scheme[r], &round[r]));
    }
    const void *packets[] = {round[0].data, round[1].data};
    const size_t sizes[] = {round[0].size, round[1].size};
    round[0].packets = packets;
    round[0].sizes = sizes;
    assert_int_equal(tw_scheme_next(scheme[0], &round[0]), TW_ERROR_PACKET);
    if (!strstr(tw_last_error(), words)) fail_msg("\"%s\" should say \"%s\"", tw_last_error(), words);
    for (int r = 0; r < 2; r++) tw_scheme_destroy(scheme[r]);
    gradients_destroy(&g);
}

TEST(hostile_packets_are_refused)
{
    static const tw_tensor larger[] = {{"ragged", 2, {140, 53}}};
    check_stranger("chunktopk:chunk=256,k=4," EXACT, "chunktopk:chunk=256,k=5," EXACT, table, "rank 1");
    check_stranger("chunktopk:chunk=256,k=4," EXACT, "chunktopk:chunk=256,k=5," EXACT, table,
                   "it has more elements than may come");
    check_stranger("chunktopk:chunk=256,k=4,indices=rice," EXACT, "chunktopk:chunk=256,k=1,indices=rice," EXACT, larger,
                   "an index lies beyond the tensor");
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* 64 of 4096 elements, each with two bits and its place: the published packet is 146 times smaller than fp32, and what
 * places need at least, 7.36 bits, would allow for 219. */
TEST(a_packet_is_200_times_smaller)
{
    double ratio = group_ratio("chunktopk", 1000);
    assert_true(ratio > 200 && ratio < 245);
    /* the releases' quantiser takes as many bits, and 12 bytes a tensor more for its levels; 146 is published */
    double papers = group_ratio("chunktopk:values=ref2", 1000);
    assert_true(papers > 200 && papers <= ratio);
}

RUN_TESTS(NULL, NULL)
