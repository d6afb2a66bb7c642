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

/* The files that rank 0 writes. */
static void fill(const char *folder, const char *text)
{
    put_file(folder, "model.safetensors", text);
    put_file(folder, "worker-0.safetensors", text);
}

static void finish_checkpoint(const char *out, uint64_t step, const char *partial, const char *text)
{
    uint64_t kept = folder_kept(out, step);
    fill(partial, text);
    assert_ok(folder_give_way(out, step));
    assert_ok(folder_publish(out, step, kept, 0));
}

static void write_checkpoint(const char *out, uint64_t step, const char *text)
{
    char partial[FOLDER_PATH];
    assert_ok(folder_begin(out, step, partial));
    finish_checkpoint(out, step, partial, text);
}

static void put_checkpoint(const char *out, const char *name, const char *text)
{
    char path[FOLDER_PATH];
    snprintf(path, sizeof path, "%s/checkpoints/%s", out, name);
    assert_ok(folder_make(path));
    fill(path, text);
}

static void assert_holds(const char *out, const char *name, const char *text)
{
    char path[FOLDER_PATH], line[64] = "";
    snprintf(path, sizeof path, "%s/checkpoints/%s/model.safetensors", out, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    assert_string_equal(line, text);
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

TEST_IN_FOLDER(last_two_are_kept)
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

TEST_IN_FOLDER(going_back_gives_up_what_came_after)
{
    const char *out = *state;
    write_checkpoint(out, 10, "x");
    write_checkpoint(out, 20, "x");
    write_checkpoint(out, 15, "x"); /* resumed from 10 */
    assert_true(exists(out, "step-00000010"));
    assert_false(exists(out, "step-00000020"));
    assert_latest(out, "step-00000015");
}

TEST_IN_FOLDER(a_path_names_a_checkpoint_or_a_run)
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

TEST_IN_FOLDER(unfinished_is_not_a_checkpoint)
{
    const char *out = *state;
    char partial[FOLDER_PATH], path[FOLDER_PATH];
    assert_ok(folder_begin(out, 7, partial));
    fill(partial, "half");
    assert_false(folder_has_checkpoint(out));
    assert_fails(folder_find(out, 0, path), TW_ERROR_IO, out);
    write_checkpoint(out, 8, "whole"); /* and sweeps what the killed run left */
    assert_false(exists(out, "step-00000007.partial"));
    assert_latest(out, "step-00000008");
}

/* Ranks that share a file system find done what another did. */
TEST_IN_FOLDER(second_rank_finds_it_published)
{
    const char *out = *state;
    char partial[FOLDER_PATH];
    write_checkpoint(out, 7, "old");
    write_checkpoint(out, 9, "old");
    for (int rank = 0; rank < 2; rank++) assert_ok(folder_begin(out, 7, partial));
    fill(partial, "new");
    for (int rank = 0; rank < 2; rank++) assert_ok(folder_give_way(out, 7));
    for (int rank = 0; rank < 2; rank++) assert_ok(folder_publish(out, 7, 7, 0));
    assert_holds(out, "step-00000007", "new");
    assert_latest(out, "step-00000007");
}

TEST_IN_FOLDER(same_step_again_replaces_or_comes_back)
{
    const char *out = *state;
    char partial[FOLDER_PATH];
    write_checkpoint(out, 7, "old");
    assert_ok(folder_begin(out, 7, partial));
    assert_ok(folder_give_way(out, 7));
    assert_false(exists(out, "step-00000007"));
    folder_abandon(out, 7);
    assert_holds(out, "step-00000007", "old");
    write_checkpoint(out, 7, "new");
    assert_holds(out, "step-00000007", "new");
    assert_false(exists(out, "step-00000007.replaced"));
}

/* The files of a checkpoint that a killed run had begun, perhaps with more workers, are not the next one's. */
TEST_IN_FOLDER(a_partial_one_is_begun_anew)
{
    const char *out = *state;
    char partial[FOLDER_PATH];
    assert_ok(folder_begin(out, 7, partial));
    put_file(partial, "worker-3.safetensors", "x");
    write_checkpoint(out, 7, "new");
    assert_false(exists(out, "step-00000007/worker-3.safetensors"));
}

/* It would hide the whole one before it, and name a step that nobody took. */
TEST_IN_FOLDER(a_file_of_such_a_name_is_no_checkpoint)
{
    char path[FOLDER_PATH];
    const char *out = *state;
    write_checkpoint(out, 10, "ten");
    snprintf(path, sizeof path, "%s/checkpoints", out);
    put_file(path, "step-00000099", "a file");
    assert_latest(out, "step-00000010");
    write_checkpoint(out, 20, "twenty");
    assert_latest(out, "step-00000020");
    assert_true(exists(out, "step-00000099"));
}

TEST_IN_FOLDER(incomplete_ones_count_for_nothing)
{
    const char *out = *state;
    char path[FOLDER_PATH];
    put_checkpoint(out, "step-00000005", "whole");
    put_checkpoint(out, "step-00000006", "half");
    snprintf(path, sizeof path, "%s/checkpoints/step-00000006/model.safetensors", out);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(folder_kept(out, 7), 5);
    write_checkpoint(out, 7, "new");
    assert_holds(out, "step-00000005", "whole");
    assert_ok(folder_find(out, 2, path));
    assert_string_equal(strrchr(path, '/') + 1, "step-00000005");
    assert_fails(folder_find(out, 3, path), TW_ERROR_IO, "no older checkpoint");
}

/* Of later ones the last to go is the newest: until then it is gone on with. */
TEST_IN_FOLDER(later_ones_lose_their_names_before_it_has_its_own)
{
    const char *out = *state;
    char partial[FOLDER_PATH];
    put_checkpoint(out, "step-00000002", "origin");
    put_checkpoint(out, "step-00000004", "left");
    put_checkpoint(out, "step-00000006", "left");
    put_checkpoint(out, "step-00000006.removed", "left by a killed run");
    put_file(out, "checkpoints/step-00000006.removed/note", "a person's");
    assert_ok(folder_begin(out, 4, partial));
    assert_latest(out, "step-00000006");
    assert_ok(folder_give_way(out, 4));
    assert_latest(out, "step-00000002");
    assert_false(exists(out, "step-00000004.replaced"));
    finish_checkpoint(out, 4, partial, "new");
    assert_latest(out, "step-00000004");
    assert_holds(out, "step-00000002", "origin");
    assert_false(exists(out, "step-00000006.removed"));
}

/* What a person put into a checkpoint stays, and is in the way of nothing. */
TEST_IN_FOLDER(a_persons_folder_stays)
{
    const char *out = *state;
    char path[FOLDER_PATH];
    for (int time = 0; time < 3; time++) {
        put_checkpoint(out, "step-00000009", "left");
        snprintf(path, sizeof path, "%s/checkpoints/step-00000009/notes", out);
        assert_ok(folder_make(path));
        write_checkpoint(out, 3, "new");
        assert_latest(out, "step-00000003");
    }
    assert_true(exists(out, "step-00000009.removed/notes"));
    assert_true(exists(out, "step-00000009.removed-2/notes"));
}

TEST(unwritable_is_named)
{
    char partial[FOLDER_PATH];
    assert_fails(folder_begin("/dev/null", 1, partial), TW_ERROR_IO, "/dev/null");
    assert_fails(folder_make("/proc/nothing"), TW_ERROR_IO, "/proc/nothing");
}

TEST_IN_FOLDER(a_run_killed_while_it_replaces_loses_nothing)
{
    const char *out = *state;
    char partial[FOLDER_PATH];
    write_checkpoint(out, 7, "old");
    assert_ok(folder_begin(out, 7, partial));
    fill(partial, "new");
    assert_ok(folder_give_way(out, 7));
    assert_true(folder_has_checkpoint(out)); /* killed here */
    assert_latest(out, "step-00000007.replaced");
    assert_int_equal(folder_kept(out, 8), 7);
    write_checkpoint(out, 8, "next"); /* the next run */
    assert_holds(out, "step-00000007", "old");
    assert_false(exists(out, "step-00000007.replaced"));
}

TEST(a_name_without_room_for_checkpoints_is_refused)
{
    char out[FOLDER_PATH] = "";
    while (strlen(out) < FOLDER_PATH - 300) strcat(out, "thinwire/");
    assert_fails(folder_open(out), TW_ERROR_ARGUMENT, "too long");
    assert_int_not_equal(access("thinwire", F_OK), 0);
}

/* Killed before it was swept; then a run goes back, and comes to the step again. */
TEST_IN_FOLDER(one_that_was_replaced_is_in_nobodys_way)
{
    const char *out = *state;
    put_checkpoint(out, "step-00000005", "origin");
    put_checkpoint(out, "step-00000007", "new");
    put_checkpoint(out, "step-00000007.replaced", "old");
    assert_latest(out, "step-00000007");
    write_checkpoint(out, 7, "newest");
    assert_holds(out, "step-00000007", "newest");
    assert_holds(out, "step-00000005", "origin");
    assert_false(exists(out, "step-00000007.replaced"));
}

/* What rank 0 says is where all others write. */
TEST(another_ranks_choice_is_below_runs)
{
    static const char *const wrong[] = {"",
                                        "/etc",
                                        "runs",
                                        "runs/",
                                        "runs/toys",
                                        "runs/other-1",
                                        "runs/toy-/../..",
                                        "runs/toy-1/../x",
                                        "../runs/toy-1",
                                        "Runs/toy-1"};
    assert_ok(folder_check_chosen("toy", "runs/toy-1"));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(folder_check_chosen("toy", wrong[i]), TW_ERROR_PACKET, "which no run chooses");
}

RUN_TESTS(NULL, NULL)
