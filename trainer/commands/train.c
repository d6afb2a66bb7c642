#include "commands.h"
#include "error.h"
#include "exit.h"
#include "file_memory.h"
#include "folder.h"
#include "init_from.h"
#include "launch.h"
#include "launcher.h"
#include "network.h"
#include "plugins.h"
#include "resume.h"
#include "settings.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTHING "none" /* of --out */

/* A run folder is continued in place unless --out says otherwise. */
static tw_status complete_resume(options *set, train_settings *settings)
{
    const char *from = settings->resume;
    if (!from) return TW_OK;
    if (settings->init_from)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--init-from begins a new run and --resume goes on with an old one; leave one of them out");
    if (!*from && !settings->out)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--resume goes on with the run in --out DIR, which is missing; or name the run: --resume DIR");
    if (!*from && strcmp(settings->out, NOTHING) == 0)
        return tw_fail(TW_ERROR_ARGUMENT, "--resume goes on with the run in --out DIR, and --out none names none; name "
                                          "the run: --resume DIR --out none");
    if (!*from) from = settings->out;
    TW_TRY(resume_inherit(from, set, settings));
    if (settings->out || folder_names_checkpoint(from)) return TW_OK;
    /* A folder of that name is one, where a person has named it as the run. */
    if (asprintf(&settings->out, "%s%s", strcmp(from, NOTHING) == 0 ? "./" : "", from) >= 0) return TW_OK;
    settings->out = NULL;
    return tw_fail(TW_ERROR_MEMORY, "no memory for a folder's name");
}

/* Nothing is kept where a person says so, and what nobody has named gets a name when the workers have met. */
static tw_status complete_out(train_settings *settings)
{
    int nothing = settings->out && strcmp(settings->out, NOTHING) == 0;
    if (settings->out && !*settings->out)
        return tw_fail(TW_ERROR_ARGUMENT, "--out names no folder; name one, or leave the option out");
    if (settings->out && !nothing) return TW_OK;
    free(settings->out);
    settings->out = nothing ? NULL : strdup("");
    return nothing || settings->out ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for a folder's name");
}

/* The word may stand behind the options of a run that has said its task already. */
static tw_status check_word(const options *set, const train_settings *s)
{
    const char *word = set->argument_count > 0 ? set->arguments[0] : s->task->name;
    if (strcmp(word, s->task->name) == 0) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "%s: the run that goes on is of task %s; leave the word out", word,
                   s->task->name);
}

static tw_status read_config(options *set, const train_settings *s)
{
    if (!s->config) return TW_OK;
    TW_TRY(resume_check_task(s->config, s->task));
    return options_read_file(set, s->config);
}

/* When a run that goes on has said its --sync. automatic: a person has said auto, and the run what it chose. */
static tw_status check_link(const train_settings *s, bool automatic)
{
    tw_world_options world;
    if (!s->link) return TW_OK;
    if (!automatic)
        return tw_fail(TW_ERROR_ARGUMENT, "--link %s is for --sync auto, and --sync is %s; leave it out", s->link,
                       s->sync);
    return network_read_link(s->link, &world);
}

/* What the table of options cannot say. */
static tw_status train_complete(options *set, train_settings *settings)
{
    settings->set = set;
    TW_TRY(check_word(set, settings));
    TW_TRY(read_config(set, settings));
    TW_TRY(plugins_resolve(&settings->plugin));
    const bool automatic = strcmp(settings->sync, SYNC_AUTO) == 0;
    TW_TRY(complete_resume(set, settings));
    if (settings->memory_budget) file_memory_install();
    TW_TRY(check_link(settings, automatic));
    TW_TRY(init_from_shape(set, settings));
    TW_TRY(complete_out(settings));
    return settings_complete(settings->task, set);
}

static tw_status train_show(const train_settings *s, bool *shown)
{
    return s->task->show ? s->task->show(s->own, shown) : TW_OK;
}

static int train_run(void *settings, options *set)
{
    bool shown = false;
    if (train_show(settings, &shown) != TW_OK) return launcher_refuse();
    if (shown) return EXIT_DONE;
    return train_complete(set, settings) == TW_OK ? launch(settings) : launcher_refuse();
}

/* The value that an option has on the line; NULL where it is not there or has none. */
static const char *find_value(int argc, char **argv, const char *option)
{
    size_t length = strlen(option);
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], option, length) != 0) continue;
        if (argv[i][length] == '=') return argv[i] + length + 1;
        if (!argv[i][length] && i + 1 < argc && argv[i + 1][0] != '-') return argv[i + 1];
    }
    return NULL;
}

static int asks(int argc, char **argv, const char *word)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], word) == 0) return 1;
    return 0;
}

/* A value may look like a task, too: the advice is still right, for a task is what is missing. */
static tw_status refuse_without_task(int argc, char **argv)
{
    const task_ops *ops;
    for (int i = 0; i < argc; i++)
        if (task_find(argv[i], &ops) == TW_OK)
            return tw_fail(TW_ERROR_ARGUMENT, "the task comes first: thinwire train %s ...", argv[i]);
    return tw_fail(TW_ERROR_ARGUMENT, "TASK is missing, as in thinwire train image; thinwire train --help lists them");
}

/* The run that goes on knows its task, and so does the file of a configuration that a run has left. */
static tw_status infer_task(int argc, char **argv, const task_ops **ops)
{
    const char *config = find_value(argc, argv, "--config"), *run = find_value(argc, argv, "--resume");
    char *name = NULL;
    int has_name = run && *run, continues = run || asks(argc, argv, "--resume");
    if (!has_name) run = continues ? find_value(argc, argv, "--out") : NULL;
    if (run) return resume_task(run, ops);
    if (config) TW_TRY(options_find_in_file(config, "task", &name));
    if (!name) return refuse_without_task(argc, argv);
    tw_status status = task_find(name, ops);
    free(name);
    return status;
}

/* The first word names the task, whose options the others are. Without it there is help to give, for the first task, or
 * a run that knows. */
static tw_status choose_task(int argc, char **argv, const task_ops **ops)
{
    *ops = task_at(0);
    if (argc > 0 && strcmp(argv[0], "resume") == 0)
        return tw_fail(TW_ERROR_ARGUMENT, "resume is an option: thinwire train --resume%s%s", argc > 1 ? " " : "",
                       argc > 1 ? argv[1] : " RUN");
    if (argc > 0 && argv[0][0] != '-') return task_find(argv[0], ops);
    return asks(argc, argv, "--help") || asks(argc, argv, "-h") ? TW_OK : infer_task(argc, argv, ops);
}

int command_train(int argc, char **argv)
{
    train_settings settings = {0};
    train_page page;
    if (choose_task(argc, argv, &settings.task) != TW_OK) return launcher_refuse();
    if (settings_page(settings.task, &page) != TW_OK) return launcher_refuse();
    page.page.least_arguments = 0; /* the task is known by now */
    return command_run(&page.page, argc, argv, &settings, train_run);
}
