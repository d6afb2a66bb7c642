/* The table of options that a run is told by, and what of it a resumed run must share. */
#include "settings.h"
#include "support.h"
#include "whole_file.h"
#include <unistd.h>

enum { NAME = 32 };

/* A task with `count` options, each of which decides a run's bits. */
static void make_task(task_ops *ops, size_t count, option_row rows[OPTIONS_MOST + 1], char names[][NAME])
{
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], NAME, "own-%zu", i);
        rows[i] = (option_row){names[i], "N", OPTION_INTEGER, 0, "7", 0, 9, .help = "one of many", .binding = true};
    }
    *ops = (task_ops){.name = "many", .summary = "has many options", .rows = rows, .row_count = count};
}

static size_t shared_rows(void)
{
    static option_row none[OPTIONS_MOST + 1];
    static char names[1][NAME];
    static train_page page;
    task_ops ops;
    make_task(&ops, 0, none, names);
    assert_ok(settings_page(&ops, &page));
    return page.page.count;
}

/* None of them is left out of what a checkpoint and its resumption are compared by. */
TEST(as_many_options_as_there_is_room_for_bind_a_run)
{
    static option_row rows[OPTIONS_MOST + 1];
    static char names[OPTIONS_MOST + 1][NAME];
    static setting_text identity[SETTINGS_IDENTITY];
    static train_page page;
    size_t own = OPTIONS_MOST - shared_rows(), found = 0;
    task_ops ops;
    options set;
    train_settings settings = {0};
    make_task(&ops, own, rows, names);
    assert_ok(settings_page(&ops, &page));
    assert_ok(options_parse(&page.page, 1, (char *[]){"many"}, &settings, &set));
    settings.task = &ops;
    settings.set = &set;
    size_t count = settings_identity(&settings, 3, identity);
    for (size_t i = 0; i < count; i++) found += strncmp(identity[i].key, "own-", 4) == 0;
    assert_true(own > 40);
    assert_int_equal(found, own);
    options_release(&set);
}

TEST(one_more_is_refused)
{
    static option_row rows[OPTIONS_MOST + 1];
    static char names[OPTIONS_MOST + 1][NAME];
    static train_page page;
    task_ops ops;
    make_task(&ops, OPTIONS_MOST - shared_rows() + 1, rows, names);
    assert_fails(settings_page(&ops, &page), TW_ERROR_ARGUMENT, "at most 96 rows");
}

static int names_a_path(const option_row *row)
{
    static const char *const words[] = {"PATH", "DIR", "FILE", "RUN"};
    for (size_t i = 0; row->placeholder && i < sizeof words / sizeof *words; i++)
        if (strcmp(row->placeholder, words[i]) == 0) return 1;
    return 0;
}

/* --out is never inherited, and --plugin's files are named from the root on when they are loaded. */
static int is_excepted(const option_row *row)
{
    return row->line_only || strcmp(row->name, "out") == 0 || row->list;
}

/* A run goes on from any folder, so what it notes of its data has to hold there. */
TEST(every_tasks_paths_are_known_as_such)
{
    static train_page page;
    for (size_t i = 0; task_at(i); i++) {
        assert_ok(settings_page(task_at(i), &page));
        for (size_t k = 0; k < page.page.count; k++) {
            const option_row *row = &page.rows[k];
            if (!names_a_path(row) || is_excepted(row) || row->path) continue;
            fail_msg("task %s: --%s %s has no .path", task_at(i)->name, row->name, row->placeholder);
        }
    }
}

/* ---- a file that takes another's place --------------------------------------------------------------------------- */

static char last_synced[FILENAME_MAX];

/* In place of the system's: notes which file it was. */
int fsync(int file)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, last_synced, sizeof last_synced - 1);
    last_synced[length > 0 ? length : 0] = '\0';
    return 0;
}

static tw_status write_word(void *context, FILE *file)
{
    return fputs(context, file) >= 0 ? TW_OK : TW_ERROR_IO;
}

TEST_IN_FOLDER(a_file_is_on_the_disk_before_it_takes_its_place)
{
    char path[FILENAME_MAX], partial[FILENAME_MAX + 16];
    snprintf(path, sizeof path, "%s/file", (char *)*state);
    snprintf(partial, sizeof partial, "%s.partial", path);
    assert_ok(whole_file_write(path, write_word, (char *)"word"));
    assert_string_equal(last_synced, partial);
    assert_true(access(path, F_OK) == 0 && access(partial, F_OK) != 0);
}

/* By the name that a person gave, and not by that of the file beside it. */
TEST(a_file_that_cannot_be_written_is_named)
{
    assert_fails(whole_file_write("/nonexistent/file", write_word, (char *)"word"), TW_ERROR_IO,
                 "/nonexistent/file could not be written: No such file or directory");
}

RUN_TESTS(NULL, NULL)
