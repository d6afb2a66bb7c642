/* What every task's learner promises the training loop, and what its model gets of seed, step and place: the workers'
 * slices are one batch, masks differ, a learner can begin at any step, and an evaluation's parts are the whole. */
#include "bench.h"

static const char *const tasks[] = {
    "image --data @ --crop 2 --flip",
    "lm --data @/texts --layers 1 --hidden 8 --bptt 5 --init 0.5",
    "asr --data @/speech/manifest.json --test @/speech/manifest.json --features rate=8000,bins=8,stack=2,stride=2 "
    "--layers 1 --hidden 6 --tempo 0.2 --time-masks 1 --frequency-masks 1 --frequency-mask 3",
    "asr --model frames --data @/speech --test @/speech --alignment @/speech/ali.txt --features rate=8000,bins=8 "
    "--window 12 --layers 1 --hidden 6 --bottleneck 4",
    "asr --data @/speech/manifest.json --test @/speech/manifest.json --features rate=8000,bins=8,hop_ms=5 --encoder "
    "conformer --blocks 1 --width 8 --heads 2 --kernel 3 --channels 4 --positions relative --freeze features",
    "image --data @/photos --image-size 12 --crop 2 --flip --resized-crop",
    "lm --data @/texts --model transformer --layers 2 --hidden 8 --heads 2 --kv-heads 1 --bptt 5 --init 0.5",
};
/* How each of them is given a validation set. */
static const char *const validation[] = {"--validation 0.2",
                                         "",
                                         "--validation-data @/speech/manifest.json",
                                         "--validation-data @/speech",
                                         "--validation-data @/speech/manifest.json",
                                         "--validation 0.34",
                                         ""};

enum { TASKS = sizeof tasks / sizeof *tasks };

static int write_all(void **state)
{
    int made = make_folder(state);
    if (made != 0) return made;
    write_images();
    write_texts();
    write_speech(0);
    write_photos();
    return 0;
}

/* ---- the workers' slices ----------------------------------------------------------------------------------------- */

/* In an epoch each item is met by one worker, once; what does not fill a global batch is left out. */
static void check_slices(int size, size_t batch, uint64_t steps)
{
    char met[IMAGES] = {0};
    bench b;
    bench_open(&b, tasks[0]);
    for (int rank = 0; rank < size; rank++) {
        learner *l = bench_learner(&b, rank, size, batch);
        assert_int_equal(l->steps_per_epoch, steps);
        for (uint64_t step = 0; step < steps; step++) {
            assert_int_equal(task_slice(l, step), task_slice(l, step + steps));
            for (size_t i = 0; i < batch; i++) met[task_slice(l, step) + i]++;
        }
        task_learner_destroy(l);
    }
    for (size_t i = 0; i < IMAGES; i++) assert_int_equal(met[i], i < steps * batch * (size_t)size);
    bench_close(&b);
}

TEST_BETWEEN(slices_are_disjoint_and_complete, write_all, remove_folder)
{
    check_slices(1, 8, 5);
    check_slices(2, 4, 5);
    check_slices(3, 4, 3);
    check_slices(4, 10, 1);
}

TEST_BETWEEN(a_batch_is_at_most_what_there_is, write_all, remove_folder)
{
    static const size_t most[] = {IMAGES / 2, 0, UTTERANCES / 2, UTTERANCES * FRAMES / 12 / 2, UTTERANCES / 2,
                                  PHOTOS / 2, 0};
    for (size_t t = 0; t < TASKS; t++) {
        bench b;
        learner *l;
        if (most[t] == 0) continue; /* strips are as short as they have to be */
        bench_open(&b, tasks[t]);
        assert_ok(bench_try_learner(&b, 1, 2, most[t], 3, &l));
        assert_int_equal(l->steps_per_epoch, 1);
        bench_step(l, 0);
        task_learner_destroy(l);
        assert_fails(bench_try_learner(&b, 1, 2, most[t] + 1, 3, &l), TW_ERROR_ARGUMENT, "--batch");
        bench_close(&b);
    }
}

/* Two workers' steps against one worker's with their batches together. */
static void check_gradients(const char *words)
{
    bench b;
    bench_open(&b, words);
    learner *parts[2] = {bench_learner(&b, 0, 2, 2), bench_learner(&b, 1, 2, 2)}, *whole = bench_learner(&b, 0, 1, 4);
    assert_int_equal(parts[0]->steps_per_epoch, whole->steps_per_epoch);
    for (uint64_t step = 0; step < whole->steps_per_epoch + 2; step++) {
        task_score one = bench_step(parts[0], step), two = bench_step(parts[1], step), all = bench_step(whole, step);
        assert_true(one.count + two.count == all.count);
        assert_near((one.loss + two.loss) / all.loss, 1, 1e-5);
        for (size_t i = 0; i < whole->parameter_count; i++) {
            double mean = one.count * (double)parts[0]->gradients[i] + two.count * (double)parts[1]->gradients[i];
            assert_near(mean / all.count, (double)whole->gradients[i], 1e-5);
        }
    }
    for (int r = 0; r < 2; r++) task_learner_destroy(parts[r]);
    task_learner_destroy(whole);
    bench_close(&b);
}

TEST_BETWEEN(small_batches_are_one_large_batch, write_all, remove_folder)
{
    for (size_t t = 0; t < TASKS; t++) check_gradients(tasks[t]);
}

/* ---- masks ------------------------------------------------------------------------------------------------------- */

/* Data on which all workers, and all epochs, meet the same. */
static const char *const alike[] = {
    "lm --data @/texts --layers 1 --hidden 8 --bptt 6 --init 0.5",
    "asr --data @/speech/manifest.json --test @/speech/manifest.json --features rate=8000,bins=8 --layers 1 --hidden 6",
    "asr --model frames --data @/speech --test @/speech --alignment @/speech/ali.txt --features rate=8000,bins=8 "
    "--window 48 --layers 1 --hidden 6",
    "asr --data @/speech/manifest.json --test @/speech/manifest.json --features rate=8000,bins=8,hop_ms=5 --encoder "
    "conformer --blocks 1 --width 8 --heads 2 --kernel 3 --channels 4",
    "lm --data @/texts --model transformer --layers 1 --hidden 8 --heads 2 --bptt 6 --init 0.5",
};

static int write_alike(void **state)
{
    char text[512] = "";
    int made = make_folder(state);
    if (made != 0) return made;
    for (int i = 0; i < 41; i++)
        strcat(text, "a b\n"); /* with the line's end, three tokens: strips of 30 begin alike */
    write_text("texts/train.txt", text);
    write_text("texts/valid.txt", text);
    write_text("texts/test.txt", text);
    write_speech(1);
    return 0;
}

typedef struct losses {
    double first, again, other_rank, other_step, other_epoch, other_seed;
} losses;

static losses take_losses(const char *words)
{
    bench b;
    bench_open(&b, words);
    learner *l = bench_learner(&b, 0, 2, 2), *same = bench_learner(&b, 0, 2, 2), *other = bench_learner(&b, 1, 2, 2);
    losses seen = {.first = bench_step(l, 0).loss};
    seen.again = bench_step(same, 0).loss;
    seen.other_rank = bench_step(other, 0).loss;
    seen.other_step = bench_step(l, 1).loss;
    seen.other_epoch = bench_step(l, l->steps_per_epoch).loss;
    task_learner_destroy(other);
    assert_ok(bench_try_learner(&b, 0, 2, 2, 4, &other));
    memcpy(other->parameters, l->parameters, l->parameter_count * sizeof *l->parameters);
    seen.other_seed = bench_step(other, 0).loss;
    task_learner_destroy(l);
    task_learner_destroy(same);
    task_learner_destroy(other);
    bench_close(&b);
    return seen;
}

TEST_BETWEEN(workers_and_steps_drop_other_values, write_alike, remove_folder)
{
    for (size_t t = 0; t < sizeof alike / sizeof *alike; t++) {
        char words[400];
        snprintf(words, sizeof words, "%s --dropout 0", alike[t]);
        losses whole = take_losses(words);
        assert_true(whole.again == whole.first && whole.other_rank == whole.first && whole.other_epoch == whole.first);
        assert_true(whole.other_seed == whole.first);
        if (t > 0) assert_true(whole.other_step == whole.first); /* words have a text before them */
        snprintf(words, sizeof words, "%s --dropout 0.5", alike[t]);
        losses dropped = take_losses(words);
        assert_true(dropped.first != whole.first);
        assert_true(dropped.again == dropped.first);
        snprintf(words, sizeof words, "%s --dropout 0.001", alike[t]);
        assert_near(take_losses(words).first / whole.first, 1, 3e-3); /* the share that is dropped, not kept */
        if (dropped.other_rank == dropped.first) fail_msg("%s: the masks of two workers are equal", alike[t]);
        if (dropped.other_step == dropped.first) fail_msg("%s: the masks of two steps are equal", alike[t]);
        if (dropped.other_epoch == dropped.first) fail_msg("%s: the masks of two epochs are equal", alike[t]);
        if (dropped.other_seed == dropped.first) fail_msg("%s: the masks of two seeds are equal", alike[t]);
    }
}

/* ---- any step can be the first ----------------------------------------------------------------------------------- */

static tw_state *save(const learner *l)
{
    tw_state *state;
    assert_ok(tw_state_create(&state));
    if (l->task->ops->save) assert_ok(l->task->ops->save(l, "p.", state));
    return state;
}

/* One learner walks through two epochs; others begin where it stands, with what a checkpoint would hold. */
static void check_beginnings(const char *words)
{
    bench b;
    bench_open(&b, words);
    learner *walker = bench_learner(&b, 1, 2, 2);
    uint64_t epoch = walker->steps_per_epoch;
    for (uint64_t step = 0; step < epoch + 2; step++) {
        tw_state *state = save(walker);
        learner *late = bench_learner(&b, 1, 2, 2);
        if (b.ops->restore) assert_ok(b.ops->restore(late, "p.", state));
        task_score expected = bench_step(walker, step), score = bench_step(late, step);
        assert_true(score.loss == expected.loss);
        assert_int_equal(bench_bits(late), bench_bits(walker));
        task_learner_destroy(late);
        tw_state_destroy(state);
    }
    task_learner_destroy(walker);
    bench_close(&b);
}

TEST_BETWEEN(a_learner_can_begin_at_any_step, write_all, remove_folder)
{
    for (size_t t = 0; t < TASKS; t++) {
        char words[512];
        snprintf(words, sizeof words, "%s%s", tasks[t], strncmp(tasks[t], "image", 5) ? " --dropout 0.3" : "");
        check_beginnings(words);
    }
}

/* The state is of the text before; at the beginning of an epoch there is none. */
TEST_BETWEEN(a_language_model_begins_each_epoch_anew, write_all, remove_folder)
{
    bench b;
    bench_open(&b, tasks[1]);
    learner *l = bench_learner(&b, 0, 2, 2);
    double first = bench_step(l, 0).loss, second = bench_step(l, 1).loss;
    assert_true(bench_step(l, l->steps_per_epoch).loss == first);
    assert_true(bench_step(l, 1).loss == second);
    assert_true(bench_step(l, 1).loss != second); /* what stood before it was another text */
    task_learner_destroy(l);
    bench_close(&b);
}

/* Without a step of the optimiser it is of no account where the text is cut. */
TEST_BETWEEN(a_language_model_reads_on, write_all, remove_folder)
{
    bench b, coarse;
    double fine_loss = 0, coarse_loss = 0;
    bench_open(&b, "lm --data @/texts --layers 2 --hidden 8 --bptt 5 --init 0.5");
    bench_open(&coarse, "lm --data @/texts --layers 2 --hidden 8 --bptt 10 --init 0.5");
    learner *l = bench_learner(&b, 1, 2, 2), *other = bench_learner(&coarse, 1, 2, 2);
    for (uint64_t step = 0; step < 8; step++) fine_loss += bench_step(l, step).loss;
    for (uint64_t step = 0; step < 4; step++) coarse_loss += bench_step(other, step).loss;
    assert_near(fine_loss, coarse_loss, 1e-4);
    task_learner_destroy(l);
    task_learner_destroy(other);
    bench_close(&b);
    bench_close(&coarse);
}

/* But for words, which are read from their beginning to their end. */
TEST_BETWEEN(each_epoch_has_an_order_of_its_own, write_all, remove_folder)
{
    static const char *const shuffled[] = {
        "image --data @",
        "asr --data @/speech/manifest.json --test @/speech/manifest.json --features rate=8000,bins=8 --hidden 6",
        "asr --model frames --data @/speech --test @/speech --alignment @/speech/ali.txt --features rate=8000,bins=8 "
        "--window 12 --hidden 6",
    };
    for (size_t t = 0; t < 3; t++) {
        bench b;
        bench_open(&b, shuffled[t]);
        learner *l = bench_learner(&b, 0, 2, 2);
        double second = bench_step(l, 1).loss;
        assert_true(bench_step(l, 0).loss != second);
        assert_true(bench_step(l, l->steps_per_epoch + 1).loss != second);
        assert_true(bench_step(l, 1).loss == second);
        task_learner_destroy(l);
        bench_close(&b);
    }
}

/* Whole epochs of one step, in which all items are met: their order is of no account, what is drawn for them is. */
static void check_variation(const char *words, size_t batch, int varies)
{
    bench b;
    bench_open(&b, words);
    learner *l = bench_learner(&b, 0, 1, batch);
    assert_int_equal(l->steps_per_epoch, 1);
    double first = bench_step(l, 0).loss, other = bench_step(l, 1).loss;
    if ((fabs(first - other) > 1e-3) != varies) fail_msg("%s: %g and %g", words, first, other);
    task_learner_destroy(l);
    bench_close(&b);
}

#define SPEECH "asr --data @/speech/manifest.json --test @/speech/manifest.json --features rate=8000,bins=8 --hidden 6 "

TEST_BETWEEN(each_epoch_varies_its_items, write_all, remove_folder)
{
    check_variation("image --data @ --limit-train 6", 6, 0);
    check_variation("image --data @ --limit-train 6 --crop 2", 6, 1);
    check_variation("image --data @ --limit-train 6 --flip", 6, 1);
    check_variation(SPEECH, UTTERANCES, 0);
    check_variation(SPEECH "--tempo 0.3", UTTERANCES, 1);
    check_variation(SPEECH "--time-masks 2", UTTERANCES, 1);
    check_variation(SPEECH "--frequency-masks 2", UTTERANCES, 1);
}

/* All letters as likely, and the same transcript: the more frames, the higher the loss. */
TEST_BETWEEN(speech_begins_with_the_shortest, write_all, remove_folder)
{
    bench b;
    char manifest[1024] = "", line[64];
    for (unsigned i = 0; i < UTTERANCES; i++) {
        snprintf(line, sizeof line, "{\"audio_filepath\": \"long-%u.wav\", \"text\": \"ab\"}\n", i);
        strcat(manifest, line);
    }
    write_text("speech/even.json", manifest);
    bench_open(&b, "asr --data @/speech/even.json --test @/speech/even.json --features rate=8000,bins=8 --hidden 4");
    learner *l = bench_learner(&b, 0, 1, 1);
    int rises = 0;
    memset(l->parameters, 0, l->parameter_count * sizeof *l->parameters);
    for (uint64_t step = 1; step < UTTERANCES; step++) {
        assert_true(bench_step(l, step).loss > bench_step(l, step - 1).loss);
        rises += bench_step(l, UTTERANCES + step).loss > bench_step(l, UTTERANCES + step - 1).loss;
    }
    assert_true(rises < UTTERANCES - 1); /* in the second epoch they come as they are shuffled */
    task_learner_destroy(l);
    bench_close(&b);
}

TEST_BETWEEN(all_begin_with_the_same_weights, write_all, remove_folder)
{
    for (size_t t = 0; t < TASKS; t++) {
        bench b;
        bench_open(&b, tasks[t]);
        learner *l = bench_learner(&b, 0, 3, 1), *other = bench_learner(&b, 2, 3, 1);
        assert_memory_equal(l->parameters, other->parameters, l->parameter_count * sizeof(float));
        size_t elements = 0;
        for (size_t i = 0; i < l->tensor_count; i++) elements += tw_tensor_count(&l->tensors[i]);
        assert_int_equal(elements, l->parameter_count);
        task_learner_destroy(l);
        task_learner_destroy(other);
        bench_close(&b);
    }
}

/* ---- evaluation -------------------------------------------------------------------------------------------------- */

static task_score evaluate_in(learner *l, task_split split, size_t parts)
{
    task_score sum = {0};
    for (size_t part = 0; part < parts; part++) {
        task_score score = {0};
        assert_ok(l->task->ops->evaluate(l, split, part, parts, &score));
        task_score_add(&sum, &score);
    }
    return sum;
}

static void check_parts(learner *l, task_split split, size_t count)
{
    task_score whole = evaluate_in(l, split, 1);
    assert_true(whole.count == (double)count);
    for (size_t parts = 2; parts < 30; parts += 3) {
        task_score sum = evaluate_in(l, split, parts);
        assert_true(sum.count == whole.count);
        assert_near(sum.loss / whole.loss, 1, 1e-6);
        for (int i = 0; i < TASK_PARTS; i++) assert_true(sum.parts[i] == whole.parts[i]);
    }
}

/* Of 90 and 70 words, all that have others after them in strips of four. Of the six photos of each class two are held
 * out, and none of those is the damaged one. */
TEST_BETWEEN(the_parts_of_an_evaluation_are_the_whole, write_all, remove_folder)
{
    static const size_t counts[TASKS][2] = {{10, TEST_IMAGES},        {18 * 4, 14 * 4},
                                            {UTTERANCES, UTTERANCES}, {UTTERANCES * FRAMES, UTTERANCES * FRAMES},
                                            {UTTERANCES, UTTERANCES}, {4, 4}, /* one of five photos is damaged */
                                            {18 * 4, 14 * 4}};
    for (size_t t = 0; t < TASKS; t++) {
        bench b;
        char words[400];
        snprintf(words, sizeof words, "%s %s", tasks[t], validation[t]);
        bench_open(&b, words);
        assert_true(b.work->has_validation && b.work->has_test);
        learner *l = bench_learner(&b, 0, 2, 3);
        check_parts(l, TASK_VALIDATION, counts[t][0]);
        check_parts(l, TASK_TEST, counts[t][1]);
        task_learner_destroy(l);
        bench_close(&b);
    }
}

static void look_at_data(const char *words, char identity[128], char content[32])
{
    bench b;
    bench_open(&b, words);
    memcpy(identity, b.work->identity, 128);
    memcpy(content, b.work->content, 32);
    bench_close(&b);
}

/* A byte in the middle; the file is as large as before. */
static void alter(const char *name)
{
    FILE *file = fopen(in_folder(name), "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long middle = ftell(file) / 2;
    assert_int_equal(fseek(file, middle, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, middle, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    assert_int_equal(fclose(file), 0);
}

/* As many, with the same names, labels, transcripts and sizes of files. The text says all itself. */
TEST_BETWEEN(other_values_are_other_data, write_all, remove_folder)
{
    char identity[TASKS][128], content[TASKS][32], other_identity[128], other[32];
    for (size_t t = 0; t < TASKS; t++) look_at_data(tasks[t], identity[t], content[t]);
    write_split("train", IMAGES, 9);
    alter("photos/train/a/0.png");
    alter("speech/long-0.wav");
    alter("speech/0.wav");
    for (size_t t = 0; t < TASKS; t++) {
        look_at_data(tasks[t], other_identity, other);
        assert_string_equal(identity[t], other_identity);
        assert_true((strcmp(content[t], other) == 0) == (strncmp(tasks[t], "lm", 2) == 0));
    }
}

static int stop_at_once(void)
{
    return 1;
}

TEST_BETWEEN(an_evaluation_heeds_the_wish_to_stop, write_all, remove_folder)
{
    for (size_t t = 0; t < TASKS; t++) {
        bench b;
        bench_open(&b, tasks[t]);
        learner *l = bench_learner(&b, 0, 2, 3);
        assert_true(evaluate_in(l, TASK_TEST, 1).count > 0);
        l->stops = stop_at_once;
        assert_true(evaluate_in(l, TASK_TEST, 1).count == 0);
        task_learner_destroy(l);
        bench_close(&b);
    }
}

static double loss_without_dropout(const char *words)
{
    bench b;
    bench_open(&b, words);
    learner *l = bench_learner(&b, 1, 2, 2);
    double loss = evaluate_in(l, TASK_TEST, 1).loss;
    task_learner_destroy(l);
    bench_close(&b);
    return loss;
}

/* A run with evaluations has the bits of one without. */
TEST_BETWEEN(an_evaluation_leaves_training_alone, write_all, remove_folder)
{
    for (size_t t = 0; t < TASKS; t++) {
        char words[512];
        bench b;
        snprintf(words, sizeof words, "%s%s", tasks[t], strncmp(tasks[t], "image", 5) ? " --dropout 0.3" : "");
        bench_open(&b, words);
        learner *l = bench_learner(&b, 1, 2, 2), *watched = bench_learner(&b, 1, 2, 2);
        task_score before = evaluate_in(watched, TASK_TEST, 1);
        assert_true(before.loss == loss_without_dropout(tasks[t]));
        for (uint64_t step = 0; step < 3; step++) {
            bench_step(l, step);
            bench_step(watched, step);
            assert_int_equal(bench_bits(l), bench_bits(watched));
            assert_true(evaluate_in(watched, TASK_TEST, 1).loss == before.loss); /* no dropout, and no step was taken */
        }
        task_learner_destroy(l);
        task_learner_destroy(watched);
        bench_close(&b);
    }
}

RUN_TESTS(NULL, NULL)
