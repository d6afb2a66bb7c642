/* What is predicted of each candidate, beside closed forms; and how the choice follows the line. */
#include "plan.h"
#include "line.h"
#include "optimiser.h"
#include "scheme.h"
#include "support/assert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_sim.h>

#define PASS 0.02
#define MBIT 125000.0 /* bytes a second */
enum { WORKERS = 4 };

static plan_question ask(const layout *tensors, double rate, double latency, int optimizer, uint64_t steps)
{
    return (plan_question){.layout = tensors,
                           .workers = WORKERS,
                           .optimizer = optimizer,
                           .steps = steps,
                           .seed = 1,
                           .pace = {.step_seconds = PASS, .seed = 1},
                           .codec_rate = 10e9,
                           .world = {.bandwidth = rate, .bandwidth_down = rate, .latency = latency}};
}

static const plan_row *row_of(const plan *answer, const char *spec)
{
    for (size_t i = 0; i < answer->count; i++)
        if (strcmp(answer->rows[i].spec, spec) == 0) return &answer->rows[i];
    fail_msg("the plan has no %s", spec);
    return NULL;
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
 * step. */
static void test_closed_forms(void **state)
{
    const tw_tensor both[] = {{"one", 2, {500, 250}}, {"other", 2, {500, 250}}};
    const double rate = 10 * MBIT, latency = 0.001;
    layout t;
    plan answer;
    (void)state;
    assert_ok(layout_copy(both, 2, &t));
    plan_question q = ask(&t, rate, latency, OPTIMISER_ADAMW, 1000);
    assert_ok(plan_make(&q, &answer));
    double exchange = dense_seconds(&t, rate, latency), dense = PASS + exchange, local = PASS + exchange / 20;
    const plan_row *allreduce = row_of(&answer, "allreduce"), *diloco = row_of(&answer, "diloco:every=20");
    assert_close(allreduce->step_seconds, dense);
    assert_close(allreduce->utilisation, PASS / dense);
    assert_close(allreduce->bytes_per_step, 2.0 * (WORKERS - 1) / WORKERS * 1e6);
    assert_close(diloco->step_seconds, local);
    assert_close(diloco->bytes_per_step, allreduce->bytes_per_step / 20);
    double half = exchange / 2;
    assert_close(row_of(&answer, "streaming:every=20,fragments=2")->step_seconds, PASS + 2 * (half - PASS) / 20);
    assert_close(row_of(&answer, "streaming:every=20,fragments=2")->bytes_per_step, diloco->bytes_per_step);
    assert_close(diloco->target_seconds, diloco->step_seconds * (1 + diloco->cost->extra));
    layout_release(&t);
}

static void check_choice(const layout *t, double rate, double latency, const char *const *among)
{
    plan answer;
    plan_question q = ask(t, rate, latency, OPTIMISER_ADAMW, 3000);
    q.pace.step_seconds = 10 * PASS;
    assert_ok(plan_make(&q, &answer));
    for (; *among; among++)
        if (strncmp(answer.chosen->spec, *among, strlen(*among)) == 0) return;
    fail_msg("%s was chosen at %g Mbit/s", answer.chosen->spec, rate / MBIT);
}

static void test_the_choice_follows_the_line(void **state)
{
    static const char *const dense[] = {"allreduce", NULL}, *const local[] = {"diloco", "streaming", "sparse", NULL},
                             *const compressed[] = {"bf16", "fp8", "qsgd", "powersgd", NULL};
    layout t;
    (void)state;
    assert_ok(layout_create("1M", &t));
    check_choice(&t, 10000 * MBIT, 5e-5, dense);
    check_choice(&t, 100 * MBIT, 2e-4, compressed);
    check_choice(&t, 10 * MBIT, 0.02, local);
    layout_release(&t);
}

/* And who stays in is what the optimiser can take. */
static void test_who_applies_momentum_is_left_out_beside_adam(void **state)
{
    layout t;
    plan answer;
    (void)state;
    assert_ok(layout_create("10k", &t));
    plan_question q = ask(&t, MBIT, 1e-3, OPTIMISER_ADAMW, 3000);
    assert_ok(plan_make(&q, &answer));
    assert_non_null(strstr(row_of(&answer, "dgc")->left_out, "scheme dgc applies momentum"));
    assert_string_equal(row_of(&answer, "qsgd")->left_out, "");
    q.optimizer = OPTIMISER_SGD;
    assert_ok(plan_make(&q, &answer));
    assert_string_equal(row_of(&answer, "dgc")->left_out, "");
    layout_release(&t);
}

static void test_a_round_fits_into_the_run(void **state)
{
    layout t;
    plan answer;
    (void)state;
    assert_ok(layout_create("1k", &t));
    plan_question q = ask(&t, MBIT, 1e-3, OPTIMISER_SGD, 49);
    assert_ok(plan_make(&q, &answer));
    assert_non_null(strstr(row_of(&answer, "diloco:every=50")->left_out, "the run has 49"));
    assert_string_equal(row_of(&answer, "diloco:every=20")->left_out, "");
    layout_release(&t);
}

/* In its warm-up dgc sends up to what a dense exchange does, and it counts by its share of the run. */
static void test_a_warmup_counts(void **state)
{
    layout t;
    plan of_run;
    sim_result warm;
    float *noise;
    (void)state;
    assert_ok(layout_create("100k", &t));
    plan_question q = ask(&t, 10 * MBIT, 1e-3, OPTIMISER_SGD, 4000);
    assert_ok(plan_make(&q, &of_run));
    assert_ok(sim_noise(&t, 1, &noise));
    sim_setup setup = {.kind = &sim_phantom, .layout = &t, .noise = noise, .pace = q.pace, .world = q.world};
    char *spec = scheme_for_run("dgc", 4000);
    double share = scheme_number(spec, "warmup_steps") / 4000;
    char *without = scheme_with(spec, "warmup_steps", "0");
    setup.settings.workers = WORKERS;
    setup.settings.seed = 1;
    setup.settings.steps = 2;
    sim_take_scheme(&setup, without);
    assert_ok(sim_run(&setup, &warm));
    assert_true(share > 0 && share < 0.5);
    double dense = row_of(&of_run, "allreduce")->step_seconds;
    assert_close(row_of(&of_run, "dgc")->step_seconds, share * dense + (1 - share) * warm.step_seconds);
    free(spec);
    free(without);
    free(noise);
    layout_release(&t);
}

static void test_a_worker_alone_is_refused(void **state)
{
    layout t;
    plan answer;
    (void)state;
    assert_ok(layout_create("1k", &t));
    plan_question q = ask(&t, MBIT, 1e-3, OPTIMISER_SGD, 10);
    q.workers = 1;
    assert_int_equal(plan_make(&q, &answer), TW_ERROR_ARGUMENT);
    layout_release(&t);
}

/* The published number of parameters. */
static void test_the_table_of_gpt2(void **state)
{
    layout t;
    (void)state;
    assert_ok(layout_create("gpt2", &t));
    assert_int_equal(t.elements, 124439808);
    assert_int_equal(t.count, 148);
    layout_release(&t);
}

/* ---- the line, in a world whose line is known -------------------------------------------------------------------- */

static void measure(void *found, int rank, tw_comm *comm)
{
    tw_world_options *all = found;
    if (line_measure(comm, 60, &all[rank]) != TW_OK) all[rank].bandwidth = -1;
}

static void test_the_line_is_measured(void **state)
{
    tw_world_options line = {.struct_size = sizeof line, .workers = 3, .bandwidth = 12.5e6, .latency = 1e-3};
    tw_world_options found[3] = {{0}};
    tw_world *world;
    (void)state;
    assert_ok(tw_world_create(&line, &world));
    assert_ok(tw_world_run(world, measure, found));
    for (int rank = 0; rank < 3; rank++) {
        assert_close(found[rank].bandwidth, line.bandwidth);
        assert_close(found[rank].bandwidth_down, line.bandwidth);
        assert_close(found[rank].latency, line.latency);
        assert_memory_equal(&found[rank], &found[0], sizeof *found);
    }
    tw_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closed_forms),
        cmocka_unit_test(test_the_choice_follows_the_line),
        cmocka_unit_test(test_who_applies_momentum_is_left_out_beside_adam),
        cmocka_unit_test(test_a_round_fits_into_the_run),
        cmocka_unit_test(test_a_warmup_counts),
        cmocka_unit_test(test_a_worker_alone_is_refused),
        cmocka_unit_test(test_the_table_of_gpt2),
        cmocka_unit_test(test_the_line_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
