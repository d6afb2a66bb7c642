/* ScaleCom against a second implementation that knows only the rules, and against what must hold of it. */
#include <math.h>
#include <stdio.h>
#include <thinwire/thinwire_by_hand.h>
#include <thinwire/thinwire_plugin.h>

#include "gradients.h"

enum { TENSORS = 3, MOST = 1517, RANKS = 16, STEPS = 30 };

/* Last chunks that are shorter, a chunk longer than its tensor, and one tensor that is sent whole. */
static const tw_tensor table[TENSORS] = {{"a", 2, {37, 41}}, {"b", 1, {63}}, {"conv", 4, {4, 3, 2, 2}}};
static const size_t rates[TENSORS] = {100, 100, 1};
#define ALL_OF_THEM "min_dims=0,min_elements=1,min_sent=1,rates=conv@1|b@100"
#define COMPRESSED ALL_OF_THEM ",warmup_steps=0"

static float draw(int at, int r, int t, size_t i)
{
    uint32_t words[4];
    tw_random(5, (uint64_t)(at * 64 + r), (uint64_t)t << 32 | i, words);
    float x = (float)(int32_t)words[0] * 0x1p-31F;
    return x * x * x * 3 + 0.1F;
}

/* In every other step of few values, so that some of a chunk are equal. */
static void fill(gradients *g, int at)
{
    for (int r = 0; r < g->ranks; r++)
        for (int t = 0; t < TENSORS; t++)
            for (size_t i = 0; i < tw_tensor_count(&table[t]); i++) {
                float x = draw(at, r, t, i);
                g->rank[r][t][i] = at % 2 ? rintf(4 * x) / 4 : x;
            }
}

static void assert_memory(const loopback *group, int r, int t, const float *expected)
{
    float memory[MOST];
    char name[32];
    size_t n = tw_tensor_count(&table[t]);
    snprintf(name, sizeof name, "memory/%s", table[t].name);
    assert_int_equal(loopback_saved(group->scheme[r], name, n, memory), TW_OK);
    assert_memory_equal(memory, expected, n * sizeof *memory);
}

/* ---- the second implementation ----------------------------------------------------------------------------------- */

typedef struct naive {
    int size, at;
    float beta;
    tw_dtype dtype;
    float most;       /* that one of them may send */
    size_t most_rate; /* of the step under way; 0: the rates above */
    float memory[RANKS][TENSORS][MOST];
} naive;

static size_t rate_of(const naive *self, int t)
{
    return self->most_rate && self->most_rate < rates[t] ? self->most_rate : rates[t];
}

static float rounded(tw_dtype dtype, float x)
{
    if (dtype == TW_F16) return tw_from_fp16(tw_to_fp16(x));
    return dtype == TW_BF16 ? tw_from_bf16(tw_to_bf16(x)) : x;
}

static float most_of_one(const naive *self)
{
    float most = 0;
    if (self->dtype != TW_F16) return INFINITY;
    for (unsigned half = 0; half < 0x7C00; half++)
        if (tw_from_fp16((uint16_t)half) * (float)self->size <= 65504) most = tw_from_fp16((uint16_t)half);
    return most;
}

static float p_of(const naive *self, const gradients *g, int r, int t, size_t i)
{
    float share = (float)(1.0 / self->size);
    return self->memory[r][t][i] + (float)((1 - (double)self->beta) * (double)share) * g->rank[r][t][i];
}

/* The element of the chunk that begins at `first` where the leader's |p| is largest. */
static size_t choose(const naive *self, const gradients *g, int t, size_t first)
{
    size_t n = tw_tensor_count(&table[t]), best = first;
    int leader = self->at % self->size;
    for (size_t i = first; i < n && i < first + rate_of(self, t); i++)
        if (fabsf(p_of(self, g, leader, t, i)) > fabsf(p_of(self, g, leader, t, best))) best = i;
    return best;
}

/* 2^4 below the most that one may send. */
static float unit_of(const naive *self, const gradients *g, int t)
{
    float largest = 0;
    if (self->dtype != TW_F16) return 1;
    for (size_t first = 0; first < tw_tensor_count(&table[t]); first += rate_of(self, t))
        largest = fmaxf(largest, fabsf(p_of(self, g, self->at % self->size, t, choose(self, g, t, first))));
    return largest == 0 ? 1 : ldexpf(1, ilogbf(self->most) - ilogbf(largest) - 5);
}

static float exchange(naive *self, const gradients *g, int t, size_t i, float unit)
{
    float sum = 0, most = self->most;
    for (int r = 0; r < self->size; r++) {
        float p = p_of(self, g, r, t, i) * unit;
        float sent = rounded(self->dtype, p > most ? most : p < -most ? -most : p);
        self->memory[r][t][i] -= self->beta * (sent / unit);
        sum = r == 0 ? sent : sum + sent;
    }
    return rounded(self->dtype, sum) / unit;
}

static void accumulate(naive *self, const gradients *g)
{
    float share = (float)(1.0 / self->size), filtered = (float)((double)self->beta * (double)share);
    for (int r = 0; r < self->size; r++)
        for (int t = 0; t < TENSORS; t++)
            for (size_t i = 0; i < tw_tensor_count(&table[t]); i++)
                self->memory[r][t][i] += filtered * g->rank[r][t][i];
}

static void naive_step(naive *self, const gradients *g, float sum[TENSORS][MOST])
{
    memset(sum, 0, TENSORS * sizeof *sum);
    accumulate(self, g);
    for (int t = 0; t < TENSORS; t++) {
        size_t n = tw_tensor_count(&table[t]), chosen[MOST], k = 0;
        float unit = unit_of(self, g, t);
        for (size_t first = 0; first < n; first += rate_of(self, t)) chosen[k++] = choose(self, g, t, first);
        for (size_t j = 0; j < k; j++) sum[t][chosen[j]] = exchange(self, g, t, chosen[j], unit);
    }
    self->at++;
}

static naive *naive_create(int size, float beta, tw_dtype dtype)
{
    naive *self = calloc(1, sizeof *self);
    assert_non_null(self);
    self->size = size;
    self->beta = beta;
    self->dtype = dtype;
    self->most = most_of_one(self);
    return self;
}

static void assert_alike(const loopback *group, const gradients *g, const naive *expected, float sum[TENSORS][MOST])
{
    for (int r = 0; r < group->size; r++)
        for (int t = 0; t < TENSORS; t++) {
            size_t n = tw_tensor_count(&table[t]);
            for (size_t i = 0; i < n; i++) assert_true(g->rank[r][t][i] == sum[t][i]);
            assert_memory(group, r, t, expected->memory[r][t]);
        }
}

TEST(test_a_second_implementation_agrees)
{
    static const char *const formats[] = {"fp32", "fp16", "bf16"};
    static const tw_dtype dtypes[] = {TW_F32, TW_F16, TW_BF16};
    static float sum[TENSORS][MOST];
    gradients g;
    for (int size = 1; size <= 8; size *= 2)
        for (int f = 0; f < 3; f++)
            for (int filter = 0; filter < 2; filter++) {
                loopback group;
                char spec[128];
                snprintf(spec, sizeof spec, "scalecom:" COMPRESSED ",values=%s,beta=%s", formats[f],
                         filter ? "0.25" : "1");
                group_create(&group, &g, spec, table, TENSORS, size);
                naive *expected = naive_create(size, filter ? 0.25F : 1, dtypes[f]);
                for (int at = 0; at < STEPS; at++) {
                    fill(&g, at);
                    naive_step(expected, &g, sum);
                    assert_int_equal(group_step(&group, &g), 0);
                    assert_alike(&group, &g, expected, sum);
                }
                free(expected);
                group_destroy(&group, &g);
            }
}

/* ---- what must hold ---------------------------------------------------------------------------------------------- */

/* Without a filter, the first step of a lone rank is the largest of each chunk between zeros: a tensor that is received
 * in several runs of chunks, the last chunk and the last run of them shorter. */
TEST(test_a_long_tensor_is_all_there)
{
    enum { LONG = 300001, RATE = 7 }; /* written past the cache */
    static const tw_tensor tensor = {"long", 1, {LONG}};
    static float gradient[LONG], expected[LONG];
    tw_comm *comm;
    tw_reducer *reducer;
    for (size_t i = 0; i < LONG; i++) gradient[i] = draw(0, 0, 0, i);
    for (size_t first = 0, best; first < LONG; first += RATE) {
        best = first;
        for (size_t i = first; i < first + RATE && i < LONG; i++)
            if (fabsf(gradient[i]) > fabsf(gradient[best])) best = i;
        expected[best] = gradient[best];
    }
    const char *spec = "scalecom:rate=7,beta=1,values=fp32,warmup_steps=0,min_dims=1";
    assert_int_equal(tw_comm_create_threads(1, &comm), TW_OK);
    assert_int_equal(tw_reducer_create(comm, spec, &tensor, 1, &reducer), TW_OK);
    assert_int_equal(tw_reducer_submit(reducer, 0, gradient), TW_OK);
    assert_int_equal(tw_reducer_wait(reducer), TW_OK);
    assert_memory_equal(gradient, expected, sizeof expected);
    tw_reducer_destroy(reducer);
    tw_comm_destroy(comm);
}

/* A constant gradient, after the memory has filled: as much comes out a step as goes in. */
static double gain(double beta, size_t period)
{
    enum { N = 2, SETTLE = 30000, MEASURE = 100000 };
    loopback group;
    char spec[128];
    gradients g;
    double sum = 0;
    tw_tensor chunk = {"chunk", 1, {period}};
    snprintf(spec, sizeof spec,
             "scalecom:min_dims=0,min_elements=1,min_sent=1,warmup_steps=0,values=fp32,rate=100,beta=%g", beta);
    group_create(&group, &g, spec, &chunk, 1, N);
    for (int at = 0; at < SETTLE + MEASURE; at++) {
        for (int r = 0; r < N; r++)
            for (size_t i = 0; i < period; i++) g.rank[r][0][i] = 1;
        assert_false(group_step(&group, &g));
        for (size_t i = 0; at >= SETTLE && i < period; i++) sum += (double)g.rank[0][0][i];
    }
    group_destroy(&group, &g);
    return sum / MEASURE / (double)period;
}

TEST(test_the_filter_has_a_gain_of_one)
{
    static const double betas[] = {1, 0.5, 0.3, 0.1};
    static const size_t periods[] = {1, 5, 30};
    for (int b = 0; b < 4; b++)
        for (int p = 0; p < 3; p++) {
            double g = gain(betas[b], periods[p]);
            if (fabs(g - 1) > 1e-3) fail_msg("beta %g, one of %zu a step: gain %.5f", betas[b], periods[p], g);
        }
}

/* Gradients 2^60 times as large or small give the very same bits, that much larger or smaller, though fp16 itself
 * reaches from 2^-24 to 2^16. */
TEST(test_half_precision_follows_the_scale)
{
    static const float units[] = {1, 0x1p-60F, 0x1p60F};
    loopback group[3];
    gradients g[3];
    for (int u = 0; u < 3; u++) group_create(&group[u], &g[u], "scalecom:values=fp16," COMPRESSED, table, TENSORS, 4);
    for (int at = 0; at < STEPS; at++)
        for (int u = 0; u < 3; u++) {
            fill(&g[u], at);
            for (int r = 0; r < 4; r++)
                for (size_t i = 0; i < MOST; i++) g[u].rank[r][0][i] *= units[u];
            assert_int_equal(group_step(&group[u], &g[u]), 0);
            for (size_t i = 0; i < MOST; i++) assert_true(g[u].rank[3][0][i] == g[0].rank[3][0][i] * units[u]);
        }
    for (int u = 0; u < 3; u++) group_destroy(&group[u], &g[u]);
}

/* Ranks whose values dwarf the leader's: no sum leaves fp16, and the rest stays where it was. */
TEST(test_half_precision_never_overflows)
{
    loopback group;
    gradients g;
    group_create(&group, &g, "scalecom:values=fp16," COMPRESSED, table, TENSORS, RANKS);
    for (int at = 0; at < 3; at++) {
        float total = 0;
        for (int r = 0; r < RANKS; r++)
            for (int t = 0; t < TENSORS; t++)
                for (size_t i = 0; i < tw_tensor_count(&table[t]); i++) g.rank[r][t][i] = r == at ? 1 : 0x1p20F;
        assert_int_equal(group_step(&group, &g), 0);
        for (size_t i = 0; i < MOST; i++) total += g.rank[0][0][i];
        assert_true(isfinite(total) && total > 0);
    }
    group_destroy(&group, &g);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

TEST(test_a_message_weighs_the_same_however_many_ranks)
{
    gradients g;
    for (int size = 1; size <= RANKS; size *= 2) {
        loopback group;
        group_create(&group, &g, "scalecom:" COMPRESSED, table, TENSORS, size);
        for (int at = 0; at < 2; at++) {
            fill(&g, at);
            assert_int_equal(group_step(&group, &g), 0);
            for (int r = 0; r < size; r++) {
                tw_cost cost = cost_of(group.scheme[r]);
                assert_int_equal(cost.elements_sent, 16 + 1 + 48);
                assert_int_equal(cost.index_bytes, 16 * 7 / 8 + 1);
                assert_int_equal(cost.packet_bytes, group.packet_bytes + 2 * (16 + 1 + 48));
                assert_int_equal(cost.exact_bytes, 0);
            }
        }
        group_destroy(&group, &g);
    }
}

/* Of the trainer's convolutional network. */
TEST(test_the_default_is_a_hundred_times_smaller)
{
    static const tw_tensor network[] = {{"conv1.weight", 4, {16, 1, 3, 3}},  {"conv1.bias", 1, {16}},
                                        {"conv2.weight", 4, {32, 16, 3, 3}}, {"conv2.bias", 1, {32}},
                                        {"conv3.weight", 4, {64, 32, 3, 3}}, {"conv3.bias", 1, {64}},
                                        {"fc1.weight", 2, {128, 3136}},      {"fc1.bias", 1, {128}},
                                        {"fc2.weight", 2, {10, 128}},        {"fc2.bias", 1, {10}}};
    enum { COUNT = sizeof network / sizeof *network };
    loopback group;
    gradients g;
    uint64_t elements = 0;
    for (int t = 0; t < COUNT; t++) elements += tw_tensor_count(&network[t]);
    assert_int_equal(elements, 426122);
    group_create(&group, &g, "scalecom:warmup_steps=0", network, COUNT, 1);
    gradients_draw(&g, 1, 0, 0);
    assert_false(group_step(&group, &g));
    tw_cost cost = cost_of(group.scheme[0]);
    assert_int_equal(cost.exact_bytes, 2 * 250);
    assert_true(4 * elements >= 100 * (cost.packet_bytes + cost.exact_bytes));
    group_destroy(&group, &g);
}

static void check_warmup(const char *options, const size_t *levels, size_t count)
{
    enum { N = 3 };
    static float sum[TENSORS][MOST];
    char spec[128];
    loopback group;
    gradients g;
    naive *expected = naive_create(N, 0.25F, TW_F16);
    snprintf(spec, sizeof spec, "scalecom:" ALL_OF_THEM ",beta=0.25,%s", options);
    group_create(&group, &g, spec, table, TENSORS, N);
    for (size_t at = 0; at < count; at++) {
        expected->most_rate = levels[at];
        fill(&g, (int)at);
        naive_step(expected, &g, sum);
        assert_int_equal(group_step(&group, &g), 0);
        assert_alike(&group, &g, expected, sum);
        tw_cost cost = cost_of(group.scheme[1]);
        size_t sent = 0;
        for (int t = 0; t < TENSORS; t++)
            sent += (tw_tensor_count(&table[t]) + rate_of(expected, t) - 1) / rate_of(expected, t);
        assert_int_equal(cost.elements_sent, sent);
        assert_int_equal(cost.warmup, levels[at] != 0);
        assert_int_equal(cost.packet_bytes, group.packet_bytes + 2 * sent);
    }
    group_destroy(&group, &g);
    free(expected);
}

/* Equally many steps at each level, each of which sends a quarter of the one before; a tensor whose own rate is lower
 * keeps that. Where the first level is at the rate already, there is no warm-up. */
TEST(test_the_rate_grows_by_fours)
{
    static const size_t three[] = {3, 3, 3, 12, 12, 12, 48, 48, 0, 0}, all[] = {1, 1, 4, 4, 16, 16, 64, 64, 0},
                        from_25[] = {25, 25, 0, 0}, nothing[] = {0, 0};
    check_warmup("warmup_steps=8,warmup_rate=3", three, 10);
    check_warmup("warmup_steps=8,warmup_rate=1", all, 9);
    check_warmup("warmup_steps=2,warmup_rate=25", from_25, 4);
    check_warmup("warmup_steps=2,warmup_rate=100", nothing, 2);
    check_warmup("warmup_steps=0", nothing, 2);
}

/* ---- what must be refused ---------------------------------------------------------------------------------------- */

static size_t from_the_end;
static unsigned char instead;

static void replace_byte(void *packets[], size_t sizes[], int size)
{
    (void)size;
    ((unsigned char *)packets[0])[sizes[0] - from_the_end] = instead;
    loopback_seal(packets[0], sizes[0]);
}

/* A step of one chunk of 20 where 100 could be, whose packet ends with an exponent and a position. */
static tw_status step_with(size_t at, int value, float gradient[20])
{
    static const tw_tensor only = {"short", 2, {4, 5}};
    float **rank = &gradient;
    loopback group;
    int skipped;
    for (int i = 0; i < 20; i++) gradient[i] = (float)i + 1;
    assert_int_equal(
        loopback_create(&group, "scalecom:min_elements=1,rates=short@100,beta=1,warmup_steps=0", &only, 1, 1), TW_OK);
    from_the_end = at;
    instead = (unsigned char)value;
    tw_status status = loopback_step(&group, &rank, -1, replace_byte, &skipped);
    loopback_destroy(&group);
    return status;
}

/* Every position from 20 on, and the bit that fills the byte, is refused. */
TEST(test_positions_stay_inside_their_chunk)
{
    float gradient[20];
    for (int value = 0; value < 256; value++) {
        assert_int_equal(step_with(1, value, gradient), value < 20 ? TW_OK : TW_ERROR_PACKET);
        for (int i = 0; value < 20 && i < 20; i++) assert_true(gradient[i] == (i == value ? (float)i + 1 : 0));
    }
}

TEST(test_exponents_stay_where_floats_are)
{
    float gradient[20];
    for (int value = -128; value < 128; value++)
        assert_int_equal(step_with(2, value, gradient), abs(value) <= 120 ? TW_OK : TW_ERROR_PACKET);
}

TEST(test_rates_must_make_sense)
{
    static const char *const bad[] = {"conv", "conv@", "@5", "conv@0", "conv@x", "conv@5x", "a@5||conv@2", "a@2000000"};
    char spec[64];
    tw_scheme *scheme;
    tw_reducer *reducer;
    tw_comm *comm;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(spec, sizeof spec, "scalecom:rates=%s", bad[i]);
        assert_int_equal(tw_scheme_create(spec, table, TENSORS, 0, 1, &scheme), TW_ERROR_SPEC);
        assert_non_null(strstr(tw_last_error(), "rates="));
    }
    assert_int_equal(tw_comm_create_threads(1, &comm), TW_OK);
    assert_int_equal(tw_reducer_create(comm, "scalecom:rates=cnov@5", table, TENSORS, &reducer), TW_ERROR_SPEC);
    assert_non_null(strstr(tw_last_error(), "cnov"));
    assert_int_equal(
        tw_reducer_create(comm, "scalecom:min_elements=1,min_sent=50,rates=c*@5|conv@2", table, TENSORS, &reducer),
        TW_OK);
    assert_non_null(strstr(tw_reducer_plan(reducer, 2), "10 of 48"));
    assert_non_null(strstr(tw_reducer_plan(reducer, 0), "51 of 1517 elements, the largest of each 30"));
    tw_reducer_destroy(reducer);
    tw_comm_destroy(comm);
}

RUN_TESTS(NULL, NULL)
