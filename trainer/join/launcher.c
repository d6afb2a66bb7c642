#include "launcher.h"
#include "error.h"
#include "exit.h"
#include "settings.h"
#include <stdio.h>
#include <stdlib.h>

int launcher_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *rank = getenv(names[i]);
        if (rank) return atoi(rank);
    }
    return 0;
}

int launcher_tasks(void)
{
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    return tasks ? atoi(tasks) : 0;
}

int launcher_has_ranks(int transport)
{
    int started = getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE") || getenv("PMIX_RANK");
    return transport == TRANSPORT_MPI || (transport == TRANSPORT_AUTO && started);
}

tw_status launcher_read_seconds(double *seconds)
{
    const char *text = getenv("THINWIRE_JOIN_SECONDS");
    char *rest;
    if (!text) return TW_OK;
    *seconds = strtod(text, &rest);
    if (rest != text && !*rest && *seconds > 0 && *seconds <= 1e9) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "THINWIRE_JOIN_SECONDS is \"%.40s\" in the environment: want seconds, up to 1e9",
                   text);
}

int launcher_refuse(void)
{
    if (launcher_rank() == 0) fprintf(stderr, "thinwire: %s\n", tw_last_error());
    return EXIT_INPUT;
}
