#include "gnuplot.h"
#include "error.h"

#include <spawn.h>
#include <stddef.h>
#include <sys/wait.h>

extern char **environ;

tw_status gnuplot_run(const char *folder, const char *script)
{
    char *words[] = {"gnuplot", (char *)script, NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int outcome = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, folder);
    int error = posix_spawnp(&child, "gnuplot", &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        return tw_fail(TW_ERROR_UNSUPPORTED, "gnuplot is not installed (apt install gnuplot-nox); the curves are in %s",
                       folder);
    if (waitpid(child, &outcome, 0) != child || outcome != 0)
        return tw_fail(TW_ERROR_IO, "gnuplot failed on %s/%s", folder, script);
    return TW_OK;
}
