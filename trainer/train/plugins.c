#include "plugins.h"
#include "error.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_scheme.h>

/* A name without a slash is searched for where libraries are, so it means the same everywhere. A comma would end the
 * name. */
static const char *resolve(const char *file, char path[PATH_MAX])
{
    return strchr(file, '/') && realpath(file, path) && !strchr(path, ',') ? path : file;
}

static void write_resolved(FILE *list, char *files)
{
    char path[PATH_MAX];
    const char *between = "";
    for (char *file, *rest = files; (file = strsep(&rest, ","));) {
        if (!*file) continue;
        fprintf(list, "%s%s", between, resolve(file, path));
        between = ",";
    }
}

tw_status plugins_resolve(char **files)
{
    char *resolved = NULL;
    size_t size;
    if (!*files) return TW_OK;
    FILE *list = open_memstream(&resolved, &size);
    if (list) write_resolved(list, *files);
    if (!list || fclose(list) != 0) {
        free(resolved);
        return tw_fail(TW_ERROR_MEMORY, "no memory for --plugin");
    }
    free(*files);
    *files = resolved;
    return TW_OK;
}

tw_status plugins_load(const char *files)
{
    char *list = strdup(files ? files : ""), *rest = list;
    tw_status status = list ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for --plugin");
    for (char *file; status == TW_OK && (file = strsep(&rest, ","));)
        if (*file) status = tw_plugin_load(file);
    free(list);
    return status;
}
