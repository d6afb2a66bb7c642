/* What a run that goes on takes over from its own past. */
#include "resume.h"
#include "support.h"

typedef struct line {
    train_page page;
    options set;
    train_settings settings;
} line;

/* A command line, of the task image. */
static void begin(line *l, int count, char **words)
{
    *l = (line){0};
    assert_ok(task_find("image", &l->settings.task));
    assert_ok(settings_page(l->settings.task, &l->page));
    assert_ok(options_parse(&l->page.page, count, words, &l->settings, &l->set));
    l->settings.set = &l->set;
}

static void write_past(const char *text)
{
    write_bytes("run/config.yaml", (const uint8_t *)text, strlen(text));
}

#define LINE(l, ...) begin(l, (int)(sizeof(char *[]){__VA_ARGS__} / sizeof(char *)), (char *[]){__VA_ARGS__})

static tw_status inherit(line *l)
{
    return resume_inherit(in_folder("run"), &l->set, &l->settings);
}

TEST(what_nobody_gives_is_as_it_was)
{
    line l;
    write_past("task: image\nlr: 0.25\nbatch: 4\nsteps: 7\nsync: dgc\nout: elsewhere\ntransport: mpi\nworkers: 3\n");
    LINE(&l, "image", "--lr", "0.5");
    assert_ok(inherit(&l));
    assert_true(l.settings.lr == 0.5 && l.settings.batch == 4 && l.settings.steps == 7 && l.settings.workers == 3);
    assert_string_equal(l.settings.sync, "dgc");
    assert_null(l.settings.out);
    assert_int_equal(l.settings.transport, TRANSPORT_AUTO);
    options_release(&l.set);
}

/* Wherever a file of this release is cut, that is told; one of an earlier release does not say where it ends. */
TEST(a_past_that_has_lost_its_end_is_refused)
{
    static char whole[1 << 14];
    line l;
    LINE(&l, "image", "--seed", "7", "--lr", "0.25");
    write_past("");
    assert_ok(settings_write(&l.settings, in_folder("run/config.yaml")));
    FILE *file = fopen(in_folder("run/config.yaml"), "r");
    const size_t size = fread(whole, 1, sizeof whole - 1, file);
    fclose(file);
    options_release(&l.set);
    assert_string_equal(whole + size - 5, "\n...\n");
    for (size_t kept = 4; kept < size; kept++) {
        const char last = whole[kept];
        whole[kept] = 0;
        write_past(whole);
        LINE(&l, "image");
        if ((inherit(&l) == TW_OK) != (kept == size - 1)) fail_msg("%zu bytes of %zu", kept, size);
        options_release(&l.set);
        whole[kept] = last;
    }
    *strstr(whole, "\nlr: ") = 0;
    write_past(whole);
    LINE(&l, "image");
    assert_fails(inherit(&l), TW_ERROR_FORMAT, "its end is lost, as it has no last line \"...\": behind ");
    assert_non_null(strstr(tw_last_error(), " there may have been lr, "));
    options_release(&l.set);
    write_past("");
    LINE(&l, "image");
    assert_fails(inherit(&l), TW_ERROR_FORMAT, "run/config.yaml: it has no option");
    options_release(&l.set);
}

TEST(one_length_replaces_the_other)
{
    line l;
    write_past("epochs: 5\nsteps: 7\n");
    LINE(&l, "image", "--epochs", "2");
    assert_ok(inherit(&l));
    assert_ok(settings_complete(l.settings.task, &l.set));
    assert_true(l.settings.epochs == 2 && l.settings.steps == 0);
    options_release(&l.set);
    LINE(&l, "image", "--steps", "9");
    assert_ok(inherit(&l));
    assert_ok(settings_complete(l.settings.task, &l.set));
    assert_true(l.settings.epochs == 5 && l.settings.steps == 9);
    options_release(&l.set);
}

TEST(what_binds_is_refused_with_both_values)
{
    line l;
    write_past("batch: 4\nsync: dgc\n");
    LINE(&l, "image", "--batch", "8");
    assert_fails(inherit(&l), TW_ERROR_ARGUMENT, "--batch 8: the run in");
    assert_fails(inherit(&l), TW_ERROR_ARGUMENT, "has --batch 4,");
    options_release(&l.set);
    LINE(&l, "image", "--batch", "4", "--sync", "dgc:density=0.04");
    assert_ok(inherit(&l));
    options_release(&l.set);
    write_past("task: lm\n");
    LINE(&l, "image");
    assert_fails(inherit(&l), TW_ERROR_ARGUMENT, "is of task lm, not image");
    options_release(&l.set);
}

TEST(a_spec_means_what_it_meant)
{
    line l;
    write_past("sync: dgc\nsync-in-full: dgc:density=0.5\n");
    LINE(&l, "image");
    assert_ok(inherit(&l));
    assert_string_equal(l.settings.sync, "dgc:density=0.5");
    options_release(&l.set);
    LINE(&l, "image", "--sync", "dgc");
    assert_fails(inherit(&l), TW_ERROR_ARGUMENT, "has --sync dgc:density=0.5,");
    options_release(&l.set);
    write_past("sync: dgc\nsync-in-full: dgc:density=4e-2\n");
    LINE(&l, "image");
    assert_ok(inherit(&l));
    assert_string_equal(l.settings.sync, "dgc");
    options_release(&l.set);
}

TEST(the_task_is_found)
{
    const task_ops *ops = NULL;
    write_past("lr: 1\ntask: \"lm\"\n");
    assert_ok(resume_task(in_folder("run"), &ops));
    assert_string_equal(ops->name, "lm");
    write_past("task: juggling\n");
    assert_fails(resume_task(in_folder("run"), &ops), TW_ERROR_ARGUMENT, "juggling");
    write_past("- task\n- {task: lm}\n");
    assert_fails(resume_task(in_folder("run"), &ops), TW_ERROR_IO, "checkpoints holds no checkpoint");
    write_past("a: {task: lm}\nb: [task, lm]\ntask: image\n");
    assert_ok(resume_task(in_folder("run"), &ops));
    assert_string_equal(ops->name, "image");
    write_past("task: [\n");
    assert_fails(resume_task(in_folder("run"), &ops), TW_ERROR_FORMAT, "not YAML");
}

RUN_TESTS(make_folder, remove_folder)
