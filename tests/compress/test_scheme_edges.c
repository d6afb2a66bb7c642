/* Schemes where numbers, densities and the order of calls come to their edges. */
#include <float.h>
#include <math.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

#include "gradients.h"
#include "packet.h"
#include "scheme.h"
#include "support/cmocka.h"
#include "support/language.h"

enum { MATRIX = 3000, BIAS = 40 };
static const tw_tensor table[] = {{"w", 2, {50, 60}}, {"b", 1, {BIAS}}};

/* Between -times/2 and times/2. */
static void fill(gradients *g, int step, float times)
{
    for (int r = 0; r < g->ranks; r++)
        for (size_t t = 0, first = 0; t < 2; first += tw_tensor_count(&table[t++]))
            for (size_t i = 0; i < tw_tensor_count(&table[t]); i++) {
                uint32_t words[4];
                tw_random(21, (uint64_t)(step * 64 + r), first + i, words);
                g->rank[r][t][i] = times * ((float)words[0] / 4294967296.0f - 0.5f);
            }
}

/* ---- numbers too large ------------------------------------------------------------------------------------------ */

/* A finite gradient that no residual could gather for long counts as an infinite one. */
TEST(test_enormous_gradients_are_skipped)
{
    gradients g;
    static const char *const specs[] = {"topk", "dgc", "dgc:clip=1",
                                        "topk:density=0.9,values=fp32"}; /* the last goes the wide road */
    for (int s = 0; s < 4; s++) {
        loopback group;
        group_create(&group, &g, specs[s], table, 2, 3);
        for (int step = 0; step < 3; step++) {
            fill(&g, step, 1);
            if (step == 1) g.rank[1][0][5] = FLT_MAX;
            assert_int_equal(group_step(&group, &g), step == 1);
        }
        group_destroy(&group, &g);
    }
}

/* A norm that a caller gives says nothing of elements that he did not look at: the pass itself does; and it does not
 * count twice what the norm has in it. */
TEST(test_a_given_norm_hides_no_nan)
{
    gradients g;
    static const char *const specs[] = {"topk", "threshold", "dgc", "sdagc", "sdagc:statistics=gradient"};
    for (int s = 0; s < 5; s++) {
        loopback group;
        int skipped;
        group_create(&group, &g, specs[s], table, 2, 3);
        for (int step = 0; step < 4; step++) {
            fill(&g, step, 1);
            if (step == 1) g.rank[1][0][5] = NAN;
            if (step == 2) g.rank[2][0][MATRIX - 1] = 9e32F;
            assert_int_equal(loopback_step(&group, g.rank, step == 2 ? 9e32 : 1, NULL, &skipped), TW_OK);
            assert_int_equal(skipped, step == 1);
            for (int r = 0; r < 3; r++)
                for (size_t i = 0; i < MATRIX && !skipped; i++) assert_true(isfinite(g.rank[r][0][i]));
        }
        group_destroy(&group, &g);
    }
}

/* The bias's section, all of it zeros. */
static void put_bias(tw_packet_writer *writer)
{
    unsigned char *block;
    assert_int_equal(tw_packet_put_block(writer, sizeof(uint16_t) * BIAS, &block), TW_OK);
    memset(block, 0, sizeof(uint16_t) * BIAS);
}

/* Replaces every packet by a sound one that holds the largest float. */
static void send_largest(void *packets[], size_t sizes[], int size)
{
    const uint32_t index = 7;
    const float value = FLT_MAX;
    for (int r = 0; r < size; r++) {
        tw_packet_writer writer;
        tw_coding coding = {TW_VALUES_FP32, TW_INDICES_AUTO};
        tw_packet_begin(&writer, packets[r], sizes[r], 0, 0, 0);
        assert_int_equal(tw_packet_put_sparse(&writer, MATRIX, 1, &index, &value, coding), TW_OK);
        put_bias(&writer);
        sizes[r] = tw_packet_end(&writer);
    }
}

/* Packets that are finite, each by itself, and whose sum is not: no rank may apply that. */
TEST(test_a_sum_that_overflows_is_skipped)
{
    gradients g;
    loopback group;
    int skipped;
    group_create(&group, &g, "topk:density=0.01", table, 2, 2);
    fill(&g, 0, 1);
    assert_int_equal(loopback_step(&group, g.rank, -1, send_largest, &skipped), TW_OK);
    assert_int_equal(skipped, 1);
    fill(&g, 1, 1);
    assert_false(group_step(&group, &g));
    group_destroy(&group, &g);
}

/* fp16 ends at 65,504: the rest of a larger value comes in later steps. */
TEST(test_fp16_cuts_large_values_into_steps)
{
    gradients g;
    static const char *const specs[] = {"topk:density=0.001,values=fp16",
                                        "dgc:density=0.001,momentum=0,warmup_steps=0,values=fp16"};
    for (int s = 0; s < 2; s++) {
        loopback group;
        float came = 0;
        group_create(&group, &g, specs[s], table, 2, 1);
        for (int step = 0; step < 20; step++) {
            fill(&g, 0, 0);
            if (step == 0) g.rank[0][0][9] = 1e6f;
            (void)group_step(&group, &g);
            if (step == 0) assert_true(g.rank[0][0][9] == 65504);
            came += g.rank[0][0][9];
        }
        assert_true(came == 1e6f);
        group_destroy(&group, &g);
    }
}

/* ---- densities -------------------------------------------------------------------------------------------------- */

/* Around the densities where packets begin to cost more than a dense all-reduce, also within one warm-up: the sum is
 * that of what was taken, whichever road it went. */
static void check_roads(const char *spec, int size)
{
    gradients g;
    static double sent[MATRIX], given[MATRIX];
    loopback group;
    memset(sent, 0, sizeof sent);
    memset(given, 0, sizeof given);
    group_create(&group, &g, spec, table, 2, size);
    for (int step = 0; step < 6; step++) {
        fill(&g, step, 1);
        for (int r = 0; r < size; r++)
            for (size_t i = 0; i < MATRIX; i++) given[i] += (double)g.rank[r][0][i] / size;
        assert_false(group_step(&group, &g));
        for (size_t i = 0; i < MATRIX; i++) sent[i] += g.rank[0][0][i];
    }
    for (int r = 0; r < size; r++)
        for (size_t i = 0; i < MATRIX; i++) sent[i] += ((const float *)find(group.scheme[r], "residual", "w").data)[i];
    for (size_t i = 0; i < MATRIX; i++) assert_true(fabs(sent[i] - given[i]) < 1e-5);
    group_destroy(&group, &g);
}

TEST(test_either_road_gives_the_sum)
{
    for (int size = 1; size <= 9; size++) {
        check_roads("dgc:momentum=0,density=0.99,warmup_density=1,warmup_steps=2,values=fp32", size);
        check_roads("dgc:momentum=0,density=0.97,warmup_density=1,warmup_steps=2,values=fp16", size);
        check_roads("dgc:momentum=0,density=0.1,warmup_density=0.5,warmup_steps=4", size);
        check_roads("topk:density=0.5,values=fp32", size);
        check_roads("topk:density=0.5", size);
    }
}

TEST(test_either_road_counts_what_was_sent)
{
    gradients g;
    static const char *const specs[] = {"topk:density=0.3," LOOPBACK_EXACT, "topk:density=0.002"};
    static const uint64_t elements[] = {900, 16}, exact_bytes[] = {4 * BIAS, 2 * BIAS};
    for (int s = 0; s < 2; s++) {
        loopback group;
        group_create(&group, &g, specs[s], table, 2, 8);
        for (int step = 0; step < 2; step++) {
            fill(&g, step, 1);
            if (step == 1) g.rank[3][0][1] = NAN;
            (void)group_step(&group, &g);
            if (step == 0) assert_int_equal(cost_of(group.scheme[3]).elements_sent, elements[s]);
            if (step == 0) assert_int_equal(cost_of(group.scheme[3]).exact_bytes, exact_bytes[s]);
            if (step == 1) assert_int_equal(cost_of(group.scheme[3]).elements_sent, 0);
        }
        if (s == 0) assert_int_equal(cost_of(group.scheme[0]).packet_bytes, 4 * MATRIX); /* the wide road */
        group_destroy(&group, &g);
    }
}

/* Receivers make room for N packets of the step's density, not of the warm-up's. */
TEST(test_capacity_follows_the_density)
{
    gradients g;
    static const void *packet;
    size_t capacity[4], size;
    tw_scheme *scheme;
    gradients_create(&g, table, 2, 1);
    assert_int_equal(tw_scheme_create("dgc:density=0.01,warmup_density=0.16,warmup_steps=2", table, 2, 0, 1, &scheme),
                     TW_OK);
    for (int step = 0; step < 4; step++) {
        tw_round round = {0};
        fill(&g, step, 1);
        assert_int_equal(tw_scheme_begin(scheme, g.rank[0], -1), TW_OK);
        assert_int_equal(tw_scheme_next(scheme, &round), TW_OK);
        assert_int_equal(round.kind, TW_ROUND_ALLGATHER);
        assert_true(round.size <= round.capacity);
        capacity[step] = round.capacity;
        packet = round.data;
        size = round.size;
        round.packets = &packet;
        round.sizes = &size;
        while (round.kind != TW_ROUND_DONE) assert_int_equal(tw_scheme_next(scheme, &round), TW_OK);
    }
    assert_true(capacity[1] < capacity[0] && capacity[2] < capacity[1] && capacity[3] == capacity[2]);
    tw_scheme_destroy(scheme);
    gradients_destroy(&g);
}

/* A final density above the first of the ladder: there is no warm-up. */
TEST(test_no_warmup_from_below)
{
    gradients g;
    loopback group;
    group_create(&group, &g, "dgc:density=0.3,warmup_density=0.25,warmup_steps=9,min_dims=2", table, 2, 1);
    fill(&g, 0, 1);
    (void)group_step(&group, &g);
    assert_int_equal(cost_of(group.scheme[0]).elements_sent, 900);
    assert_int_equal(cost_of(group.scheme[0]).warmup, 0);
    group_destroy(&group, &g);
}

/* ---- what is compressed ----------------------------------------------------------------------------------------- */

static void check_plan_of(const char *spec, const tw_tensor *tensor, int ranks, const char *plan)
{
    tw_scheme *scheme;
    assert_int_equal(tw_scheme_create(spec, tensor, 1, 0, ranks, &scheme), TW_OK);
    assert_string_equal(scheme->tensors[0].plan, plan);
    tw_scheme_destroy(scheme);
}

static void check_tensor_plan(const char *spec, const tw_tensor *tensor, const char *plan)
{
    check_plan_of(spec, tensor, 4, plan);
}

static void check_group_plan(const char *spec, int ranks, const char *plan)
{
    check_plan_of(spec, &(tw_tensor){"w", 2, {20, 30}}, ranks, plan);
}

static void check_plan(const char *spec, const char *name, const char *plan)
{
    tw_tensor tensor = {name, 2, {20, 30}};
    check_tensor_plan(spec, &tensor, plan);
}

TEST(test_plans_say_what_happens)
{
    check_plan("allreduce", "head.weight", "allreduce");
    check_plan("topk:density=0.05", "head.weight", "topk: 30 of 600 elements");
    check_plan("dgc:density=0.1", "head.weight", "dgc: 60 of 600 elements");
    /* 34.6 bits each with values of 32, so 16 on average: half of fp32. */
    check_plan("topk:density=0.46,values=fp32", "head.weight", "topk: 276 of 600 elements");
    check_plan("topk:density=0.47,values=fp32", "head.weight", "topk: 282 of 600 elements, sent dense: that is less");
    check_plan("topk:density=0.99", "head.weight", "topk: 594 of 600 elements");
    check_plan("dgc:density=0.9,values=fp32", "head.weight", "dgc: 540 of 600 elements, sent dense: that is less");
    check_plan("dgc:min_elements=601", "head.weight", "dense bf16: 600 elements < min_elements=601");
    check_plan("dgc:min_elements=600,density=0.1", "head.weight", "dgc: 60 of 600 elements");
    check_plan("dgc:dense=head.*", "head.weight", "dense bf16: dense=head.*");
    check_plan("dgc:dense=a|*.w?ight", "head.weight", "dense bf16: dense=a|*.w?ight");
    check_plan("dgc:dense=head|weight|,density=0.1", "head.weight", "dgc: 60 of 600 elements");
    check_plan("dgc:dense=,density=0.1", "head.weight", "dgc: 60 of 600 elements");
    check_group_plan("dgc:dense=,density=0.1,exchange=scatter", 8, "dgc: 60 of 600 elements, in pieces");
    check_group_plan("threshold", 100, "threshold: those above 0.005, at most 60 of 600 elements");
    check_group_plan("threshold", 200,
                     "threshold: those above 0.005, at most 60 of 600 elements, sent dense: that is less");
    check_group_plan("adacomp:bin=50", 200, "adacomp: what stands out in bins of 50, at most 30 of 600 elements");
    check_group_plan("adacomp:bin=50", 300,
                     "adacomp: what stands out in bins of 50, at most 30 of 600 elements, sent dense: that is less");
    /* 308 bytes, and to each of N ranks a header of 24, or 2,400. */
    check_group_plan("qsgd", 4, "qsgd: 4.11 bits an element");
    check_group_plan("qsgd", 5, "qsgd: 4.11 bits an element, in pieces: that is less");
    check_group_plan("qsgd", 8, "qsgd: 4.11 bits an element, in pieces: that is less");
    check_group_plan("qsgd", 87, "qsgd: 4.11 bits an element, in pieces: that is less");
    check_group_plan("qsgd", 88, "dense bf16: that is less than in pieces");
    check_group_plan("qsgd:exchange=scatter", 88, "qsgd: 4.11 bits an element, in pieces: that is less");
    check_group_plan("qsgd:exchange=gather", 15, "qsgd: 4.11 bits an element");
    check_group_plan("qsgd:exchange=gather", 16, "qsgd: 4.11 bits an element, sent dense: that is less");
    check_tensor_plan("topk", &(tw_tensor){"bias", 1, {600}}, "dense bf16: 1 dimension");
    check_tensor_plan("dgc", &(tw_tensor){"bias", 1, {600}}, "dense bf16: 1 dimension");
    check_tensor_plan("dgc", &(tw_tensor){"scalar", 0, {0}}, "dense bf16: 0 dimensions");
    check_tensor_plan("dgc:min_dims=3,leftovers=fp32", &(tw_tensor){"w", 2, {20, 30}}, "dense fp32: 2 dimensions");
    check_tensor_plan("dgc:density=0.1,min_dims=1", &(tw_tensor){"bias", 1, {600}}, "dgc: 60 of 600 elements");
    check_tensor_plan("sdagc-bold", &(tw_tensor){"bias", 1, {1}},
                      "sdagc-bold: 1 of 1 elements, sent dense: that is less");
    check_tensor_plan("dgc:min_dims=0,min_elements=1", &(tw_tensor){"scalar", 0, {0}},
                      "dgc: 1 of 1 elements, sent dense: that is less");
}

/* ---- order of calls --------------------------------------------------------------------------------------------- */

TEST(test_revert_takes_back_one_step_and_no_more)
{
    gradients g;
    static float residual[MATRIX], velocity[BIAS];
    loopback group;
    group_create(&group, &g, "dgc:density=0.01,warmup_steps=0,min_dims=2", table, 2, 1);
    float *now = find(group.scheme[0], "momentum", "b").data, *v = find(group.scheme[0], "residual", "w").data;
    now[3] = v[3] = 2;
    assert_int_equal(tw_scheme_revert(group.scheme[0]), TW_OK); /* no step yet: what was loaded stays */
    assert_true(now[3] == 2 && v[3] == 2);
    for (int step = 0; step < 3; step++) {
        fill(&g, step, 1);
        memcpy(velocity, now, sizeof velocity);
        (void)group_step(&group, &g);
        assert_memory_not_equal(now, velocity, sizeof velocity);
        for (size_t i = 0; i < MATRIX; i++) residual[i] = g.rank[0][0][i] + v[i];
        for (int times = 0; times < 2; times++) {
            assert_int_equal(tw_scheme_revert(group.scheme[0]), TW_OK);
            assert_memory_equal(now, velocity, sizeof velocity); /* a bias's step is lost whole, its momentum, too */
            assert_memory_equal(v, residual, sizeof residual);   /* a weight's waits in the residual */
        }
    }
    group_destroy(&group, &g);
}

static void cut_off(void *packets[], size_t sizes[], int size)
{
    (void)packets;
    sizes[size - 1]--;
}

/* A sound packet of three sections, where two were agreed. */
static void add_section(void *packets[], size_t sizes[], int size)
{
    const uint32_t index = 7;
    const float value = 1;
    tw_packet_writer writer;
    tw_coding coding = {TW_VALUES_FP32, TW_INDICES_AUTO};
    tw_packet_begin(&writer, packets[size - 1], sizes[size - 1], 0, 0, 0);
    assert_int_equal(tw_packet_put_sparse(&writer, MATRIX, 1, &index, &value, coding), TW_OK);
    put_bias(&writer);
    assert_int_equal(tw_packet_put_sparse(&writer, MATRIX, 0, NULL, NULL, coding), TW_OK);
    sizes[size - 1] = tw_packet_end(&writer);
}

TEST(test_left_over_sections_are_refused)
{
    gradients g;
    loopback group;
    int skipped;
    group_create(&group, &g, "topk", table, 2, 2);
    fill(&g, 0, 1);
    assert_int_equal(loopback_step(&group, g.rank, -1, add_section, &skipped), TW_ERROR_PACKET);
    assert_non_null(strstr(tw_last_error(), "sections"));
    group_destroy(&group, &g);
}

/* After a failed round no call pretends that the step ended well. */
TEST(test_a_failed_scheme_stays_failed)
{
    gradients g;
    loopback group;
    tw_round round = {0};
    int skipped;
    group_create(&group, &g, "topk", table, 2, 2);
    fill(&g, 0, 1);
    assert_int_equal(loopback_step(&group, g.rank, -1, cut_off, &skipped), TW_ERROR_PACKET);
    assert_int_equal(tw_scheme_next(group.scheme[0], &round), TW_ERROR_ORDER);
    assert_int_equal(tw_scheme_begin(group.scheme[0], g.rank[0], -1), TW_ERROR_ORDER);
    assert_non_null(strstr(tw_last_error(), "destroy it"));
    group_destroy(&group, &g);
}

/* ---- numbers in specs ------------------------------------------------------------------------------------------- */

TEST(test_numbers_do_not_depend_on_the_language)
{
    tw_scheme *scheme = NULL;
    if (!choose_decimal_comma()) skip();
    tw_status status = tw_scheme_create("dgc:density=0.25", table, 2, 0, 1, &scheme);
    tw_status with_comma = tw_scheme_create("dgc:density=0,25", table, 2, 0, 1, &scheme);
    setlocale(LC_ALL, "C");
    assert_int_equal(status, TW_OK);
    assert_int_equal(with_comma, TW_ERROR_SPEC);
    tw_scheme_destroy(scheme);
}

TEST(test_blanks_are_no_numbers)
{
    tw_scheme *scheme;
    static const char *const specs[] = {"dgc:density= 0.1", "dgc:density=\t0.1", "dgc:density=0.1 ", "dgc:density= "};
    for (int s = 0; s < 4; s++) assert_int_equal(tw_scheme_create(specs[s], table, 2, 0, 1, &scheme), TW_ERROR_SPEC);
}

RUN_TESTS(NULL, NULL)
