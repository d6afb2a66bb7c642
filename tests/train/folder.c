/* Checkpoint folders: what is whole stays whole, whatever stops in between. */
#include "folder.h"
#include "support.h"

static void put_file(const char *folder, const char *name, const char *text)
{
    char path[FOLDER_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void write_checkpoint(const char *out, uint64_t step, const char *text)
{
    char partial[FOLDER_PATH];
    assert_ok(folder_begin(out, step, partial));
    put_file(partial, "model", text);
    assert_ok(folder_give_way(out, step));
    assert_ok(folder_publish(out, step, folder_kept(out, step)));
}

static int exists(const char *out, const char *name)
{
    char path[FOLDER_PATH];
    snprintf(path, sizeof path, "%s/checkpoints/%s", out, name);
    return access(path, F_OK) == 0;
}

static void assert_latest(const char *out, const char *name)
{
    char path[FOLDER_PATH];
    assert_ok(folder_find(out, 0, path));
    assert_string_equal(strrchr(path, '/') + 1, name);
}

static void last_two_are_kept(void **state)
{
    const char *out = *state;
    assert_false(folder_has_checkpoint(out));
    for (uint64_t step = 5; step <= 20; step += 5) write_checkpoint(out, step, "x");
    assert_false(exists(out, "step-00000005"));
    assert_false(exists(out, "step-00000010"));
    assert_true(exists(out, "step-00000015"));
    assert_true(exists(out, "step-00000020"));
    assert_true(folder_has_checkpoint(out));
    assert_latest(out, "step-00000020");
}

static void going_back_gives_up_what_came_after(void **state)
{
    const char *out = *state;
    write_checkpoint(out, 10, "x");
    write_checkpoint(out, 20, "x");
    write_checkpoint(out, 15, "x"); /* resumed from 10 */
    assert_true(exists(out, "step-00000010"));
    assert_false(exists(out, "step-00000020"));
    assert_latest(out, "step-00000015");
}

static void a_path_names_a_checkpoint_or_a_run(void **state)
{
    const char *out = *state;
    char path[FOLDER_PATH], found[FOLDER_PATH];
    write_checkpoint(out, 5, "x");
    write_checkpoint(out, 7, "x");
    snprintf(path, sizeof path, "%s/checkpoints/step-00000005//", out);
    assert_true(folder_names_checkpoint(path));
    assert_ok(folder_find(path, 0, found));
    assert_string_equal(found, path);
    assert_true(folder_owns(out, found));
    assert_false(folder_owns("/tmp", found));
    assert_true(folder_names_checkpoint("step-3"));
    assert_false(folder_names_checkpoint("runs/step-3/checkpoints"));
    assert_false(folder_names_checkpoint("step-3.partial"));
    assert_false(folder_names_checkpoint("runs/dgc/"));
    assert_false(folder_names_checkpoint(""));
}

static void unfinished_is_not_a_checkpoint(void **state)
{
    const char *out = *state;
    char partial[FOLDER_PATH], path[FOLDER_PATH];
    assert_ok(folder_begin(out, 7, partial));
    put_file(partial, "model", "half");
    assert_false(folder_has_checkpoint(out));
    assert_fails(folder_find(out, 0, path), TW_ERROR_IO, out);
    write_checkpoint(out, 8, "whole"); /* and sweeps what the killed run left */
    assert_false(exists(out, "step-00000007.partial"));
    assert_latest(out, "step-00000008");
}

static void second_rank_finds_it_published(void **state)
{
    const char *out = *state;
    char partial[FOLDER_PATH];
    assert_ok(folder_begin(out, 7, partial));
    assert_ok(folder_begin(out, 7, partial));
    put_file(partial, "model", "x");
    assert_ok(folder_publish(out, 7, 7));
    assert_ok(folder_publish(out, 7, 7));
    assert_true(exists(out, "step-00000007/model"));
}

static void same_step_again_replaces_or_comes_back(void **state)
{
    const char *out = *state;
    char partial[FOLDER_PATH];
    write_checkpoint(out, 7, "old");
    assert_ok(folder_begin(out, 7, partial));
    folder_abandon(out, 7);
    assert_true(exists(out, "step-00000007/model"));
    assert_ok(folder_begin(out, 7, partial));
    put_file(partial, "newer", "x");
    assert_ok(folder_publish(out, 7, 7));
    assert_true(exists(out, "step-00000007/newer"));
    assert_false(exists(out, "step-00000007/model"));
    assert_false(exists(out, "step-00000007.replaced"));
}

static void unwritable_is_named(void **state)
{
    (void)state;
    char partial[FOLDER_PATH];
    assert_fails(folder_begin("/dev/null", 1, partial), TW_ERROR_IO, "/dev/null");
    assert_fails(folder_make("/proc/nothing"), TW_ERROR_IO, "/proc/nothing");
}

static void a_run_killed_while_it_replaces_loses_nothing(void **state)
{
    const char *out = *state;
    char partial[FOLDER_PATH];
    write_checkpoint(out, 7, "old");
    assert_ok(folder_begin(out, 7, partial));
    put_file(partial, "model", "half");
    assert_true(folder_has_checkpoint(out)); /* killed here */
    assert_latest(out, "step-00000007.replaced");
    assert_true(exists(out, "step-00000007.replaced/model"));
    write_checkpoint(out, 7, "new"); /* the next run */
    assert_latest(out, "step-00000007");
    assert_false(exists(out, "step-00000007.replaced"));
}

static void a_name_without_room_for_checkpoints_is_refused(void **state)
{
    char out[FOLDER_PATH] = "";
    (void)state;
    while (strlen(out) < FOLDER_PATH - 300) strcat(out, "thinwire/");
    assert_fails(folder_open(out), TW_ERROR_ARGUMENT, "too long");
    assert_int_not_equal(access("thinwire", F_OK), 0);
}

static void the_newer_of_a_step_is_the_latest(void **state)
{
    const char *out = *state;
    char path[FOLDER_PATH];
    write_checkpoint(out, 7, "new");
    snprintf(path, sizeof path, "%s/checkpoints/step-00000007.replaced", out);
    assert_ok(folder_make(path)); /* killed before it was swept */
    assert_latest(out, "step-00000007");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(last_two_are_kept, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(going_back_gives_up_what_came_after, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_path_names_a_checkpoint_or_a_run, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(unfinished_is_not_a_checkpoint, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(second_rank_finds_it_published, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(same_step_again_replaces_or_comes_back, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_run_killed_while_it_replaces_loses_nothing, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(the_newer_of_a_step_is_the_latest, make_folder, remove_folder),
        cmocka_unit_test(a_name_without_room_for_checkpoints_is_refused),
        cmocka_unit_test(unwritable_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
