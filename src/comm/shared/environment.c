#include "environment.h"

#include "check.h"

#include <limits.h>
#include <locale.h>
#include <stdlib.h>

/* thinwire's own name first, then those of torchrun, Slurm and MPI's launchers. */
static const char *const ranks[] = {"THINWIRE_RANK", "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", NULL};
static const char *const sizes[] = {"THINWIRE_SIZE",        "WORLD_SIZE", "SLURM_NTASKS",
                                    "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",   NULL};

tw_status tw_environment_number(const char *const *names, int *value)
{
    const char *text = NULL;
    char *rest;
    while (*names && !(text = getenv(*names))) names++;
    if (!text) return TW_OK;
    long number = strtol(text, &rest, 10);
    if (rest == text || *rest || number < INT_MIN || number > INT_MAX)
        return tw_fail(TW_ERROR_ARGUMENT, "%s is \"%.40s\" in the environment: want a number", *names, text);
    *value = (int)number;
    return TW_OK;
}

/* With a decimal point, also in a program that has chosen a language with a decimal comma. */
static double read_decimal(const char *text, char **rest)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    double number = plain ? strtod_l(text, rest, plain) : strtod(text, rest);
    if (plain) freelocale(plain);
    return number;
}

tw_status tw_environment_seconds(const char *name, double *seconds)
{
    const char *text = getenv(name);
    char *rest;
    if (!text) return TW_OK;
    *seconds = read_decimal(text, &rest);
    if (rest != text && !*rest) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "%s is \"%.40s\" in the environment: want seconds", name, text);
}

tw_status tw_environment_group(const char *name, int *rank, int *size, double *seconds)
{
    TRY(tw_environment_number(ranks, rank));
    TRY(tw_environment_number(sizes, size));
    if (!*size)
        return tw_fail(TW_ERROR_ARGUMENT, "transport \"%s\" needs the number of ranks: set THINWIRE_SIZE", name);
    return tw_environment_seconds("THINWIRE_JOIN_SECONDS", seconds);
}
