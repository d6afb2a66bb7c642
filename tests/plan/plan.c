/* What is predicted of each candidate, beside closed forms; and how the choice follows the line. */
#include "plan.h"
#include "inquiry.h"
#include "layout.h"
#include "line.h"
#include "median.h"
#include "row.h"
#include "support/language.h"
#include "support/parts.h"
#include "support/ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_plan.h>

#define PASS 0.02
#define MBIT 125000.0 /* bytes a second */
enum { WORKERS = 4 };

static tw_plan_question ask(const layout *tensors, double rate, double latency, tw_plan_optimizer optimizer,
                            uint64_t steps)
{
    return (tw_plan_question){.struct_size = sizeof(tw_plan_question),
                              .tensors = tensors->tensors,
                              .tensor_count = tensors->count,
                              .workers = WORKERS,
                              .optimizer = optimizer,
                              .steps = steps,
                              .seed = 1,
                              .pass_seconds = PASS,
                              .codec_rate = 10e9,
                              .bandwidth = rate,
                              .bandwidth_down = rate,
                              .latency = latency,
                              .simulate = tw_world_play};
}

static tw_plan *make(const tw_plan_question *question)
{
    tw_plan *plan;
    assert_ok(tw_plan_make(question, &plan));
    return plan;
}

/* The codec's own time is small beside such a line. */
static void assert_close(double value, double expected)
{
    if (!(fabs(value - expected) <= 0.02 * expected)) fail_msg("%.6g is not %.6g", value, expected);
}

/* Each of N workers sends 2 (N - 1) parts of a N-th of the values. In slices, so that its line is never idle; the last
 * one is on its way for the latency. */
static double dense_seconds(const layout *t, double rate, double latency)
{
    double part = (double)t->elements * sizeof(float) / WORKERS;
    return 2 * (WORKERS - 1) * part / rate + latency;
}

/* A step's pass is short beside the exchange, so little overlaps but what streaming lets travel while it takes a
 * step. When the run ends, all that it sends in parts meets once more. */
TEST(test_closed_forms)
{
    const tw_tensor both[] = {{"one", 2, {500, 250}}, {"other", 2, {500, 250}}};
    const double rate = 10 * MBIT, latency = 0.001;
    layout t;
    assert_ok(layout_copy(both, 2, &t));
    tw_plan_question q = ask(&t, rate, latency, TW_PLAN_ADAMW, 1000);
    tw_plan *plan = make(&q);
    double exchange = dense_seconds(&t, rate, latency), dense = PASS + exchange, local = PASS + exchange / 20;
    tw_plan_row allreduce = row_of(plan, "allreduce"), diloco = row_of(plan, "diloco:every=20");
    tw_plan_row streaming = row_of(plan, "streaming:every=20,fragments=2");
    assert_close(allreduce.step_seconds, dense);
    assert_close(allreduce.utilisation, PASS / dense);
    assert_close(allreduce.bytes_per_step, 2.0 * (WORKERS - 1) / WORKERS * 1e6);
    assert_close(diloco.step_seconds, local);
    assert_close(diloco.bytes_per_step, allreduce.bytes_per_step / 20);
    double half = exchange / 2;
    assert_close(streaming.step_seconds, PASS + 2 * (half - PASS) / 20 + exchange / 1000);
    assert_close(streaming.bytes_per_step, diloco.bytes_per_step * (1 + 20.0 / 1000));
    assert_close(streaming.end_seconds, exchange);
    assert_true(diloco.end_seconds < 0.01 * exchange);
    assert_true(allreduce.end_seconds == 0);
    assert_close(diloco.target_seconds, diloco.step_seconds * (1 + diloco.extra));
    tw_plan_destroy(plan);
    layout_release(&t);
}

/* In an all-reduce each worker receives as much as it sends, so the slower direction alone decides, whichever it is. */
TEST(test_a_line_whose_directions_differ)
{
    static const double rates[][2] = {{10, 10}, {10, 100}, {100, 10}};
    const tw_tensor both[] = {{"one", 2, {500, 250}}, {"other", 2, {500, 250}}};
    const double latency = 0.001;
    layout t;
    assert_ok(layout_copy(both, 2, &t));
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        tw_plan_question q = ask(&t, rates[i][0] * MBIT, latency, TW_PLAN_ADAMW, 1000);
        q.bandwidth_down = rates[i][1] * MBIT;
        tw_plan *plan = make(&q);
        double exchange = dense_seconds(&t, 10 * MBIT, latency);
        assert_close(row_of(plan, "allreduce").step_seconds, PASS + exchange);
        assert_close(row_of(plan, "diloco:every=20").step_seconds, PASS + exchange / 20);
        tw_plan_destroy(plan);
    }
    layout_release(&t);
}

/* Whatever the length of the run, and of a table that is thinned out for it. */
TEST(test_bytes_of_any_spec)
{
    static const struct {
        const char *spec;
        double share; /* of what an all-reduce sends */
    } rows[] = {{"allreduce", 1},
                {"bf16", 0.5},
                {"local:every=7", 1.0 / 7},
                {"diloco:every=50,exchange=bf16", 0.5 / 50},
                {"local:every=4,exchange=topk,density=0.01,values=fp32,indices=bitmap", 0.04125 / 4},
                {"local:every=4,exchange=dgc,density=0.01,values=fp32,indices=bitmap,momentum=0,warmup_steps=100",
                 0.04125 / 4}};
    const tw_tensor both[] = {{"one", 2, {500, 250}}, {"other", 2, {500, 250}}};
    layout t;
    double bytes;
    assert_ok(layout_copy(both, 2, &t));
    tw_plan_question q = ask(&t, 10 * MBIT, 0.001, TW_PLAN_SGD, 0);
    q.workers = 2;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (q.elements = 0; q.elements <= 125000; q.elements += 125000) {
            assert_ok(tw_plan_bytes(&q, rows[i].spec, &bytes));
            assert_close(bytes, rows[i].share * 1e6);
        }
    assert_fails(tw_plan_bytes(&q, "local:every=4,exchange=none", &bytes), TW_ERROR_SPEC, "none");
    q.workers = 1;
    assert_fails(tw_plan_bytes(&q, "allreduce", &bytes), TW_ERROR_ARGUMENT, "alone");
    layout_release(&t);
}

static void check_choice_with(const layout *t, double rate, double latency, double pass, uint64_t steps,
                              const char *const *among)
{
    tw_plan_question q = ask(t, rate, latency, TW_PLAN_ADAMW, steps);
    q.pass_seconds = pass;
    tw_plan *plan = make(&q);
    char chosen[PLAN_SPEC];
    snprintf(chosen, sizeof chosen, "%s", plan_chosen(plan).spec);
    tw_plan_destroy(plan);
    for (; *among; among++)
        if (strncmp(chosen, *among, strlen(*among)) == 0) return;
    fail_msg("%s was chosen at %g Mbit/s", chosen, rate / MBIT);
}

static void check_choice(const layout *t, double rate, double latency, const char *const *among)
{
    check_choice_with(t, rate, latency, 10 * PASS, 3000, among);
}

TEST(test_the_choice_follows_the_line)
{
    static const char *const dense[] = {"allreduce", NULL},
                             *const least[] = {"diloco", "streaming", "sparse", "dgc-adam:density", NULL},
                             *const compressed[] = {"bf16", "fp8", "qsgd", "powersgd", NULL};
    layout t;
    assert_ok(layout_create("250k", &t));
    check_choice(&t, 2500 * MBIT, 5e-5, dense);
    check_choice(&t, 25 * MBIT, 2e-4, compressed);
    check_choice(&t, 2.5 * MBIT, 0.02, least);
    layout_release(&t);
}

/* Four workers, AdamW, a pass of 20 ms: where the line is slow, compression behind the moments is better than local
 * steps, which take more of them, and than what sends more. At 1 Gbit/s the simpler ones are as fast. */
TEST(test_what_adamw_takes_over_slow_lines)
{
    static const char *const adam[] = {"dgc-adam", NULL}, *const simple[] = {"bf16", "qsgd", NULL};
    layout t;
    if (!in_part(0, 1)) skip();
    assert_ok(layout_create("115136", &t));
    check_choice_with(&t, 10 * MBIT, 5e-3, PASS, 2000, adam);
    check_choice_with(&t, 100 * MBIT, 1e-3, PASS, 2000, adam);
    check_choice_with(&t, 1000 * MBIT, 1e-4, PASS, 2000, simple);
    layout_release(&t);
}

/* LoRA of rank 8 beside the matrices of a GPT-2's attention, four workers and AdamW, in a run that is shorter than
 * those of whole networks were. */
TEST(test_adapters_have_costs_of_their_own)
{
    enum { MATRICES = 24, STEPS = 300 };
    tw_tensor table[MATRICES];
    char names[MATRICES][16];
    for (size_t i = 0; i < MATRICES; i++) {
        snprintf(names[i], sizeof names[i], "adapter%zu", i);
        table[i] = i % 2 ? (tw_tensor){names[i], 2, {2304, 8}} : (tw_tensor){names[i], 2, {8, 768}};
    }
    layout t;
    assert_ok(layout_copy(table, MATRICES, &t));
    tw_plan_question q = ask(&t, 100 * MBIT, 1e-3, TW_PLAN_ADAMW, STEPS);
    q.pass_seconds = 0.1;
    tw_plan *plan = make(&q);
    assert_string_equal(plan_chosen(plan).spec, "allreduce");
    tw_plan_destroy(plan);
    q.adapters = 1;
    plan = make(&q);
    assert_string_not_equal(plan_chosen(plan).spec, "allreduce");
    assert_non_null(strstr(plan_chosen(plan).seen, "adapters"));
    assert_non_null(strstr(tw_plan_why(plan), "Measured on small networks with few seeds, in docs/planning.md: "));
    tw_plan_destroy(plan);
    q.optimizer = TW_PLAN_SGD; /* with which nobody has measured adapters */
    q.steps = 1000;
    plan = make(&q);
    assert_null(strstr(row_of(plan, "diloco:every=20").seen, "adapters"));
    tw_plan_destroy(plan);
    layout_release(&t);
}

static void assert_left_out(const tw_plan *plan, const char *spec, const char *why)
{
    tw_plan_row row = row_of(plan, spec);
    if (why ? !row.left_out || !strstr(row.left_out, why) : row.left_out != NULL)
        fail_msg("%s: left out, for \"%s\"", spec, row.left_out ? row.left_out : "nothing");
}

TEST(test_who_stays_in)
{
    layout t;
    assert_ok(layout_create("1k", &t));
    tw_plan_question q = ask(&t, MBIT, 1e-3, TW_PLAN_ADAMW, 3000);
    tw_plan *plan = make(&q);
    assert_left_out(plan, "dgc", "scheme dgc applies momentum");
    assert_left_out(plan, "dgc-adam", NULL);
    assert_left_out(plan, "qsgd", NULL);
    tw_plan_destroy(plan);
    q.optimizer = TW_PLAN_ADAM;
    plan = make(&q);
    assert_left_out(plan, "dgc-adam", "AdamW alone");
    tw_plan_destroy(plan);
    q.optimizer = TW_PLAN_SGD;
    q.steps = 49;
    plan = make(&q);
    assert_left_out(plan, "dgc-adam", "AdamW alone");
    assert_left_out(plan, "dgc", NULL);
    assert_left_out(plan, "diloco:every=50", "the run has 49");
    assert_left_out(plan, "diloco:every=20", NULL);
    tw_plan_destroy(plan);
    q.keeps_momentum = 1;
    plan = make(&q);
    assert_left_out(plan, "dgc", "another one is asked for");
    assert_left_out(plan, "qsgd", NULL);
    tw_plan_destroy(plan);
    q.optimizer = TW_PLAN_ADAMW;
    plan = make(&q);
    assert_left_out(plan, "dgc",
                    "thinwire.torch.SGD, which leaves momentum to the scheme, or with thinwire train without");
    assert_left_out(plan, "dgc-adam", "thinwire.torch.AdamW, which leaves momentum to the scheme");
    assert_left_out(plan, "adpsgd-random", NULL);
    tw_plan_destroy(plan);
    q.bandwidth = 1; /* byte a second */
    plan = make(&q);
    assert_left_out(plan, "adpsgd-random", "no exchange ended");
    tw_plan_destroy(plan);
    layout_release(&t);
}

/* A whole run is so many steps of each level of its warm-up: the twin takes them all, and no average. */
TEST(test_a_warmup_is_averaged)
{
    enum { STEPS = 30 };
    layout t;
    tw_thin whole;
    tw_prediction each;
    float *noise = NULL;
    char of_run[256];
    double seconds = 0, bytes = 0, density = 0.3;
    assert_ok(layout_create("30k", &t));
    tw_plan_question q = ask(&t, 10 * MBIT, 1e-3, TW_PLAN_ADAMW, STEPS);
    tw_plan *plan = make(&q);
    tw_spec_for_run("dgc-adam", STEPS, of_run, sizeof of_run);
    assert_non_null(strstr(of_run, "warmup_steps=20"));
    assert_ok(tw_thin_create(t.tensors, t.count, 1 << 20, &whole));
    noise = malloc((2 * t.elements + TW_NOISE_MARGIN) * sizeof *noise);
    assert_ok(tw_phantom_noise(noise, 2 * t.elements + TW_NOISE_MARGIN, 1));
    for (int third = 0; third < 3; third++, density /= 4) {
        snprintf(of_run, sizeof of_run, "dgc-adam:warmup_steps=0,density=%g", third < 2 ? density : 0.04);
        assert_ok(tw_predict(&q, &whole, noise, of_run, 0, &each));
        seconds += each.step_seconds / 3;
        bytes += each.bytes_per_step / 3;
    }
    assert_close(row_of(plan, "dgc-adam").step_seconds, seconds);
    assert_close(row_of(plan, "dgc-adam").bytes_per_step, bytes);
    assert_true(bytes < 0.8 * row_of(plan, "allreduce").bytes_per_step);
    free(noise);
    tw_thin_release(&whole);
    tw_plan_destroy(plan);
    layout_release(&t);
}

/* The beginning of powersgd sends what bf16 does, and of a run of 40 steps it has two. */
TEST(test_a_beginning_is_averaged)
{
    enum { STEPS = 40 };
    layout t;
    tw_thin whole;
    tw_prediction low;
    float *noise = NULL;
    assert_ok(layout_create("30k", &t));
    tw_plan_question q = ask(&t, 10 * MBIT, 1e-3, TW_PLAN_ADAMW, STEPS);
    tw_plan *plan = make(&q);
    tw_plan_row half = row_of(plan, "bf16"), row = row_of(plan, "powersgd:rank=16");
    assert_ok(tw_thin_create(t.tensors, t.count, 1 << 20, &whole));
    noise = malloc((2 * t.elements + TW_NOISE_MARGIN) * sizeof *noise);
    assert_ok(tw_phantom_noise(noise, 2 * t.elements + TW_NOISE_MARGIN, 1));
    assert_ok(tw_predict(&q, &whole, noise, "powersgd:rank=16,warmup_steps=0", 0, &low));
    assert_close(row.bytes_per_step, (2 * half.bytes_per_step + (STEPS - 2) * low.bytes_per_step) / STEPS);
    assert_true(low.bytes_per_step < 0.5 * half.bytes_per_step);
    assert_close(row.step_seconds, (2 * half.step_seconds + (STEPS - 2) * low.step_seconds) / STEPS);
    free(noise);
    tw_thin_release(&whole);
    tw_plan_destroy(plan);
    layout_release(&t);
}

/* ---- large tables ------------------------------------------------------------------------------------------------ */

/* Of 64 matrices alike every fourth stands for the others, and a large one becomes a quarter of itself. What is sent
 * is a sum over tensors, so it is the same but for packets' headers; and so is time, over a line as much slower. */
TEST(test_a_thinned_table_predicts_what_the_whole_does)
{
    tw_tensor table[66] = {{"embedding", 2, {2048, 64}}};
    char names[66][16];
    layout t;
    for (int i = 1; i < 65; i++) {
        snprintf(names[i], sizeof names[i], "matrix%d", i);
        table[i] = (tw_tensor){names[i], 2, {64, 64}};
    }
    table[65] = (tw_tensor){"bias", 1, {64}};
    assert_ok(layout_copy(table, 66, &t));
    tw_plan_question q = ask(&t, 5 * MBIT, 1e-3, TW_PLAN_ADAMW, 3000);
    q.bandwidth_down = 50 * MBIT;
    tw_plan *whole = make(&q);
    q.elements = t.elements / 4;
    tw_plan *thin = make(&q);
    tw_plan_row a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
    for (size_t i = 0; tw_plan_row_at(whole, i, &a) == TW_OK; i++) {
        assert_ok(tw_plan_row_at(thin, i, &b));
        if (a.left_out || a.kind == TW_PLAN_WEIGHTS) continue;
        if (fabs(b.step_seconds / a.step_seconds - 1) > 0.1)
            fail_msg("%s: %g s, %g s whole", a.spec, b.step_seconds, a.step_seconds);
        if (fabs(b.bytes_per_step / a.bytes_per_step - 1) > 0.1)
            fail_msg("%s: %g B, %g B whole", a.spec, b.bytes_per_step, a.bytes_per_step);
        if (fabs(b.memory_bytes / a.memory_bytes - 1) > 0.3) /* part of it is the same for any table */
            fail_msg("%s: takes %g B, %g B whole", a.spec, b.memory_bytes, a.memory_bytes);
    }
    tw_plan_destroy(whole);
    tw_plan_destroy(thin);
    layout_release(&t);
}

/* An eighth of a square matrix, cut along one side, has more than half of both: what low rank sends shrinks less. */
TEST(test_low_rank_is_predicted_of_a_part_of_a_matrix)
{
    const tw_tensor table[] = {{"square", 2, {512, 512}}, {"bias", 1, {512}}};
    layout t;
    if (!in_part(0, 1)) skip();
    assert_ok(layout_copy(table, 2, &t));
    tw_plan_question q = ask(&t, 5 * MBIT, 1e-3, TW_PLAN_ADAMW, 3000);
    tw_plan *whole = make(&q);
    q.elements = t.elements / 8;
    tw_plan *thin = make(&q);
    tw_plan_row a = row_of(whole, "powersgd:rank=16"), b = row_of(thin, "powersgd:rank=16");
    assert_true(fabs(b.bytes_per_step / a.bytes_per_step - 1) < 0.02);
    assert_true(fabs(b.step_seconds / a.step_seconds - 1) < 0.1);
    tw_plan_destroy(whole);
    tw_plan_destroy(thin);
    layout_release(&t);
}

TEST(test_who_stands_for_whom)
{
    const tw_tensor table[] = {{"a", 2, {6, 4}}, {"b", 2, {6, 4}},      {"c", 2, {6, 4}},
                               {"d", 2, {6, 4}}, {"long", 2, {100, 4}}, {"scalar", 0, {0}}};
    tw_thin thin;
    assert_ok(tw_thin_create(table, 6, 1000, &thin));
    assert_int_equal(thin.count, 6);
    assert_true(thin.times == 1);
    tw_thin_release(&thin);
    assert_ok(tw_thin_create(table, 6, 497 / 2, &thin));
    assert_int_equal(thin.count, 4);
    assert_string_equal(thin.tensors[0].name, "b");
    assert_string_equal(thin.tensors[1].name, "d");
    assert_int_equal(thin.tensors[2].shape[0], 50);
    assert_int_equal(thin.elements, 2 * 24 + 50 * 4 + 1);
    assert_near(thin.times, 497.0 / thin.elements, 1e-12);
    tw_thin_release(&thin);
}

/* The published number of parameters. */
TEST(test_the_table_of_gpt2)
{
    layout t;
    assert_ok(layout_create("gpt2", &t));
    assert_int_equal(t.elements, 124439808);
    assert_int_equal(t.count, 148);
    layout_release(&t);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

/* Too little to go by, a table that no reducer takes, and what is none of the values that a field has. */
TEST(test_refusals)
{
    enum { WRONG = 16 };
    static const char *const said[WRONG] = {"alone",
                                            "steps",
                                            "pass",
                                            "worker 1",
                                            "tensor_count",
                                            "10 steps",
                                            "optimizer 3",
                                            "kinds",
                                            "kinds",
                                            "codec_rate",
                                            "codec_rate",
                                            "codec_rate",
                                            "100000000 dimensions",
                                            "2^31",
                                            "a name",
                                            "129 workers"};
    const tw_tensor wrong[] = {{"deep", 100000000, {2}}, {"huge", 2, {SIZE_MAX, 2}}, {NULL, 1, {2}}};
    const double factors[WORKERS] = {1, 0, 1, 1};
    tw_plan_question q[WRONG];
    layout t;
    tw_plan *plan = NULL;
    assert_ok(layout_create("1k", &t));
    for (size_t i = 0; i < WRONG; i++) q[i] = ask(&t, MBIT, 1e-3, TW_PLAN_SGD, 10);
    q[0].workers = 1;
    q[1].steps = 0;
    q[2].pass_seconds = NAN;
    q[3].factors = factors;
    q[4].tensor_count = 0;
    q[5].kinds = TW_PLAN_UPDATES;
    q[6].optimizer = (tw_plan_optimizer)3;
    q[7].kinds = -1;
    q[8].kinds = 8;
    q[9].codec_rate = -1;
    q[10].codec_rate = NAN;
    q[11].codec_rate = INFINITY;
    for (size_t i = 0; i < 3; i++) {
        q[12 + i].tensor_count = 1;
        q[12 + i].tensors = &wrong[i];
    }
    q[15].workers = TW_PLAN_WORKERS_MOST + 1;
    for (size_t i = 0; i < WRONG; i++) assert_fails(tw_plan_make(&q[i], &plan), TW_ERROR_ARGUMENT, said[i]);
    q[0].simulate = NULL;
    assert_fails(tw_plan_make(&q[0], &plan), TW_ERROR_ARGUMENT, "tw_world_play");
    assert_null(plan);
    layout_release(&t);
}

/* Text and back, and what is none. */
TEST(test_lines_in_words)
{
    static const char *const wrong[] = {"",         "ten",        "1Gbit",      "1Gbit,",
                                        "0bit,1ms", "1Gbit,1ms,", "1Gbit/,1ms", "8.1e6Gbit,1s"};
    tw_world_options line = {.struct_size = sizeof line};
    char text[64];
    assert_ok(tw_line_read("10Mbit/2Gbit,80ms", &line));
    assert_near(line.bandwidth, 1.25e6, 0);
    assert_near(line.bandwidth_down, 2.5e8, 0);
    assert_near(line.latency, 0.08, 1e-15);
    assert_int_equal(tw_line_text(&line, text, sizeof text), strlen("10Mbit/2Gbit,80ms"));
    assert_string_equal(text, "10Mbit/2Gbit,80ms");
    assert_ok(tw_line_read("100Mbit/10Mbit,1ms", &line));
    tw_line_text(&line, text, sizeof text);
    assert_string_equal(text, "100Mbit/10Mbit,1ms");
    assert_ok(tw_line_read("10Mbit/10Mbit,1ms", &line));
    tw_line_text(&line, text, sizeof text);
    assert_string_equal(text, "10Mbit,1ms");
    assert_ok(tw_line_read("8e6Gbit,0s", &line));
    assert_near(line.bandwidth_down, 1e15, 0);
    assert_near(line.bandwidth, 1e15, 0);
    assert_ok(tw_line_read("1Gbit,20us", &line));
    tw_line_text(&line, text, sizeof text);
    assert_string_equal(text, "1Gbit,0.02ms");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(tw_line_read(wrong[i], &line), TW_ERROR_ARGUMENT, "RATE,LATENCY");
    assert_near(line.latency, 2e-5, 1e-15);
}

/* Numbers are read and written with a decimal point, in lines and in specs. */
TEST(test_plans_do_not_depend_on_the_language)
{
    tw_world_options line = {.struct_size = sizeof line};
    tw_plan_row row[2] = {{.struct_size = sizeof *row}, {.struct_size = sizeof *row}};
    char text[64];
    layout t;
    assert_ok(layout_create("250k", &t));
    tw_plan_question q = ask(&t, 10 * MBIT, 0.001, TW_PLAN_SGD, 3905);
    tw_plan *plan = make(&q), *with_comma = NULL;
    int is_chosen = choose_decimal_comma();
    tw_status made = is_chosen ? tw_plan_make(&q, &with_comma) : TW_OK, was_read = tw_line_read("2.5Mbit,0.1ms", &line);
    tw_line_text(&line, text, sizeof text);
    setlocale(LC_ALL, "C");
    assert_ok(made);
    assert_ok(was_read);
    assert_string_equal(text, "2.5Mbit,0.1ms");
    for (size_t i = 0; is_chosen && tw_plan_row_at(plan, i, &row[0]) == TW_OK; i++) {
        assert_ok(tw_plan_row_at(with_comma, i, &row[1]));
        assert_int_equal(row[0].left_out != NULL, row[1].left_out != NULL);
        assert_true(row[0].step_seconds == row[1].step_seconds);
    }
    tw_plan_destroy(plan);
    tw_plan_destroy(with_comma);
    layout_release(&t);
    if (!is_chosen) skip();
}

/* ---- the line, in a world whose line is known -------------------------------------------------------------------- */

static void measure(void *found, int rank, tw_comm *comm)
{
    tw_world_options *all = found;
    if (line_measure(comm, 60, &all[rank]) != TW_OK) all[rank].bandwidth = -1;
}

TEST(test_the_line_is_measured)
{
    const tw_world_options line = {.workers = 3, .bandwidth = 12.5e6, .latency = 1e-3};
    tw_world_options found[3] = {{0}};
    run_in_world(line, measure, found);
    for (int rank = 0; rank < 3; rank++) {
        assert_close(found[rank].bandwidth, line.bandwidth);
        assert_close(found[rank].bandwidth_down, line.bandwidth);
        assert_close(found[rank].latency, line.latency);
        assert_memory_equal(&found[rank], &found[0], sizeof *found);
    }
}

/* Three machines send 10, 100 and 100 Mbit/s and receive 100, 50 and 20; a stream is as fast as the slower of its ends,
 * and a tenth slower where the other direction is at work. The slowest machine sends 9 so, and the slowest receives
 * 18. */
TEST(test_what_is_concluded_of_the_lines_of_all)
{
    enum { MACHINES = 3 };
    static const double up[MACHINES] = {10, 100, 100}, down[MACHINES] = {100, 50, 20};
    peers_report *found = calloc(1, sizeof *found);
    tw_world_options line = {0};
    assert_non_null(found);
    found->size = MACHINES;
    for (int from = 0; from < MACHINES; from++)
        for (int to = 0; to < MACHINES; to++) {
            double rate = fmin(up[from], down[to]);
            if (from != to) found->links[from][to] = (link_figures){rate, 0.9 * rate, from == 2 ? 1 : 1e-3, 1, ""};
        }
    line_conclude(found, &line);
    assert_near(line.bandwidth, 9, 1e-9);
    assert_near(line.bandwidth_down, 18, 1e-9);
    assert_near(line.latency, 1e-3, 1e-12);
    found->links[0][1].rate_both = found->links[0][2].rate_both = 8; /* measured again, with a busy neighbour */
    found->links[1][2].rate_both = 15;
    line_conclude(found, &line);
    assert_near(line.bandwidth, 9, 1e-9);
    assert_near(line.bandwidth_down, 18, 1e-9);
    free(found);
}

/* One slow pass among those that are timed changes nothing. */
TEST(test_the_middle_of_times)
{
    double odd[] = {9, 1, 2}, even[] = {4, 1, 90, 2}, one[] = {7};
    assert_true(median_of(odd, 3) == 2);
    assert_true(median_of(even, 4) == 3);
    assert_true(median_of(one, 1) == 7);
}

RUN_TESTS(NULL, NULL)
