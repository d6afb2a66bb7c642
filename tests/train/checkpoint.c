/* A run cut in two by a checkpoint ends with the bits of the run that was not; a checkpoint that does not fit is
 * refused by name and stays as it was. */
#include "checkpoint.h"
#include "folder.h"
#include "small_run.h"

/* One worker on a comm of its own. */
typedef struct bench {
    dataset data;
    tw_comm *comm;
    worker worker;
} bench;

static tw_status open_bench(bench *b, const train_settings *settings)
{
    b->data = make_data();
    assert_ok(tw_comm_create_threads(1, &b->comm));
    return worker_create(settings, &b->data, b->comm, &b->worker);
}

static void close_bench(bench *b)
{
    worker_release(&b->worker);
    tw_comm_destroy(b->comm);
    release_data(&b->data);
}

static void take_steps(worker *w, uint64_t until)
{
    double loss;
    while (w->step < until) assert_ok(worker_step(w, &loss));
}

static uint32_t weights(const worker *w)
{
    return tw_crc32c(0, model_parameters(w->model), w->parameter_count * sizeof(float));
}

/* Writes the checkpoint of step 5 of 12: in the middle of an epoch of 4. */
static void write_at_five(const train_settings *settings)
{
    bench b;
    assert_ok(open_bench(&b, settings));
    take_steps(&b.worker, 5);
    assert_ok(checkpoint_write(&b.worker));
    close_bench(&b);
}

static void resumed_equals_uninterrupted(void **state)
{
    train_settings settings = small_settings(*state);
    bench b;
    assert_ok(open_bench(&b, &settings));
    take_steps(&b.worker, 12);
    uint32_t expected = weights(&b.worker);
    close_bench(&b);

    write_at_five(&settings);
    settings.resume = "";
    assert_ok(open_bench(&b, &settings));
    assert_int_not_equal(weights(&b.worker), expected);
    assert_ok(checkpoint_resume(&b.worker));
    assert_int_equal(b.worker.step, 5);
    assert_int_equal(b.worker.epoch_result.images, 8); /* one step into the second epoch */
    assert_true(b.worker.before.values[TOTAL_IMAGES] == 5 * 8);
    take_steps(&b.worker, 12);
    assert_int_equal(weights(&b.worker), expected);
    close_bench(&b);
}

static tw_status resume(const train_settings *settings)
{
    bench b;
    assert_ok(open_bench(&b, settings));
    tw_status status = checkpoint_resume(&b.worker);
    close_bench(&b);
    return status;
}

static void other_settings_are_refused_by_name(void **state)
{
    train_settings own = small_settings(*state);
    write_at_five(&own);
    own.resume = "";
    train_settings other = own;
    other.seed = 4;
    assert_fails(resume(&other), TW_ERROR_STATE, "seed 3");
    other = own;
    other.batch = 4;
    assert_fails(resume(&other), TW_ERROR_STATE, "batch 8");
    other = own;
    other.sync = "allreduce";
    assert_fails(resume(&other), TW_ERROR_STATE, "sync dgc");
    other = own;
    other.model = "resnet20";
    assert_fails(resume(&other), TW_ERROR_STATE, "model cnn");
    other = own;
    other.steps = 4;
    assert_fails(resume(&other), TW_ERROR_STATE, "5 steps");
    other = own;
    other.lr = 0.1; /* may be changed */
    assert_ok(resume(&other));
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

/* Inverts one byte; doing it twice mends the file. */
static void flip_byte(const char *path, long at)
{
    FILE *file = fopen(path, "r+b");
    fseek(file, at, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(~byte & 0xff, file);
    fclose(file);
}

static void check_damage(const train_settings *settings, const char *path)
{
    long size = file_size(path);
    for (int i = 1; i < 8; i++) { /* from the middle of the tensors to the last byte */
        long at = size / 2 + (size - 1 - size / 2) * i / 7;
        flip_byte(path, at);
        assert_fails(resume(settings), TW_ERROR_FORMAT, path);
        flip_byte(path, at);
    }
    assert_ok(resume(settings));
    assert_int_equal(truncate(path, size - 1), 0);
    assert_fails(resume(settings), TW_ERROR_FORMAT, path);
    assert_int_equal(truncate(path, 0), 0);
    assert_fails(resume(settings), TW_ERROR_FORMAT, path);
    assert_int_equal(unlink(path), 0);
    assert_fails(resume(settings), TW_ERROR_IO, path);
}

static void damage_is_found_in(const char *name, void **state)
{
    train_settings settings = small_settings(*state);
    write_at_five(&settings);
    settings.resume = "";
    char path[FOLDER_PATH];
    snprintf(path, sizeof path, "%s/checkpoints/step-00000005/%s", settings.out, name);
    check_damage(&settings, path);
}

static void damaged_model_file_is_found(void **state)
{
    damage_is_found_in("model.safetensors", state);
}

static void damaged_worker_file_is_found(void **state)
{
    damage_is_found_in("worker-0.safetensors", state);
}

static void momentum_in_both_is_refused(void **state)
{
    train_settings settings = small_settings(*state);
    bench b;
    settings.momentum_given = true;
    assert_fails(open_bench(&b, &settings), TW_ERROR_ARGUMENT, "--sync dgc:momentum=0.9");
    close_bench(&b);
    settings.momentum = 0;
    assert_ok(open_bench(&b, &settings));
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(resumed_equals_uninterrupted, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(other_settings_are_refused_by_name, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(damaged_model_file_is_found, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(damaged_worker_file_is_found, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(momentum_in_both_is_refused, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
