/* A run cut in two by a checkpoint ends with the bits of the run that was not; a checkpoint that does not fit is
 * refused by name and stays as it was. */
#include "checkpoint.h"
#include "checksum.h"
#include "exchange_gradients.h"
#include "folder.h"
#include "small_run.h"

/* One worker on a comm of its own. */
typedef struct bench {
    tw_comm *comm;
    worker worker;
} bench;

static tw_status open_bench(bench *b, const small_run *run)
{
    assert_ok(tw_comm_create_threads(1, &b->comm));
    return worker_create(&run->settings, run->work, b->comm, &b->worker);
}

static void close_bench(bench *b)
{
    worker_release(&b->worker);
    tw_comm_destroy(b->comm);
}

static void take_steps(worker *w, uint64_t until)
{
    double loss;
    while (w->step < until) assert_ok(worker_step(w, &loss));
}

static uint32_t weights(const worker *w)
{
    return tw_crc32c(0, w->learner->parameters, w->learner->parameter_count * sizeof(float));
}

/* Writes the checkpoint of step 5 of 12: in the middle of an epoch of 4. */
static void write_at_five(const small_run *run)
{
    bench b;
    assert_ok(open_bench(&b, run));
    take_steps(&b.worker, 5);
    assert_ok(checkpoint_write(&b.worker));
    close_bench(&b);
}

TEST_IN_FOLDER(resumed_equals_uninterrupted)
{
    small_run run;
    bench b;
    small_run_begin(&run, *state, "cnn");
    assert_ok(open_bench(&b, &run));
    take_steps(&b.worker, 12);
    uint32_t expected = weights(&b.worker);
    close_bench(&b);

    write_at_five(&run);
    run.settings.resume = "";
    assert_ok(open_bench(&b, &run));
    assert_int_not_equal(weights(&b.worker), expected);
    assert_ok(checkpoint_resume(&b.worker));
    assert_int_equal(b.worker.step, 5);
    assert_int_equal((int)b.worker.epoch_score.count, 8); /* one step into the second epoch */
    assert_true(b.worker.before.values[TOTAL_ITEMS] == 5 * 8);
    take_steps(&b.worker, 12);
    assert_int_equal(weights(&b.worker), expected);
    close_bench(&b);
    small_run_end(&run);
}

static tw_status resume(const small_run *run)
{
    bench b;
    assert_ok(open_bench(&b, run));
    tw_status status = checkpoint_resume(&b.worker);
    close_bench(&b);
    return status;
}

/* The name that the next one of the same step needs is taken. */
TEST_IN_FOLDER(one_that_cannot_begin_leaves_the_old)
{
    small_run run;
    bench b;
    char path[FOLDER_PATH];
    small_run_begin(&run, *state, "cnn");
    write_at_five(&run);
    snprintf(path, sizeof path, "%s/checkpoints/step-00000005.partial", run.settings.out);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    assert_ok(open_bench(&b, &run));
    b.worker.step = 5;
    assert_fails(checkpoint_write(&b.worker), TW_ERROR_IO, path);
    close_bench(&b);
    snprintf(path, sizeof path, "%s/checkpoints/step-00000005/model.safetensors", run.settings.out);
    assert_int_equal(access(path, F_OK), 0);
    small_run_end(&run);
}

TEST_IN_FOLDER(other_settings_are_refused_by_name)
{
    small_run own, network;
    small_run_begin(&own, *state, "cnn");
    small_run_begin(&network, *state, "resnet20");
    write_at_five(&own);
    network.settings.resume = "";
    assert_fails(resume(&network), TW_ERROR_STATE, "model cnn");
    small_run other = own;
    other.settings.resume = "";
    const small_run fresh = other;
    other.settings.seed = 4;
    assert_fails(resume(&other), TW_ERROR_STATE, "seed 3");
    other = fresh;
    other.settings.batch = 4;
    assert_fails(resume(&other), TW_ERROR_STATE, "batch 8");
    other = fresh;
    other.settings.sync = "allreduce";
    assert_fails(resume(&other), TW_ERROR_STATE, "sync dgc");
    other = fresh;
    other.settings.steps = 4;
    assert_fails(resume(&other), TW_ERROR_STATE, "5 steps");
    other = fresh;
    other.settings.lr = 0.1; /* may be changed */
    assert_ok(resume(&other));
    small_run_end(&network);
    small_run_end(&own);
}

/* dgc with so many patterns that a difference comes late. */
static void write_long_spec(char spec[1024], const char *end)
{
    strcpy(spec, "dgc:density=0.05,dense=fc1.weight");
    while (strlen(spec) < 900) strcat(spec, "|fc1.weight");
    strcat(spec, end);
}

TEST_IN_FOLDER(long_settings_count_to_their_end)
{
    small_run run;
    bench b;
    char spec[1024];
    small_run_begin(&run, *state, "cnn");
    char *given = run.settings.sync;
    run.settings.sync = spec;
    write_long_spec(spec, ",values=fp16");
    run.settings.momentum = 0;
    assert_ok(open_bench(&b, &run));
    assert_true(tw_reducer_momentum(reducer_of(&b.worker), NULL) == 0);
    take_steps(&b.worker, 1);
    assert_ok(checkpoint_write(&b.worker));
    close_bench(&b);
    run.settings.resume = "";
    assert_ok(resume(&run));
    write_long_spec(spec, ",values=fp32");
    assert_fails(resume(&run), TW_ERROR_STATE, "sync dgc");
    run.settings.sync = given;
    small_run_end(&run);
}

static long file_size(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    fclose(file);
    return size;
}

/* One bit of a byte; doing it twice mends the file. */
static void flip_byte(const char *path, long at)
{
    FILE *file = fopen(path, "r+b");
    fseek(file, at, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(byte ^ 1, file);
    fclose(file);
}

static void check_damage(const small_run *run, const char *path)
{
    long size = file_size(path);
    for (int i = 1; i < 8; i++) { /* from the middle of the tensors to the last byte */
        long at = size / 2 + (size - 1 - size / 2) * i / 7;
        flip_byte(path, at);
        assert_fails(resume(run), TW_ERROR_FORMAT, path);
        flip_byte(path, at);
    }
    assert_ok(resume(run));
    assert_int_equal(truncate(path, size - 1), 0);
    assert_fails(resume(run), TW_ERROR_FORMAT, path);
    assert_int_equal(truncate(path, 0), 0);
    assert_fails(resume(run), TW_ERROR_FORMAT, path);
    assert_int_equal(unlink(path), 0);
    assert_fails(resume(run), TW_ERROR_IO, path);
}

/* A text that no setting is compared with. */
static void check_damaged_text(const small_run *run, const char *path)
{
    char start[4096];
    FILE *file = fopen(path, "rb");
    size_t size = fread(start, 1, sizeof start, file);
    fclose(file);
    const char *text = memmem(start, size, "\"thinwire\":\"", 12);
    assert_non_null(text);
    flip_byte(path, text + 12 - start);
    assert_fails(resume(run), TW_ERROR_FORMAT, path);
    flip_byte(path, text + 12 - start);
}

/* The path of a file of the checkpoint of step 5. */
static const char *file_at_five(const small_run *run, const char *name, char path[FOLDER_PATH])
{
    snprintf(path, FOLDER_PATH, "%s/checkpoints/step-00000005/%s", run->settings.out, name);
    return path;
}

TEST_IN_FOLDER(damage_is_found)
{
    static const char *const names[] = {"model.safetensors", "worker-0.safetensors"};
    for (int i = 0; i < 2; i++) {
        small_run run;
        char path[FOLDER_PATH];
        small_run_begin(&run, *state, "cnn");
        write_at_five(&run);
        run.settings.resume = "";
        check_damaged_text(&run, file_at_five(&run, names[i], path));
        check_damage(&run, path);
        small_run_end(&run);
    }
}

/* Version 0.1 did not count what is sent between hosts, and later ones not the wait for data. */
TEST_IN_FOLDER(a_file_without_the_bytes_between_hosts_is_read)
{
    small_run run;
    bench b;
    tw_state *saved;
    double kept[TOTAL_COUNT];
    char path[FOLDER_PATH];
    small_run_begin(&run, *state, "cnn");
    write_at_five(&run);
    assert_ok(tw_state_load(file_at_five(&run, "worker-0.safetensors", path), &saved));
    assert_ok(tw_state_get(saved, "totals", TW_F64, TOTAL_COUNT, kept));
    kept[TOTAL_BYTES_SENT] = 77;
    kept[TOTAL_BYTES_BETWEEN] = 7;
    kept[TOTAL_SECONDS_DATA] = 5;
    for (size_t count = TOTAL_BYTES_BETWEEN; count <= TOTAL_COUNT; count++) {
        assert_ok(tw_state_put(saved, "totals", TW_F64, 1, &count, kept));
        assert_ok(checksum_put(saved));
        assert_ok(tw_state_save(saved, path));
        run.settings.resume = "";
        assert_ok(open_bench(&b, &run));
        assert_ok(checkpoint_resume(&b.worker));
        assert_true(b.worker.before.values[TOTAL_BYTES_SENT] == 77);
        assert_true(b.worker.before.values[TOTAL_BYTES_BETWEEN] == (count > TOTAL_BYTES_BETWEEN ? 7 : 77));
        assert_true(b.worker.before.values[TOTAL_SECONDS_DATA] == (count > TOTAL_SECONDS_DATA ? 5 : 0));
        close_bench(&b);
    }
    tw_state_destroy(saved);
    small_run_end(&run);
}

/* Of before tasks had more than six sums. */
TEST_IN_FOLDER(an_epoch_of_six_sums_is_read)
{
    small_run run;
    bench b;
    tw_state *saved;
    double old[] = {3, 8, 1, 2, 3, 4, 5, 6, 7};
    char path[FOLDER_PATH];
    small_run_begin(&run, *state, "cnn");
    write_at_five(&run);
    assert_ok(tw_state_load(file_at_five(&run, "worker-0.safetensors", path), &saved));
    assert_ok(tw_state_put(saved, "epoch", TW_F64, 1, (size_t[]){9}, old));
    assert_ok(checksum_put(saved));
    assert_ok(tw_state_save(saved, path));
    tw_state_destroy(saved);
    run.settings.resume = "";
    assert_ok(open_bench(&b, &run));
    assert_ok(checkpoint_resume(&b.worker));
    const task_score *e = &b.worker.epoch_score;
    assert_true(e->loss == 3 && e->count == 8 && b.worker.skipped_in_a_row == 7);
    for (int i = 0; i < TASK_PARTS; i++) assert_true(e->parts[i] == (i < 6 ? i + 1 : 0));
    close_bench(&b);
    small_run_end(&run);
}

TEST_IN_FOLDER(momentum_in_both_is_refused)
{
    small_run run;
    bench b;
    small_run_begin(&run, *state, "cnn");
    run.settings.momentum_given = true;
    assert_fails(open_bench(&b, &run), TW_ERROR_ARGUMENT, "--sync dgc:momentum=0.9");
    close_bench(&b);
    run.settings.momentum = 0; /* beside a spec that says another */
    assert_fails(open_bench(&b, &run), TW_ERROR_ARGUMENT, "--sync dgc:momentum=0");
    close_bench(&b);
    run.settings.momentum = 0.5;
    assert_ok(open_bench(&b, &run));
    close_bench(&b);
    small_run_end(&run);
}

RUN_TESTS(NULL, NULL)
