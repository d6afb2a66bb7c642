/* thinwire plan --clusters: which of the machines in a file hold a model together. */
#include "commands.h"
#include "error.h"
#include "exit.h"
#include "formation.h"
#include "json_file.h"
#include "launcher.h"
#include "plan_command.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 40 };

typedef struct clusters_settings {
    char *clusters, *json;
    long seed;
} clusters_settings;

/* What the file says, and what comes of it. */
typedef struct forming {
    const clusters_settings *settings;
    int64_t model; /* MB */
    size_t count;
    machine machines[FORMATION_MACHINES];
    const char *names[FORMATION_MACHINES]; /* the JSON's */
    int most;                              /* clusters that were tried */
    formation best[FORMATION_CLUSTERS];    /* of one, of two, ... */
    const formation *chosen;
    int64_t shares[FORMATION_MACHINES];
} forming;

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static tw_status refuse_others(const char *path, const char *where, const cJSON *object, const char *const *known)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        const char *const *name = known;
        while (*name && strcmp(*name, item->string) != 0) name++;
        if (!*name)
            return tw_fail(TW_ERROR_FORMAT, "%s: %s has an entry \"%s\"; want %s, %s%s%s", path, where, item->string,
                           known[0], known[1], known[2] ? ", " : "", known[2] ? known[2] : "");
    }
    return TW_OK;
}

static tw_status read_whole(const char *path, const char *where, const cJSON *object, const char *key, int64_t *value)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    double number = cJSON_IsNumber(item) ? item->valuedouble : 0;
    if (number < 1 || number > FORMATION_LARGEST || number != (double)(int64_t)number)
        return tw_fail(TW_ERROR_FORMAT, "%s: %s needs %s, a whole number from 1 to %d", path, where, key,
                       FORMATION_LARGEST);
    *value = (int64_t)number;
    return TW_OK;
}

static bool is_name(const char *text)
{
    if (!text || !*text || strlen(text) > NAME_BYTES) return false;
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 127) return false;
    return true;
}

static tw_status read_machine(const char *path, const cJSON *item, forming *f)
{
    static const char *const keys[] = {"name", "memory_mb", "mbit", NULL};
    char where[NAME_BYTES + 32];
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "name"));
    if (!is_name(name))
        return tw_fail(TW_ERROR_FORMAT, "%s: machine %zu needs a name of 1 to %d bytes without control characters",
                       path, f->count + 1, NAME_BYTES);
    snprintf(where, sizeof where, "machine %s", name);
    for (size_t i = 0; i < f->count; i++)
        if (strcmp(f->names[i], name) == 0)
            return tw_fail(TW_ERROR_FORMAT, "%s: %s is there twice; each needs a name of its own", path, where);
    TW_TRY(refuse_others(path, where, item, keys));
    TW_TRY(read_whole(path, where, item, "memory_mb", &f->machines[f->count].memory));
    TW_TRY(read_whole(path, where, item, "mbit", &f->machines[f->count].rate));
    f->names[f->count++] = name;
    return TW_OK;
}

static tw_status read_machines(const char *path, const cJSON *root, forming *f)
{
    static const char *const keys[] = {"model_mb", "machines", NULL};
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "machines"), *item;
    int count = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    TW_TRY(read_whole(path, "the file", root, "model_mb", &f->model));
    TW_TRY(refuse_others(path, "the file", root, keys));
    if (count < 1 || count > FORMATION_MACHINES)
        return tw_fail(TW_ERROR_FORMAT, "%s: the file needs machines, a list of 1 to %d of them", path,
                       FORMATION_MACHINES);
    cJSON_ArrayForEach(item, list) TW_TRY(read_machine(path, item, f));
    return TW_OK;
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

static tw_status form(forming *f)
{
    f->most = f->count < FORMATION_CLUSTERS ? (int)f->count : FORMATION_CLUSTERS;
    for (int clusters = 1; clusters <= f->most; clusters++) {
        formation *best = &f->best[clusters - 1];
        if (f->count <= FORMATION_EXACT)
            formation_exact(f->machines, f->count, f->model, clusters, best);
        else
            TW_TRY(formation_genetic(f->machines, f->count, f->model, clusters, (uint64_t)f->settings->seed, best));
        if (best->lacking == 0) f->chosen = best;
    }
    if (!f->chosen)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "%s: the model takes %" PRId64 " MB, and all machines together lack %" PRId64
                       " MB for it; add machines, or write a smaller model_mb",
                       f->settings->clusters, f->model, f->best[0].lacking);
    formation_share(f->machines, f->count, f->model, f->chosen, f->shares);
    return TW_OK;
}

static const char *search_name(const forming *f)
{
    return f->count <= FORMATION_EXACT ? "exact" : "genetic";
}

static void print_clusters(FILE *stream, const forming *f)
{
    int width = (int)strlen("machine");
    for (size_t i = 0; i < f->count; i++)
        if ((int)strlen(f->names[i]) > width) width = (int)strlen(f->names[i]);
    fprintf(stream, "%zu machines, a model of %" PRId64 " MB, the search is %s\n\n%-10s %12s %12s\n", f->count,
            f->model, search_name(f), "clusters", "lacking MB", "times apart");
    for (int c = 0; c < f->most; c++)
        fprintf(stream, "%-10d %12" PRId64 " %12" PRId64 "\n", c + 1, f->best[c].lacking, f->best[c].apart);
    fprintf(stream, "\n%-10s %-*s %12s %10s %12s\n", "cluster", width, "machine", "memory MB", "Mbit/s", "holds MB");
    for (int c = 0; c < f->chosen->clusters; c++)
        for (size_t i = 0; i < f->count; i++)
            if (f->chosen->of[i] == c)
                fprintf(stream, "%-10d %-*s %12" PRId64 " %10" PRId64 " %12" PRId64 "\n", c, width, f->names[i],
                        f->machines[i].memory, f->machines[i].rate, f->shares[i]);
    fprintf(stream, "\n%d cluster%s: the most %s of which each holds the model.\n", f->chosen->clusters,
            f->chosen->clusters == 1 ? "" : "s", f->count <= FORMATION_EXACT ? "there are" : "that the search found");
}

static cJSON *cluster_json(const forming *f, int cluster)
{
    cJSON *list = cJSON_CreateArray();
    for (size_t i = 0; i < f->count; i++) {
        if (f->chosen->of[i] != cluster) continue;
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", f->names[i]);
        cJSON_AddNumberToObject(item, "holds_mb", (double)f->shares[i]);
        cJSON_AddItemToArray(list, item);
    }
    return list;
}

static tw_status write_clusters(const forming *f)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddNumberToObject(root, "model_mb", (double)f->model);
    cJSON_AddStringToObject(root, "search", search_name(f));
    cJSON *tried = cJSON_AddArrayToObject(root, "tried");
    for (int c = 0; c < f->most; c++) {
        cJSON *row = cJSON_CreateObject();
        cJSON_AddNumberToObject(row, "clusters", c + 1);
        cJSON_AddNumberToObject(row, "lacking_mb", (double)f->best[c].lacking);
        cJSON_AddNumberToObject(row, "times_apart", (double)f->best[c].apart);
        cJSON_AddItemToArray(tried, row);
    }
    cJSON *clusters = cJSON_AddArrayToObject(root, "clusters");
    for (int c = 0; c < f->chosen->clusters; c++) cJSON_AddItemToArray(clusters, cluster_json(f, c));
    tw_status status = json_write(f->settings->json, root);
    cJSON_Delete(root);
    return status;
}

static tw_status plan_from_file(const clusters_settings *s)
{
    cJSON *root = NULL;
    if (s->json) TW_TRY(json_check(s->json));
    TW_TRY(json_read(s->clusters, &root));
    forming *f = calloc(1, sizeof *f);
    tw_status status = f ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory to form clusters of %s", s->clusters);
    if (f) f->settings = s;
    if (status == TW_OK) status = read_machines(s->clusters, root, f);
    if (status == TW_OK) status = form(f);
    if (status == TW_OK) print_clusters(json_beside(s->json), f);
    if (status == TW_OK && s->json) status = write_clusters(f);
    free(f);
    cJSON_Delete(root);
    return status;
}

static int clusters_run(void *settings, options *set)
{
    (void)set;
    return plan_from_file(settings) == TW_OK ? EXIT_DONE : launcher_refuse();
}

#define AT(field) offsetof(clusters_settings, field)

static const option_row rows[] = {
    {.help = "What to plan"},
    {"clusters", "FILE", OPTION_TEXT, AT(clusters), .line_only = true,
     .help = "JSON with model_mb, and machines, a list of which each has a name, memory_mb and mbit"},
    {"seed", "N", OPTION_INTEGER, AT(seed), "1", 0, 1e15,
     .help = "The seed of the search where there are more than ten machines"},
    {"json", "FILE", OPTION_TEXT, AT(json), .alone = "-",
     .help = "Write the clusters to FILE, too. Without FILE, or with -, write them to standard output"},
};

int plan_clusters(int argc, char **argv)
{
    clusters_settings settings = {0};
    static const option_page page = {
        .usage = "thinwire plan --clusters FILE [options]",
        .description =
            "Forms clusters of machines of unlike memory and speed, so that each cluster holds one model. It takes the "
            "most clusters that do, up to five, and makes them alike in the time that their machines take to send "
            "their memory. See docs/clusters.md.",
        .examples = "  thinwire plan --clusters machines.json\n"
                    "  thinwire plan --clusters machines.json --json clusters.json\n",
        .rows = rows,
        .count = sizeof rows / sizeof *rows,
    };
    return command_run(&page, argc, argv, &settings, clusters_run);
}
