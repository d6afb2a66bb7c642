#include "commands.h"
#include "error.h"
#include "launch.h"
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

/* What the table of options cannot say. */
static tw_status complete(options *set, train_settings *settings)
{
    if (settings->config) TW_TRY(options_read_file(set, settings->config));
    settings->task = set->arguments[0];
    settings->set = set;
    settings->momentum_given = options_given(set, "momentum");
    settings->nesterov_given = options_given(set, "nesterov");
    if (settings->resume && !settings->out)
        return tw_fail(TW_ERROR_ARGUMENT, "--resume continues the newest checkpoint in --out DIR, which is missing");
    return check_task(settings->task);
}

int command_train(int argc, char **argv)
{
    train_settings settings = {0};
    options set;
    if (options_parse(&train_page, argc, argv, &settings, &set) != TW_OK) return launch_refuse();
    int code = EXIT_DONE;
    if (set.help)
        options_help(&train_page, stdout);
    else
        code = complete(&set, &settings) == TW_OK ? launch(&settings) : launch_refuse();
    options_release(&set);
    return code;
}
