/* Which weights a run is summed up with, and which checkpoints it keeps: those that did best on the validation set. */
#include "best.h"
#include "show.h"

#include <math.h>

enum { FIRST_LOOK = 0 };

/* The mean loss of a validation item is 5.5 and what `extra` adds after so many steps. */
#define BEST_IS_4                                                                                                      \
    {                                                                                                                  \
        [4] = 1, [8] = 2, [10] = 3, [12] = 4, [16] = 5                                                                 \
    }

/* The steps of the checkpoints that are there, and no others up to 40. */
static void assert_kept(const char *out, const char *steps)
{
    char folder[FOLDER_PATH], found[128] = "";
    for (uint64_t step = 0; step <= 40; step++)
        if (folder_holds(out, step, folder))
            snprintf(found + strlen(found), sizeof found - strlen(found), " %d", (int)step);
    assert_string_equal(found, steps);
}

/* The last look is at the test set, with the weights and the mean statistic of the look at the validation set after
 * `step`, which is number `look` of them. */
static void assert_tested_with(const show *s, size_t look)
{
    for (int rank = 0; rank < RANKS; rank++) {
        const toy_log *log = &s->run.toy.log[rank];
        const toy_look *chosen = &log->looks[look], *last = &log->looks[log->look_count - 1];
        assert_int_equal(chosen->split, TASK_VALIDATION);
        assert_int_equal(last->split, TASK_TEST);
        assert_true(last->weight == chosen->weight);
        assert_true(last->statistic == chosen->statistic);
    }
}

/* The last weights, as their checkpoint has them. */
static uint32_t checksum_of(const char *out, uint64_t step)
{
    char folder[FOLDER_PATH], path[CHECKPOINT_PATH];
    float weights[TOY_PARAMETERS];
    tw_state *state;
    assert_true(folder_holds(out, step, folder));
    assert_ok(tw_state_load(folder_model(folder, path), &state));
    assert_ok(tw_state_get(state, "matrix", TW_F32, TOY_MATRIX, weights));
    assert_ok(tw_state_get(state, "vector", TW_F32, TOY_VECTOR, weights + TOY_MATRIX));
    tw_state_destroy(state);
    return tw_crc32c(0, weights, sizeof weights);
}

static void check_summary(const char *out, int chosen, int last, double validation)
{
    char checksum[16];
    cJSON *summary = read_summary(out);
    assert_true(number(summary, "chosen_step") == chosen && number(summary, "steps") == last);
    assert_true(number(cJSON_GetObjectItem(summary, "validation"), "loss") == validation);
    snprintf(checksum, sizeof checksum, "%08x", checksum_of(out, (uint64_t)last));
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(summary, "weights_crc32c")), checksum);
    cJSON_Delete(summary);
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static void check_run(void **state, const char *words, const char *kept, size_t looks)
{
    show s = {.run.toy = {.validated = true, .extra = BEST_IS_4}};
    play_well(&s, RANKS, *state, words);
    assert_kept(*state, kept);
    assert_int_equal(s.run.toy.log[1].look_count, looks);
    assert_tested_with(&s, FIRST_LOOK);
    check_summary(*state, 4, 10, 6.5);
    begin_anew(state);
}

/* A checkpoint is written where the figures are better than ever, whatever --checkpoint-every says. */
TEST_IN_FOLDER(the_best_is_kept_and_tested)
{
    check_run(state, "--steps 10", " 4 8 10", 4);
    check_run(state, "--steps 10 --checkpoint-every 3", " 4 9 10", 4);
    check_run(state, "--steps 10 --checkpoint-every 100", " 4 10", 4);
}

/* The workers' consensus is looked at whenever they meet for a checkpoint. */
TEST_IN_FOLDER(with_gossip_too)
{
    show s = {.run.toy = {.validated = true, .extra = BEST_IS_4}};
    play_well(&s, RANKS, *state, "--steps 10 --checkpoint-every 4 --sync dpsgd");
    assert_kept(*state, " 4 8 10");
    const toy_log *log = &s.run.toy.log[1]; /* rank 0 looks by itself as well */
    assert_int_equal(log->look_count, 4);
    assert_tested_with(&(show){.run.toy.log = {*log, *log}}, FIRST_LOOK);
    check_summary(*state, 4, 10, 6.5);
}

TEST_IN_FOLDER(without_a_test_set_its_figures_are_the_runs)
{
    show s = {.run.toy = {.validated = true, .untested = true, .extra = BEST_IS_4}};
    play_well(&s, RANKS, *state, "--steps 10");
    cJSON *summary = read_summary(*state);
    assert_true(number(summary, "loss") == 6.5 && number(summary, "chosen_step") == 4);
    cJSON_Delete(summary);
}

TEST_IN_FOLDER(without_a_validation_set_nothing_is_chosen)
{
    show s = {.run.toy.extra = BEST_IS_4};
    play_well(&s, RANKS, *state, "--steps 10");
    assert_kept(*state, " 8 10");
    cJSON *summary = read_summary(*state);
    assert_true(number(summary, "loss") == 8.5 && number(summary, "chosen_step") == 10);
    cJSON_Delete(summary);
}

TEST(without_a_folder_the_last_weights_are_tested)
{
    show s = {.run.toy = {.validated = true, .extra = BEST_IS_4}};
    play_well(&s, RANKS, NULL, "--steps 10");
    assert_tested_with(&s, 2);
}

/* ---- going on ---------------------------------------------------------------------------------------------------- */

TEST_IN_FOLDER(a_run_that_goes_on_remembers_the_best)
{
    show s = {.run.toy = {.validated = true, .extra = BEST_IS_4}};
    play_well(&s, RANKS, *state, "--steps 10");
    play_well(&s, RANKS, *state, "--steps 16 --resume");
    assert_kept(*state, " 4 12 16");
    check_summary(*state, 4, 16, 6.5);
    s.run.toy.extra[20] = -1;
    play_well(&s, RANKS, *state, "--steps 20 --resume");
    assert_kept(*state, " 16 20");
    check_summary(*state, 20, 20, 4.5);
}

static void go_on(show *s, int workers, unsigned epoch, const char *out, const char *words, const char *kept)
{
    s->run.toy.epoch = epoch;
    play_well(s, workers, out, words);
    assert_kept(out, kept);
}

/* An epoch of twice as many workers has half the steps: the second, which was the best, ended with step 8, then 4. */
TEST_IN_FOLDER(among_another_number_of_workers_the_best_is_the_same)
{
    show s = {.run.toy = {.validated = true, .extra = {[4] = 3, [8] = 1, [12] = 2, [16] = 3}}};
    go_on(&s, RANKS, 4, *state, "--epochs 4", " 8 12 16");
    const float best = s.run.toy.log[0].looks[1].weight;
    s.run.toy.extra[10] = s.run.toy.extra[12] = s.run.toy.extra[28] = s.run.toy.extra[32] = 5;
    go_on(&s, 2 * RANKS, 2, *state, "--epochs 6 --resume", " 4 10 12");
    check_summary(*state, 4, 12, 6.5);
    go_on(&s, RANKS, 4, *state, "--epochs 8 --resume", " 4 28 32"); /* an earlier step than it was */
    check_summary(*state, 4, 32, 6.5);
    s.run.toy.extra[18] = s.run.toy.extra[20] = 5;
    go_on(&s, 2 * RANKS, 2, *state, "--epochs 10 --resume", " 4 18 20"); /* which it stays */
    check_summary(*state, 4, 20, 6.5);
    const toy_log *log = &s.run.toy.log[0];
    assert_true(log->looks[log->look_count - 1].weight == best);
}

/* Back to step 8, when step 4 was the best, and is gone since 12 is better. The new course's own best is none the worse
 * for what was better there. */
TEST_IN_FOLDER(a_best_that_is_gone_is_forgotten)
{
    char words[FOLDER_PATH + 64];
    show s = {.run.toy = {.validated = true, .extra = {[4] = 1, [8] = 2, [12] = -1, [16] = 5}}};
    play_well(&s, RANKS, *state, "--steps 12");
    assert_kept(*state, " 8 12");
    s.run.toy.extra[12] = 3;
    snprintf(words, sizeof words, "--steps 16 --resume %s/checkpoints/step-00000008", (char *)*state);
    play_well(&s, RANKS, *state, words);
    assert_kept(*state, " 12 16");
    check_summary(*state, 12, 16, 8.5);
}

static void damage(const char *out, uint64_t step)
{
    char folder[FOLDER_PATH], path[CHECKPOINT_PATH];
    assert_true(folder_holds(out, step, folder));
    FILE *file = fopen(folder_model(folder, path), "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    int last = fgetc(file);
    fseek(file, -1, SEEK_END);
    fputc(last ^ 1, file);
    fclose(file);
}

/* The run was trained and is kept; what cannot be is to test what is not there. */
TEST_IN_FOLDER(a_best_that_is_damaged_is_told_by_all)
{
    show s = {.run.toy = {.validated = true, .extra = BEST_IS_4}};
    play_well(&s, RANKS, *state, "--steps 10");
    damage(*state, 4);
    play(&s, RANKS, *state, "--steps 16 --resume");
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(s.run.crew[rank].status, TW_ERROR_FORMAT);
        assert_true(s.results[rank].agreed);
    }
    assert_non_null(strstr(s.run.crew[0].text, "step-00000004"));
    assert_kept(*state, " 4 12 16");
}

/* ---- which is better --------------------------------------------------------------------------------------------- */

static double figure(const task_score *score)
{
    return score->parts[0];
}

static const task_metric rising[] = {{"share", figure, false, false}, {0}};
static const task_metric falling[] = {{"errors", figure, false, true}, {0}};

/* The figures after steps 1, 2, ..., and their losses: which step is the best. */
static void assert_best(const task_metric *metrics, size_t count, const double figures[][2], uint64_t best)
{
    task work = {.metrics = metrics, .has_validation = true};
    worker w = {.task = &work};
    for (size_t i = 0; i < count; i++) {
        evaluation seen = {.split = TASK_VALIDATION, .score = {.loss = 2 * figures[i][1], .count = 2}};
        seen.score.parts[0] = figures[i][0];
        w.step = i + 1;
        best_observe(&w, &seen);
    }
    assert_int_equal(w.best.step, best);
    assert_true(w.best.score.parts[0] == figures[best - 1][0]);
}

TEST(the_first_metric_decides_and_then_the_loss)
{
    static const double peak[][2] = {{0.5, 3}, {0.75, 4}, {0.625, 1}}, tied[][2] = {{0.5, 3}, {0.5, 2}, {0.5, 2}},
                        no_number[][2] = {{NAN, 1}, {0.5, 9}, {NAN, 0}};
    assert_best(rising, 3, peak, 2);
    assert_best(falling, 3, peak, 1);
    assert_best(rising, 3, tied, 2);
    assert_best(falling, 3, tied, 2);
    assert_best(rising, 3, no_number, 2);
    assert_best(falling, 3, no_number, 2);
}

TEST(a_best_that_cannot_be_is_refused)
{
    tw_state *file;
    best_checkpoint best = {.step = 9, .folder = 9, .score = {.loss = 1, .count = 2}}, read;
    assert_ok(tw_state_create(&file));
    assert_ok(best_get(file, 5, &read)); /* of an earlier version */
    assert_int_equal(read.step, 0);
    assert_ok(best_put(&best, file));
    assert_ok(best_get(file, 9, &read));
    assert_memory_equal(&read, &best, sizeof best);
    assert_int_equal(best_get(file, 8, &read), TW_ERROR_FORMAT);
    tw_state_destroy(file);
}

RUN_TESTS(NULL, NULL)
