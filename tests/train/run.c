/* When a run does what: checks of the replicas, evaluations, checkpoints, the journal, and how it ends. */
#include "agree.h"
#include "show.h"

#include <math.h>

/* ---- replicas ---------------------------------------------------------------------------------------------------- */

/* In the third step worker 1's weights lose a bit. */
static tw_status disturb(toy *t, toy_learner *l, uint64_t step)
{
    (void)t;
    if (step == 2 && l->base.place.rank == 1) ((uint32_t *)(void *)l->parameters)[3] ^= 1;
    return TW_OK;
}

TEST_IN_FOLDER(replicas_are_compared_as_often_as_was_asked)
{
    static const struct {
        const char *words, *found;
    } runs[] = {{"--check-every 1", "after step 3:"},
                {"--check-every 2", "after step 4:"},
                {"--check-every 5", "after step 5:"},
                {"--check-every 0", "after step 8:"},
                {"--check-every 3 --sync topk:density=1,min_elements=1", "after step 3:"}};
    for (size_t k = 0; k < sizeof runs / sizeof *runs; k++) {
        show s = {.run.toy.before = disturb};
        play(&s, RANKS, *state, runs[k].words);
        for (int rank = 0; rank < RANKS; rank++) {
            assert_int_equal(s.run.crew[rank].status, TW_ERROR_STATE);
            if (!strstr(s.run.crew[rank].text, runs[k].found)) fail_msg("%s: %s", runs[k].words, s.run.crew[rank].text);
            assert_true(s.results[rank].diverged && s.results[rank].agreed && !s.results[rank].interrupted);
        }
        if (k == 1) assert_false(folder_has_checkpoint(*state)); /* of step 4, an epoch's end */
        begin_anew(state);
    }
}

/* ---- evaluations ------------------------------------------------------------------------------------------------- */

typedef struct look_expected {
    uint64_t steps;
    task_split split;
} look_expected;

static void check_looks(const show *s, int workers, const look_expected *expected, size_t count)
{
    for (int rank = 0; rank < workers; rank++) {
        const toy_log *log = &s->run.toy.log[rank];
        assert_int_equal(log->look_count, count);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(log->looks[i].steps, expected[i].steps);
            assert_int_equal(log->looks[i].split, expected[i].split);
            assert_int_equal(log->looks[i].part, rank);
            assert_int_equal(log->looks[i].parts, workers);
        }
    }
}

TEST(epochs_and_the_run_end_with_an_evaluation)
{
    static const look_expected test_only[] = {{4, TASK_TEST}, {8, TASK_TEST}, {10, TASK_TEST}};
    static const look_expected both[] = {
        {4, TASK_VALIDATION}, {8, TASK_VALIDATION}, {10, TASK_VALIDATION}, {10, TASK_TEST}};
    show plain = {0}, tested = {.run.toy.validated = true},
         untested = {.run.toy = {.validated = true, .untested = true}};
    play_well(&plain, RANKS, NULL, "--steps 10");
    check_looks(&plain, RANKS, test_only, 3);
    play_well(&tested, RANKS, NULL, "--steps 10");
    check_looks(&tested, RANKS, both, 4);
    play_well(&untested, RANKS, NULL, "--steps 10");
    check_looks(&untested, RANKS, both, 3);
}

/* The rate falls to an eighth after each epoch that did not lower the loss: here the second. */
TEST(a_plateau_is_told_each_epochs_loss)
{
    static const float rates[] = {1, 1, 0.125f, 0.125f};
    show s = {.run.toy = {.validated = true, .apart = 1, .extra = {[4] = 3, [8] = 4, [12] = 2, [16] = 2}}};
    play_well(&s, RANKS, NULL, "--steps 16 --schedule plateau:0.125");
    for (int rank = 0; rank < RANKS; rank++) {
        const toy_log *log = &s.run.toy.log[rank];
        for (uint64_t step = 0; step < 15; step++) {
            toy_learner one = {.base.place.rank = 0}, two = {.base.place.rank = 1};
            float mean = (toy_draw(&one, step, 0) + toy_draw(&two, step, 0)) / 2;
            assert_near(log->weights[step] - log->weights[step + 1], rates[step / TOY_EPOCH] * mean, 1e-6);
        }
    }
}

static tw_status compare_data(crew_member *self)
{
    const task own = {.description = "10 training items", .identity = "of toys", .held_out = 1 + (self->rank == 1)};
    return agree_data(self->comm, &own);
}

TEST(other_data_to_validate_with_are_other_data)
{
    crew_member crew[3];
    crew_run(crew, 3, (crew_member){.play = compare_data});
    assert_int_equal(crew[0].status, TW_OK);
    assert_int_equal(crew[1].status, TW_ERROR_ARGUMENT);
    assert_int_equal(crew[2].status, TW_OK);
    assert_non_null(strstr(crew[1].text,
                           "rank 1 has validation data of checksum 00000002; rank 0 has validation data of "
                           "checksum 00000001"));
}

static tw_status fail_alone(crew_member *self)
{
    int agreed = 0;
    return agree_ranks(self->comm, self->rank == 1 ? tw_fail(TW_ERROR_IO, "the file is gone") : TW_OK, &agreed);
}

TEST(threads_have_their_files_in_common)
{
    crew_member crew[3];
    crew_run(crew, 3, (crew_member){.play = fail_alone});
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(crew[rank].status, TW_ERROR_IO);
        assert_string_equal(crew[rank].text, "the file is gone");
    }
}

TEST_IN_FOLDER(data_that_are_gone_are_no_divergence)
{
    show s = {.run.toy.unread = 4};
    play(&s, RANKS, *state, "");
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(s.run.crew[rank].status, TW_ERROR_IO);
        assert_non_null(strstr(s.run.crew[rank].text, "none of the test data could be read at step 4"));
        assert_true(s.results[rank].agreed && !s.results[rank].diverged);
    }
}

TEST_IN_FOLDER(a_loss_that_is_not_finite_ends_the_run)
{
    show s = {.run.toy.extra = {[4] = NAN}};
    play(&s, RANKS, *state, "");
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(s.run.crew[rank].status, TW_ERROR_NONFINITE);
        assert_non_null(strstr(s.run.crew[rank].text, "at step 4"));
        assert_true(s.results[rank].agreed && !s.results[rank].diverged);
        assert_int_equal(s.run.toy.log[rank].step_count, 4);
    }
    assert_false(folder_has_checkpoint(*state));
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

/* The newest checkpoint that there is, as each step begins. */
typedef struct newest {
    const char *out;
    int at[TOY_MOST];
} newest;

static int newest_checkpoint(const char *out)
{
    char found[FOLDER_PATH];
    return folder_find(out, 0, found) == TW_OK ? atoi(strrchr(found, '-') + 1) : 0;
}

static tw_status look_for_checkpoints(toy *t, toy_learner *l, uint64_t step)
{
    newest *n = t->context;
    if (l->base.place.rank == 0) n->at[step] = newest_checkpoint(n->out);
    return TW_OK;
}

static void check_newest(void **state, const char *words, const int *expected)
{
    newest n = {.out = *state};
    show s = {.run.toy = {.before = look_for_checkpoints, .context = &n}};
    play_well(&s, RANKS, *state, words);
    n.at[10] = newest_checkpoint(*state);
    for (int step = 0; step <= 10; step++)
        if (n.at[step] != expected[step])
            fail_msg("%s: after step %d the newest is %d, not %d", words, step, n.at[step], expected[step]);
    begin_anew(state);
}

TEST_IN_FOLDER(checkpoints_are_of_the_steps_that_were_asked_for)
{
    static const int of_epochs[] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 10};
    static const int of_threes[] = {0, 0, 0, 3, 3, 3, 6, 6, 6, 9, 10};
    static const int of_threes_with_gossip[] = {0, 0, 0, 3, 3, 3, 6, 6, 6, 9, 10};
    static const int at_the_end[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10};
    check_newest(state, "--steps 10", of_epochs);
    check_newest(state, "--steps 10 --checkpoint-every 3", of_threes);
    check_newest(state, "--steps 10 --checkpoint-every 3 --sync dpsgd", of_threes_with_gossip);
    check_newest(state, "--steps 10 --sync dpsgd", at_the_end);
}

static void load(const char *out, int step, const char *name, tw_state **state)
{
    char path[FOLDER_PATH];
    snprintf(path, sizeof path, "%s/checkpoints/step-%08d/%s.safetensors", out, step, name);
    assert_ok(tw_state_load(path, state));
}

static float statistic_in(const char *out, int step, const char *name)
{
    float value;
    tw_state *state;
    load(out, step, name, &state);
    assert_ok(tw_state_get(state, "statistic", TW_F32, 1, &value));
    tw_state_destroy(state);
    return value;
}

/* After step 9, which no evaluation has seen, worker r has a statistic of 10 r + 8. */
TEST_IN_FOLDER(the_model_has_the_mean_statistic_and_each_worker_its_own)
{
    static const char *const specs[] = {"allreduce", "dpsgd", "adpsgd-random"};
    for (size_t k = 0; k < 3; k++) {
        show s = {0};
        char words[64];
        snprintf(words, sizeof words, "--steps 10 --checkpoint-every 3 --sync %s", specs[k]);
        play_well(&s, 4, *state, words);
        assert_true(statistic_in(*state, 9, "model") == 23);
        assert_true(statistic_in(*state, 9, "worker-0") == 8);
        assert_true(statistic_in(*state, 9, "worker-3") == 38);
        begin_anew(state);
    }
}

/* ---- going on ---------------------------------------------------------------------------------------------------- */

/* What a step depends on, other than weights: whatever a worker carries with it. */
static float remember(const toy_learner *l, uint64_t step, size_t element)
{
    return toy_draw(l, step, element) + l->memory / 8 + l->statistic / 64 + l->parameters[element] / 16;
}

static void compare_courses(const show *whole, const show *resumed, int workers, size_t done)
{
    for (int rank = 0; rank < workers; rank++) {
        const toy_log *all = &whole->run.toy.log[rank], *rest = &resumed->run.toy.log[rank];
        assert_int_equal(rest->step_count, all->step_count - done);
        assert_int_equal(rest->steps[0], done);
        assert_memory_equal(rest->weights, all->weights + done, rest->step_count * sizeof *rest->weights);
        assert_memory_equal(rest->statistics, all->statistics + done, rest->step_count * sizeof *rest->statistics);
        assert_memory_equal(rest->final, all->final, sizeof all->final);
    }
}

/* One half of a run and the rest of it, against the whole. */
static void check_resumed(void **state, const char *words, int done)
{
    char line[300];
    show whole = {.run.toy = {.gradient = remember, .extra = {[4] = 1, [8] = 2}}}, resumed = whole;
    snprintf(line, sizeof line, "%s --steps 10 --seed 5", words);
    play_well(&whole, RANKS, *state, line);
    begin_anew(state);
    snprintf(line, sizeof line, "%s --steps %d --seed 5", words, done);
    play_well(&resumed, RANKS, *state, line);
    snprintf(line, sizeof line, "%s --steps 10 --seed 5 --resume", words);
    play_well(&resumed, RANKS, *state, line);
    compare_courses(&whole, &resumed, RANKS, (size_t)done);
    begin_anew(state);
}

TEST_IN_FOLDER(resumed_is_uninterrupted_with_all_that_is_carried)
{
    check_resumed(state, "--sync allreduce --momentum 0.5 --weight-decay 0.125 --warmup 8", 5);
    check_resumed(state, "--sync allreduce --optimizer adam --momentum 0.5", 5);
    check_resumed(state, "--sync topk:density=0.2,min_elements=1,min_sent=1 --clip 0.5 --momentum 0.5", 5);
    check_resumed(state, "--sync dgc:density=0.2,min_elements=1,min_sent=1,momentum=0.5,warmup_steps=4", 5);
    check_resumed(state, "--sync sdagc:density=0.2,min_elements=1,min_sent=1,momentum=0.5 --warmup 8", 5);
    check_resumed(state, "--sync dgc-adam:density=0.2,min_sent=1,momentum=0.5,warmup_steps=4 --optimizer adamw", 5);
    check_resumed(state, "--sync onebit-adam:momentum=0.5,warmup_steps=3,min_elements=1 --optimizer adamw", 5);
    check_resumed(state, "--sync onebit-adam:momentum=0.5,warmup_steps=0,refresh=2,min_elements=1 --optimizer adamw",
                  5);
    check_resumed(state, "--sync demo:chunk=16,k=2 --weight-decay 0.125", 5);
    check_resumed(state, "--sync dpsgd --momentum 0.5 --checkpoint-every 5", 5);
    check_resumed(state, "--sync adpsgd-d1 --optimizer adam --momentum 0.5 --checkpoint-every 5", 5);
}

/* The loss of step 8 is not below that of step 4: known after the checkpoint of step 5, and before that of step 9. */
TEST_IN_FOLDER(a_plateau_is_carried_along)
{
    check_resumed(state, "--schedule plateau:0.125", 5);
    check_resumed(state, "--schedule plateau:0.125", 9);
}

static float spoil_all(const toy_learner *l, uint64_t step, size_t element)
{
    return step >= 2 ? NAN : toy_draw(l, step, element);
}

/* Six before the checkpoint and four after it. */
TEST_IN_FOLDER(ten_skipped_in_a_row_may_be_of_two_runs)
{
    show s = {.run.toy.gradient = spoil_all};
    play_well(&s, RANKS, *state, "--steps 8 --seed 5");
    play(&s, RANKS, *state, "--steps 30 --seed 5 --resume");
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(s.run.crew[rank].status, TW_ERROR_NONFINITE);
        assert_int_equal(s.run.toy.log[rank].step_count, 4);
    }
}

TEST_IN_FOLDER(an_earlier_run_is_not_written_over)
{
    show s = {0};
    play_well(&s, RANKS, *state, "");
    play(&s, RANKS, *state, "--steps 10");
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(s.run.crew[rank].status, TW_ERROR_ARGUMENT);
        assert_non_null(strstr(s.run.crew[rank].text, "--resume"));
        assert_int_equal(s.run.toy.log[rank].step_count, 0);
    }
}

/* ---- the journal ------------------------------------------------------------------------------------------------- */

enum { LINES = 16 };

static size_t read_lines(const char *out, cJSON *lines[LINES])
{
    char path[FOLDER_PATH], text[16384];
    size_t count = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", out);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (count < LINES && fgets(text, sizeof text, file)) lines[count++] = cJSON_Parse(text);
    fclose(file);
    return count;
}

static void check_line(const cJSON *line, const char *kind, int step)
{
    assert_string_equal(cJSON_GetObjectItem(line, "kind")->valuestring, kind);
    assert_true(number(line, "step") == step);
    assert_near(number(line, "epoch"), step / 4.0, 1e-12);
    assert_true(number(line, "bytes_dense") == step * 4 * TOY_PARAMETERS); /* 2 (N - 1) / N of it, N being 2 */
    assert_true(number(line, "bytes_sent") > number(line, "bytes_dense")); /* ranks have greeted each other */
}

/* The evaluations are of all; rank 1's losses are 1 more. */
TEST_IN_FOLDER(the_journal_tells_rank_0s_losses_rates_and_bytes)
{
    cJSON *lines[LINES];
    show s = {.run.toy = {.loss = {9, 2, 2, 3, 4, 4, 4, 4, 6, 7}, .extra = {[4] = 1, [8] = 2, [10] = 3}}};
    play_well(&s, RANKS, *state, "--steps 10 --lr 4 --warmup 4");
    size_t count = read_lines(*state, lines);
    assert_int_equal(count, 6); /* start, step 1, epoch, epoch, step 10, the end */
    check_line(lines[1], "step", 1);
    assert_true(number(lines[1], "loss") == 9 && number(lines[1], "lr") == 1);
    check_line(lines[2], "epoch", 4);
    assert_true(number(lines[2], "test_loss") == 6.5 && number(lines[2], "train_loss") == 4.5);
    assert_true(number(lines[2], "share") == 4.5);
    check_line(lines[3], "epoch", 8);
    assert_true(number(lines[3], "test_loss") == 7.5 && number(lines[3], "train_loss") == 4.5);
    check_line(lines[4], "step", 10);
    assert_true(number(lines[4], "loss") == 7 && number(lines[4], "lr") == 4);
    check_line(lines[5], "epoch", 10);
    assert_true(number(lines[5], "test_loss") == 8.5 && number(lines[5], "train_loss") == 7);
    for (size_t i = 0; i < count; i++) cJSON_Delete(lines[i]);
}

/* The validation set's losses are apart from the test set's: which of them stands under which name. */
static void check_summary(bool validated, bool untested, const char *split, double loss)
{
    show s = {.run.toy = {.validated = validated, .untested = untested, .apart = 100}};
    play_well(&s, RANKS, test_folder, "--steps 4");
    cJSON *summary = read_summary(test_folder), *validation = cJSON_GetObjectItem(summary, "validation");
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(summary, "split")), split);
    assert_true(number(summary, "loss") == loss);
    if (validated)
        assert_true(number(validation, "loss") == 105.5 &&
                    number(cJSON_GetObjectItem(validation, "metric"), "value") == 4.5);
    else
        assert_true(cJSON_IsNull(validation));
    cJSON_Delete(summary);
}

TEST_IN_FOLDER(a_summary_tells_the_test_set_from_the_validation_set)
{
    static const struct {
        bool validated, untested;
        const char *split;
        double loss;
    } cases[] = {{false, false, "test", 5.5}, {true, false, "test", 5.5}, {true, true, "validation", 105.5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_summary(cases[i].validated, cases[i].untested, cases[i].split, cases[i].loss);
        begin_anew(state);
    }
}

/* ---- with gossip ------------------------------------------------------------------------------------------------- */

/* Alone at the end of the first epoch; with everybody, and of the consensus, at the end. */
TEST(with_gossip_rank_0_looks_alone_until_the_end)
{
    show s = {.run.toy.validated = true};
    play_well(&s, RANKS, NULL, "--sync dpsgd");
    const toy_log *first = &s.run.toy.log[0], *second = &s.run.toy.log[1];
    assert_int_equal(first->look_count, 3);
    assert_int_equal(second->look_count, 2);
    assert_true(first->looks[0].steps == 4 && first->looks[0].parts == 1 && first->looks[0].split == TASK_VALIDATION);
    for (int i = 0; i < 2; i++) {
        const toy_look *mine = &first->looks[i + 1], *other = &second->looks[i];
        assert_true(mine->steps == 8 && mine->parts == RANKS && other->part == 1 && other->parts == RANKS);
        assert_int_equal(mine->split, i == 0 ? TASK_VALIDATION : TASK_TEST);
        assert_int_equal(other->split, mine->split);
        assert_true(mine->weight == other->weight);
    }
    assert_memory_equal(first->final, second->final, sizeof first->final);
}

/* Each worker's gradients are taken at its own weights: with adpsgd-d1 those are the mean of the step before and its
 * own last step. */
TEST(with_gossip_a_step_is_read_computed_and_added)
{
    show s = {0};
    play_well(&s, RANKS, NULL, "--sync adpsgd-d1 --lr 0.5");
    float at[RANKS] = {toy_start(0), toy_start(0)};
    for (uint64_t step = 0; step < 8; step++) {
        float mean = (at[0] + at[1]) / 2;
        for (int rank = 0; rank < RANKS; rank++) {
            toy_learner l = {.base.place.rank = rank};
            if (step > 0) assert_near(s.run.toy.log[rank].weights[step], at[rank], 1e-6);
            at[rank] = mean - 0.5f * toy_draw(&l, step, 0);
        }
        if (step == 3) assert_near(s.run.toy.log[0].looks[0].weight, at[0], 1e-6); /* an epoch's end */
    }
}

TEST(a_plateau_has_no_shared_loss_with_gossip)
{
    show s = {0};
    play(&s, RANKS, NULL, "--sync dpsgd --schedule plateau:0.5");
    assert_int_equal(s.run.crew[1].status, TW_ERROR_ARGUMENT);
    assert_non_null(strstr(s.run.crew[1].text, "--schedule plateau:0.5"));
    assert_true(s.results[1].agreed);
}

static float spoil_worker_1(const toy_learner *l, uint64_t step, size_t element)
{
    return l->base.place.rank == 1 && step >= 2 ? NAN : toy_draw(l, step, element);
}

TEST_IN_FOLDER(with_gossip_one_that_is_lost_ends_all)
{
    static const char *const specs[] = {"dpsgd", "adpsgd-random"};
    for (size_t k = 0; k < 2; k++) {
        show s = {.run.toy.gradient = spoil_worker_1};
        char words[64];
        snprintf(words, sizeof words, "--steps 40 --sync %s", specs[k]);
        play(&s, RANKS, *state, words);
        for (int rank = 0; rank < RANKS; rank++) {
            assert_int_equal(s.run.crew[rank].status, TW_ERROR_NONFINITE);
            assert_non_null(strstr(s.run.crew[rank].text, "10 steps in a row"));
            assert_true(s.results[rank].agreed);
        }
        if (k == 1) assert_int_equal(s.run.toy.log[1].step_count, 12); /* the others stop with all */
        assert_false(folder_has_checkpoint(*state));
        begin_anew(state);
    }
}

/* ---- gradients that are kept ------------------------------------------------------------------------------------- */

TEST_IN_FOLDER(kept_gradients_are_what_is_handed_over)
{
    char words[200], path[FOLDER_PATH];
    float kept[TOY_MATRIX], squares = 0;
    tw_state *file;
    toy_learner l = {0};
    show s = {0};
    snprintf(words, sizeof words, "--sync topk:density=1,min_elements=1 --clip 0.5 --dump-steps 3 --dump-gradients %s",
             (char *)*state);
    play_well(&s, RANKS, NULL, words);
    snprintf(path, sizeof path, "%s/step-000003.safetensors", (char *)*state);
    assert_ok(tw_state_load(path, &file));
    assert_ok(tw_state_get(file, "matrix", TW_F32, TOY_MATRIX, kept));
    tw_state_destroy(file);
    for (size_t i = 0; i < TOY_PARAMETERS; i++) squares += toy_draw(&l, 2, i) * toy_draw(&l, 2, i);
    for (size_t i = 0; i < TOY_MATRIX; i++)
        assert_near(kept[i], toy_draw(&l, 2, i) * 0.5f * sqrtf(2) / sqrtf(squares), 1e-6);
}

RUN_TESTS(NULL, NULL)
