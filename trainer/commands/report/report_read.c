/* The runs of a report: read, and named so that they are told apart. */
#include "error.h"
#include "plot.h"
#include "report.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- where they are ------------------------------------------------------------------------------------------- */

/* A folder's own name is kept, which may be a link's; "." and ".." have none. */
static tw_status find_path(const char *folder, char path[PATH_MAX])
{
    char one[PATH_MAX], other[PATH_MAX], above[PATH_MAX] = "";
    snprintf(one, sizeof one, "%s", folder);
    snprintf(other, sizeof other, "%s", folder);
    const char *name = basename(one);
    const bool has_name = *name && strcmp(name, "/") != 0 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
    if (!realpath(has_name ? dirname(other) : folder, above))
        return tw_fail(TW_ERROR_IO, "%s: %s", folder, strerror(errno));
    const int length = has_name ? snprintf(path, PATH_MAX, "%s/%s", above[1] ? above : "", name)
                                : snprintf(path, PATH_MAX, "%s", above);
    return length < PATH_MAX ? TW_OK : tw_fail(TW_ERROR_IO, "%s: %s", folder, strerror(ENAMETOOLONG));
}

static bool is_there(const report *r, const char *path)
{
    for (size_t i = 0; i < r->count; i++)
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

static tw_status add_run(report *r, const char *folder)
{
    report_run *run = &r->runs[r->count];
    TW_TRY(run_log_read(folder, &run->log));
    tw_status status = find_path(folder, run->path);
    if (status != TW_OK || is_there(r, run->path)) {
        run_log_release(&run->log);
        return status;
    }
    snprintf(run->colour, sizeof run->colour, "%s", plot_colour((int)r->count++));
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
    for (size_t i = 0; i < r->count; i++) run_log_release(&r->runs[i].log);
    free(r->runs);
    free(r->picture);
}
