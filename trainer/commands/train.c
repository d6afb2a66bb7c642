#include "commands.h"
#include "error.h"
#include "folder.h"
#include "launch.h"
#include "model.h"
#include <string.h>

static tw_status check_task(const char *task)
{
    static const char *const later[] = {"lm", "asr", "w2v-bert"};
    if (strcmp(task, "image") == 0) return TW_OK;
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (strcmp(task, later[i]) == 0)
            return tw_fail(TW_ERROR_UNSUPPORTED, "task '%s' is not in this version; it has 'image'", task);
    return tw_fail(TW_ERROR_ARGUMENT, "unknown task '%s'; this version has 'image'", task);
}

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

static tw_status complete_schedule(train_settings *settings)
{
    if (settings->schedule) return TW_OK;
    const char *own = model_schedule(settings->model);
    settings->schedule = strdup(own ? own : "constant"); /* an unknown model is refused when it is made */
    return settings->schedule ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for a schedule's name");
}

/* What the table of options cannot say. */
static tw_status complete(options *set, train_settings *settings)
{
    if (settings->config) TW_TRY(options_read_file(set, settings->config));
    settings->task = set->arguments[0];
    settings->set = set;
    settings->momentum_given = options_given(set, "momentum");
    settings->nesterov_given = options_given(set, "nesterov");
    TW_TRY(complete_resume(settings));
    TW_TRY(complete_schedule(settings));
    return check_task(settings->task);
}

static int run(void *settings, options *set)
{
    return complete(set, settings) == TW_OK ? launch(settings) : launch_refuse();
}

int command_train(int argc, char **argv)
{
    train_settings settings = {0};
    return command_run(&train_page, argc, argv, &settings, run);
}
