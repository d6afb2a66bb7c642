/* The runs of a report: read, and named so that they are told apart. */
#include "error.h"
#include "plot.h"
#include "report.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- where they are ------------------------------------------------------------------------------------------- */

/* A folder's own name is kept, which may be a link's; "." and ".." have none. */
static char *join_path(char *above, const char *name)
{
    char *whole = above ? realpath(above, NULL) : NULL, *path = NULL;
    if (whole && asprintf(&path, "%s/%s", whole[1] ? whole : "", name) < 0) path = NULL;
    free(whole);
    return path;
}

static char *find_path(const char *folder)
{
    char *one = strdup(folder), *other = strdup(folder), *path = NULL;
    const char *name = one ? basename(one) : "";
    if (strchr("./", *name))
        path = realpath(folder, NULL);
    else if (other)
        path = join_path(dirname(other), name);
    free(one);
    free(other);
    return path;
}

static bool is_there(const report *r, const char *path)
{
    for (size_t i = 0; i < r->count; i++)
        /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): none is added without a path */
        if (strcmp(r->runs[i].path, path) == 0) return true;
    return false;
}

/* --- what they are called ------------------------------------------------------------------------------------- */

static const char *end_of(const char *path, size_t parts)
{
    const char *at = path + strlen(path);
    while (at > path && (at[-1] != '/' || --parts > 0)) at--;
    return at;
}

static bool is_shared(const report *r, size_t run, const char *name, size_t parts)
{
    for (size_t i = 0; i < r->count; i++)
        if (i != run && strcmp(end_of(r->runs[i].path, parts), name) == 0) return true;
    return false;
}

static const char *choose_name(const report *r, size_t run)
{
    const char *path = r->runs[run].path, *name;
    size_t parts = 0;
    do {
        name = end_of(path, ++parts);
    } while (name > path && is_shared(r, run, name, parts));
    return name;
}

/* -------------------------------------------------------------------------------------------------------------- */

static void release_run(report_run *run)
{
    run_log_release(&run->log);
    free(run->path);
}

static tw_status add_run(report *r, const char *folder)
{
    report_run run = {.path = NULL};
    TW_TRY(run_log_read(folder, &run.log));
    run.path = find_path(folder);
    if (!run.path || is_there(r, run.path)) {
        tw_status status = run.path ? TW_OK : tw_fail(TW_ERROR_IO, "%s: %s", folder, strerror(errno));
        release_run(&run);
        return status;
    }
    snprintf(run.colour, sizeof run.colour, "%s", plot_colour((int)r->count));
    r->runs[r->count++] = run;
    return TW_OK;
}

tw_status report_read(report *r, char *const *folders, size_t count)
{
    r->runs = calloc(count, sizeof *r->runs);
    if (!r->runs) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu runs", count);
    for (size_t i = 0; i < count; i++) TW_TRY(add_run(r, folders[i]));
    for (size_t i = 0; i < r->count; i++) r->runs[i].name = choose_name(r, i);
    r->drawn = r->count < REPORT_MOST_DRAWN ? r->count : REPORT_MOST_DRAWN;
    return TW_OK;
}

void report_release(report *r)
{
    for (size_t i = 0; i < r->count; i++) release_run(&r->runs[i]);
    free(r->runs);
    free(r->picture);
}
