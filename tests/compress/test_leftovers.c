/* The tensors a scheme does not compress, in half precision: what rounding loses is kept, on numbers that floats add
 * exactly, and comes with a later step. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "conformance.h"
#include "gradients.h"
#include "half.h"
#include "packet.h"
#include "support/cmocka.h"

enum { MATRIX = 300, BIAS = 40, RANKS = 4 };
static const tw_tensor table[] = {{"w", 2, {15, 20}}, {"b", 1, {BIAS}}};
static const tw_tensor bias_alone[] = {{"b", 1, {BIAS}}};

/* Multiples of 1/4 with more bits than half precision holds, and whose sums fp32 holds. */
static float wide_numbers(int step, int rank, size_t i)
{
    return rintf(normal(step, rank, i) * 4096) / 4;
}

/* What a scheme remembers of the rounding of "b": where it lies. */
static const float *rounding_of(tw_scheme *scheme)
{
    return find(scheme, "rounding", "b").data;
}

static void run_step(loopback *group, batch *b, int expected_skip)
{
    int skipped;
    assert_int_equal(loopback_step(group, b->ranks, -1, NULL, &skipped), TW_OK);
    assert_int_equal(skipped, expected_skip);
}

/* ---- conservation ----------------------------------------------------------------------------------------------- */

/* Every sum of half-precision numbers is rounded once more on its way back, so one rank is what can be exact. */
static void check_nothing_is_lost(const char *spec)
{
    enum { STEPS = 60 };
    double given[BIAS] = {0};
    loopback group;
    int rounded = 0;
    batch *b = batch_create(table, 2);
    assert_int_equal(loopback_create(&group, spec, table, 2, 1), TW_OK);
    for (int step = 0; step < STEPS; step++) {
        batch_fill(b, RANKS, wide_numbers, step);
        for (size_t i = 0; i < BIAS; i++) given[i] += b->tensors[0][1][i];
        run_step(&group, b, 0);
        if (step % 7 == 6) {
            assert_int_equal(tw_scheme_revert(group.scheme[0]), TW_OK);
            continue;
        }
        for (size_t i = 0; i < BIAS; i++) given[i] -= b->tensors[0][1][i];
    }
    const float *left = rounding_of(group.scheme[0]);
    for (size_t i = 0; i < BIAS; i++) {
        assert_true(given[i] == left[i]);
        rounded += left[i] != 0;
    }
    assert_true(rounded > BIAS / 2); /* or the numbers were too short to tell */
    loopback_destroy(&group);
    batch_destroy(b);
}

TEST(test_what_rounding_loses_comes_later)
{
    check_nothing_is_lost("topk:leftovers=bf16");
    check_nothing_is_lost("topk:leftovers=fp16");
}

TEST(test_full_precision_keeps_nothing)
{
    loopback group;
    assert_int_equal(loopback_create(&group, "topk:leftovers=fp32", table, 2, 1), TW_OK);
    assert_null(rounding_of(group.scheme[0]));
    loopback_destroy(&group);
}

/* No sum of N shares leaves fp16: a rank sends at most 65,504 / N, and the rest of a larger value in later steps. */
TEST(test_fp16_ends_at_a_share_of_its_largest)
{
    for (int size = 1; size <= 8; size++) {
        loopback group;
        double came = 0;
        float most = 65504.0F / (float)size;
        batch *b = batch_create(table, 2);
        assert_int_equal(loopback_create(&group, "topk:leftovers=fp16", table, 2, size), TW_OK);
        for (int step = 0; step < 20 * size; step++) {
            for (int r = 0; r < size; r++) {
                memset(b->values[r], 0, b->elements * sizeof(float));
                b->tensors[r][1][3] = step ? 0 : (float)size * 0x1p20F; /* scaled 2^20: 17 size times its most */
            }
            run_step(&group, b, 0);
            came += b->tensors[0][1][3];
            if (step > 0) continue;
            float left = rounding_of(group.scheme[0])[3], sent = 0x1p20F * ((float)size * (1.0F / (float)size)) - left;
            assert_true(sent <= most && sent > 0.999F * most && tw_from_fp16(tw_to_fp16(sent)) == sent);
            assert_true(b->tensors[0][1][3] <= 65504);
        }
        assert_true(fabs(came / size - 0x1p20) < 0x1p20 * 1e-3); /* each sum is rounded to fp16 */
        loopback_destroy(&group);
        batch_destroy(b);
    }
}

/* ---- steps that are skipped ------------------------------------------------------------------------------------- */

static void snapshot(loopback *group, float before[RANKS][BIAS])
{
    for (int r = 0; r < group->size; r++) memcpy(before[r], rounding_of(group->scheme[r]), sizeof before[r]);
}

/* Every third step is skipped, by a NaN in element `at` of one rank, or infinity. The healthy ranks had put their
 * gradient in, and get it back; what the sick one had left of other steps is as before. */
static void check_skipped(const tw_tensor *message, size_t count, size_t at, size_t bias)
{
    enum { SICK = 2 };
    static float before[RANKS][BIAS];
    loopback group;
    batch *b = batch_create(message, count);
    assert_int_equal(loopback_create(&group, "topk", message, count, RANKS), TW_OK);
    for (int step = 0; step < 9; step++) {
        int sick = step % 3 == 2;
        batch_fill(b, RANKS, wide_numbers, step);
        if (sick) b->values[SICK][at] = step == 5 ? INFINITY : NAN;
        snapshot(&group, before);
        run_step(&group, b, sick);
        for (int r = 0; sick && r < RANKS; r++)
            for (size_t i = 0; i < BIAS; i++) {
                float kept = before[r][i] + (r == SICK ? 0 : wide_numbers(step, r, bias + i) / RANKS);
                assert_true(rounding_of(group.scheme[r])[i] == kept);
            }
    }
    loopback_destroy(&group);
    batch_destroy(b);
}

/* A message of biases alone: the NaN shows in their own all-reduce. */
TEST(test_a_skipped_all_reduce_gives_back_what_was_sent)
{
    check_skipped(bias_alone, 1, 7, 0);
}

/* The NaN shows in the packets, in which the healthy ranks' leftovers are. */
TEST(test_a_skipped_packet_gives_back_what_was_in_it)
{
    check_skipped(table, 2, 0, MATRIX);
}

/* The same without anybody looking in between: looking settles the residual, and what a revert does to a residual that
 * is not settled is the point. Two groups, one of which meets skipped and reverted steps, end with the same sums. */
TEST(test_unsettled_residuals_survive_a_skipped_step)
{
    loopback plain, disturbed;
    batch *a = batch_create(table, 2), *b = batch_create(table, 2);
    assert_int_equal(loopback_create(&plain, "topk:density=1,values=fp32", table, 2, RANKS), TW_OK);
    assert_int_equal(loopback_create(&disturbed, "topk:density=1,values=fp32", table, 2, RANKS), TW_OK);
    for (int step = 0; step < 10; step++) {
        batch_fill(a, RANKS, wide_numbers, step);
        batch_fill(b, RANKS, wide_numbers, step);
        run_step(&plain, a, 0);
        run_step(&disturbed, b, 0);
        assert_memory_equal(a->tensors[0][1], b->tensors[0][1], BIAS * sizeof(float));
        for (int r = 0; r < RANKS; r++) memset(b->values[r], 0, b->elements * sizeof(float));
        b->values[step % RANKS][MATRIX + 1] = NAN;
        run_step(&disturbed, b, 1);
    }
    for (int r = 0; r < RANKS; r++)
        assert_memory_equal(rounding_of(plain.scheme[r]), rounding_of(disturbed.scheme[r]), BIAS * sizeof(float));
    loopback_destroy(&plain);
    loopback_destroy(&disturbed);
    batch_destroy(a);
    batch_destroy(b);
}

/* A scheme that goes back to a state of a step before meets that step's number twice. What it sent the first time is
 * none of the second's business, in which it sends nothing. */
TEST(test_going_back_to_a_state_forgets_what_was_sent)
{
    static float before[RANKS][BIAS];
    tw_state *saved[RANKS];
    loopback group;
    batch *b = batch_create(bias_alone, 1);
    assert_int_equal(loopback_create(&group, "topk", bias_alone, 1, RANKS), TW_OK);
    for (int step = 0; step < 2; step++) {
        snapshot(&group, before);
        for (int r = 0; step == 1 && r < RANKS; r++) assert_non_null(saved[r] = loopback_save(group.scheme[r], ""));
        batch_fill(b, RANKS, wide_numbers, step);
        run_step(&group, b, 0);
    }
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(tw_scheme_load_state(group.scheme[r], "", saved[r]), TW_OK);
        b->values[r][0] = NAN;
    }
    run_step(&group, b, 1);
    for (int r = 0; r < RANKS; r++) {
        assert_memory_equal(rounding_of(group.scheme[r]), before[r], sizeof before[r]);
        tw_state_destroy(saved[r]);
    }
    loopback_destroy(&group);
    batch_destroy(b);
}

/* ---- in the packets or in an all-reduce -------------------------------------------------------------------------- */

/* A bias in the packets of its matrix, and one that has its message to itself: the same bits. */
static void check_riding(const char *leftovers)
{
    char spec[64];
    loopback riding, alone;
    batch *a = batch_create(table, 2), *b = batch_create(bias_alone, 1);
    snprintf(spec, sizeof spec, "topk:leftovers=%s", leftovers);
    assert_int_equal(loopback_create(&riding, spec, table, 2, RANKS), TW_OK);
    assert_int_equal(loopback_create(&alone, spec, bias_alone, 1, RANKS), TW_OK);
    for (int step = 0; step < 20; step++) {
        batch_fill(a, RANKS, normal, step);
        for (int r = 0; r < RANKS; r++) memcpy(b->values[r], a->tensors[r][1], BIAS * sizeof(float));
        run_step(&riding, a, 0);
        run_step(&alone, b, 0);
        for (int r = 0; r < RANKS; r++) assert_memory_equal(a->tensors[r][1], b->tensors[r][0], BIAS * sizeof(float));
    }
    loopback_destroy(&riding);
    loopback_destroy(&alone);
    batch_destroy(a);
    batch_destroy(b);
}

TEST(test_riding_changes_no_bit)
{
    check_riding("fp32");
    check_riding("fp16");
    check_riding("bf16");
}

/* How many rounds a step of `size` ranks takes beside a bias of `count` elements, in bf16. */
static int rounds_beside(size_t count, int size)
{
    static float gradient[1 << 17];
    const tw_tensor message[] = {{"w", 2, {15, 20}}, {"b", 1, {count}}};
    float *tensors[] = {gradient, gradient + MATRIX};
    loopback group;
    tw_round round[LOOPBACK_RANKS] = {0};
    int rounds = -1;
    assert_true(MATRIX + count <= sizeof gradient / sizeof *gradient);
    assert_int_equal(loopback_create(&group, "topk", message, 2, size), TW_OK);
    for (int r = 0; r < size; r++) assert_int_equal(tw_scheme_begin(group.scheme[r], tensors, -1), TW_OK);
    do {
        if (++rounds) assert_int_equal(loopback_deliver(&group, round, NULL), TW_OK);
        for (int r = 0; r < size; r++) assert_int_equal(tw_scheme_next(group.scheme[r], &round[r]), TW_OK);
    } while (round[0].kind != TW_ROUND_DONE);
    loopback_destroy(&group);
    return rounds;
}

/* (N-1)(N-2)/N times their bytes more than an all-reduce are 32,768 at most. */
TEST(test_few_ride_and_many_do_not)
{
    assert_int_equal(rounds_beside(100000, 1), 1);
    assert_int_equal(rounds_beside(100000, 2), 1);
    assert_int_equal(rounds_beside(10922, 4), 1); /* 1.5 times 21,844 */
    assert_int_equal(rounds_beside(10923, 4), 2);
    assert_int_equal(rounds_beside(1248, 16), 1); /* 13.125 times 2,496 */
    assert_int_equal(rounds_beside(1249, 16), 2);
}

/* What rank 3's section of the bias holds instead; less than 0: it has none. */
static int forged_halves, forged_half, forged_odd;

static void forge(void *packets[], size_t sizes[], int size)
{
    tw_packet_writer writer;
    unsigned char *block;
    tw_packet_begin(&writer, packets[size - 1], sizes[size - 1], 0, 0, 0);
    assert_int_equal(tw_packet_put_sparse(&writer, MATRIX, 0, NULL, NULL, (tw_coding){0}), TW_OK);
    if (forged_halves >= 0) {
        size_t bytes = 2 * (size_t)forged_halves + (size_t)forged_odd;
        assert_int_equal(tw_packet_put_block(&writer, bytes, &block), TW_OK);
        memset(block, 0, bytes);
        uint16_t half = (uint16_t)forged_half;
        if (forged_halves) memcpy(block + bytes - 2, &half, 2);
    }
    sizes[size - 1] = tw_packet_end(&writer);
}

static void check_forged(int halves, int odd, int half, const char *told)
{
    loopback group;
    int skipped;
    batch *b = batch_create(table, 2);
    forged_halves = halves, forged_odd = odd, forged_half = half;
    batch_fill(b, RANKS, normal, 0);
    assert_int_equal(loopback_create(&group, "topk", table, 2, RANKS), TW_OK);
    tw_status status = loopback_step(&group, b->ranks, -1, forge, &skipped);
    assert_int_equal(status, told ? TW_ERROR_PACKET : TW_OK);
    if (told && !(strstr(tw_last_error(), told) && strstr(tw_last_error(), "from rank 3")))
        fail_msg("%s", tw_last_error());
    loopback_destroy(&group);
    batch_destroy(b);
}

TEST(test_wrong_sections_are_refused)
{
    check_forged(BIAS, 0, 0x3F80, NULL);
    check_forged(-1, 0, 0, "one more than the packet has");
    check_forged(BIAS - 1, 0, 0, "another length");
    check_forged(BIAS - 1, 1, 0, "another length");
    check_forged(0, 0, 0, "another length");
    check_forged(BIAS, 0, 0x7F80, "NaN or infinity");
    check_forged(BIAS, 0, 0xFF80, "NaN or infinity");
    check_forged(BIAS, 0, 0x7FC0, "NaN or infinity");
}

/* Every rank's bias as large as bf16 has it, and sound as a packet. */
static void send_largest(void *packets[], size_t sizes[], int size)
{
    static const unsigned char largest[] = {0x7F, 0x7F};
    for (int r = 0; r < size; r++) {
        tw_packet_writer writer;
        unsigned char *block;
        tw_packet_begin(&writer, packets[r], sizes[r], 0, 0, 0);
        assert_int_equal(tw_packet_put_sparse(&writer, MATRIX, 0, NULL, NULL, (tw_coding){0}), TW_OK);
        assert_int_equal(tw_packet_put_block(&writer, 2 * BIAS, &block), TW_OK);
        memset(block, 0, 2 * BIAS);
        memcpy(block + 10, largest, 2);
        sizes[r] = tw_packet_end(&writer);
    }
}

/* A sum that overflows skips the step, and the residuals have all of the step's gradients. */
TEST(test_a_sum_that_overflows_is_skipped)
{
    loopback group;
    int skipped;
    batch *b = batch_create(table, 2);
    batch_fill(b, RANKS, wide_numbers, 0);
    assert_int_equal(loopback_create(&group, "topk", table, 2, RANKS), TW_OK);
    assert_int_equal(loopback_step(&group, b->ranks, -1, send_largest, &skipped), TW_OK);
    assert_int_equal(skipped, 1);
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < BIAS; i++)
            assert_true(rounding_of(group.scheme[r])[i] == wide_numbers(0, r, MATRIX + i) / RANKS);
    loopback_destroy(&group);
    batch_destroy(b);
}

/* ---- what is left over ------------------------------------------------------------------------------------------ */

TEST(test_min_dims_has_the_last_word_on_biases)
{
    static const struct {
        const char *spec;
        uint64_t sent, exact_bytes;
    } cases[] = {{"topk:min_sent=3,density=0.01", 3, 2 * BIAS},
                 {"topk:min_sent=3,density=0.01,min_dims=1", 3, 2 * BIAS}, /* fewer than min_elements */
                 {"topk:min_sent=3,density=0.01,min_dims=1,min_elements=40", 6, 0},
                 {"topk:min_sent=3,density=0.01,min_dims=3,min_elements=40", 0, 2 * (MATRIX + BIAS)},
                 {"topk:min_sent=3,density=0.01,min_dims=3,leftovers=fp32", 0, 4 * (MATRIX + BIAS)}};
    batch *b = batch_create(table, 2);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        loopback group;
        assert_int_equal(loopback_create(&group, cases[c].spec, table, 2, 1), TW_OK);
        batch_fill(b, RANKS, normal, 0);
        run_step(&group, b, 0);
        tw_cost cost = cost_of(group.scheme[0]);
        assert_int_equal(cost.elements_sent, cases[c].sent);
        assert_int_equal(cost.exact_bytes, cases[c].exact_bytes);
        loopback_destroy(&group);
    }
    batch_destroy(b);
}

RUN_TESTS(NULL, NULL)
