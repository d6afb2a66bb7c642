#include "commands.h"
#include "error.h"
#include "folder.h"
#include "launch.h"
#include "settings.h"
#include <string.h>

/* A run folder is continued in place unless --out says otherwise. */
static tw_status complete_resume(train_settings *settings)
{
    if (!settings->resume || settings->out) return TW_OK;
    if (!*settings->resume)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--resume continues from --out DIR, which is missing; or name the run: --resume DIR");
    if (folder_names_checkpoint(settings->resume)) return TW_OK;
    settings->out = strdup(settings->resume);
    return settings->out ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for a folder's name");
}

/* What the table of options cannot say. */
static tw_status complete(options *set, train_settings *settings)
{
    if (settings->config) TW_TRY(options_read_file(set, settings->config));
    settings->set = set;
    settings->momentum_given = options_given(set, "momentum");
    settings->nesterov_given = options_given(set, "nesterov");
    TW_TRY(complete_resume(settings));
    return settings_complete(settings->task, set);
}

static int run(void *settings, options *set)
{
    return complete(set, settings) == TW_OK ? launch(settings) : launch_refuse();
}

/* The first word names the task, whose options the others are. Without it there is help to give, for the first task. */
static tw_status choose_task(int argc, char **argv, const task_ops **ops)
{
    *ops = task_at(0);
    if (argc > 0 && argv[0][0] != '-') return task_find(argv[0], ops);
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "a word is missing; usage: thinwire train TASK [options], TASK first");
}

int command_train(int argc, char **argv)
{
    train_settings settings = {0};
    train_page page;
    if (choose_task(argc, argv, &settings.task) != TW_OK) return launch_refuse();
    if (settings_page(settings.task, &page) != TW_OK) return launch_refuse();
    return command_run(&page.page, argc, argv, &settings, run);
}
