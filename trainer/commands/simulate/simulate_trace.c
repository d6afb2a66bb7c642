/* What a recorded run says of machine and codec. */
#include "error.h"
#include "folder.h"
#include "json_file.h"
#include "simulate.h"

#include <cJSON.h>
#include <math.h>
#include <stdlib.h>

enum { MOST_STEPS = 200 }; /* of the prediction: one step is like another, but for one with a pause */

static tw_status read_summary(const char *folder, cJSON **summary)
{
    char path[FOLDER_PATH];
    snprintf(path, sizeof path, "%s/summary.json", folder);
    tw_status status = json_read(path, summary);
    if (status == TW_OK) return TW_OK;
    return tw_fail(status, "--trace %s: %s; want the folder of a run that has ended", folder, tw_last_error());
}

/* One number of a summary, and what it can be where the run was a real one. */
typedef struct figure {
    const char *group, *key;
    double least, most;
} figure;

static tw_status read_figure(const char *folder, const cJSON *summary, const figure *f, double *value)
{
    const cJSON *item = cJSON_GetObjectItem(*f->group ? cJSON_GetObjectItem(summary, f->group) : summary, f->key);
    *value = cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
    if (*value >= f->least && *value <= f->most) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "--trace %s: summary.json has no number from %g to %g as %s%s%s", folder, f->least,
                   f->most, f->group, *f->group ? "." : "", f->key);
}

static tw_status take_figures(const char *folder, const cJSON *summary, simulate_record *record)
{
    enum { STEPS, WORKERS, PARAMETERS, PASS, DEVIATION, TRAINING, COMPUTE, WAIT, CODEC, RECEIVED, FIGURES };
    static const figure figures[FIGURES] = {
        [STEPS] = {"", "steps", 1, 1e15},
        [WORKERS] = {"", "workers", 1, WORKERS_MOST},
        [PARAMETERS] = {"", "parameters", 1, 1e15},
        [PASS] = {"pass", "seconds", 1e-9, 1e6},
        [DEVIATION] = {"pass", "deviation", 0, 1e6},
        [TRAINING] = {"seconds", "training", 0, 1e9},
        [COMPUTE] = {"seconds", "compute", 0, 1e9},
        [WAIT] = {"seconds", "wait", 0, 1e9},
        [CODEC] = {"seconds", "codec", 0, 1e9},
        [RECEIVED] = {"bytes", "received", 0, 1e18},
    };
    double v[FIGURES];
    for (size_t i = 0; i < FIGURES; i++) TW_TRY(read_figure(folder, summary, &figures[i], &v[i]));
    double steps = v[STEPS], other = v[TRAINING] - v[COMPUTE] - v[WAIT];
    record->settings.workers = (long)v[WORKERS];
    record->steps = (uint64_t)steps;
    record->settings.steps = steps < MOST_STEPS || record->settings.pause ? (long)steps : MOST_STEPS;
    record->step_seconds = v[TRAINING] / steps;
    record->pass_seconds = v[PASS];
    record->jitter = v[DEVIATION] / v[PASS];
    record->other_seconds = other > 0 ? other / steps : 0;
    record->codec_seconds = v[CODEC] / steps;
    record->bytes_received = v[RECEIVED] / steps;
    record->elements = v[PARAMETERS];
    return TW_OK;
}

static tw_status refuse_kind(const char *folder, const train_settings *s)
{
    const char *kind = s->pipeline
                           ? "with --pipeline, whose stages do not say how long a pass of the whole network takes"
                       : s->planned_changes ? "that has gone on by another --sync, which no prediction does"
                                            : NULL;
    if (!kind) return TW_OK;
    return tw_fail(TW_ERROR_UNSUPPORTED, "--trace %s: it is a run %s; want one without", folder, kind);
}

/* The run's configuration is a file of train's options for its task. */
static tw_status read_configuration(const char *folder, const char *name, simulate_record *record)
{
    char path[FOLDER_PATH];
    train_settings *s = &record->settings;
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    TW_TRY(task_find(name, &s->task));
    char *words[] = {(char *)s->task->name};
    TW_TRY(settings_page(s->task, &record->page));
    TW_TRY(options_parse(&record->page.page, 1, words, s, &record->set));
    s->set = &record->set;
    TW_TRY(options_read_whole_file(&record->set, path));
    TW_TRY(refuse_kind(folder, s));
    return settings_complete(s->task, &record->set);
}

tw_status simulate_read_record(const char *folder, simulate_record *record)
{
    cJSON *summary = NULL;
    TW_TRY(read_summary(folder, &summary));
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(summary, "task"));
    tw_status status = name ? read_configuration(folder, name, record)
                            : tw_fail(TW_ERROR_FORMAT, "--trace %s: summary.json lacks the task", folder);
    if (status == TW_OK) status = take_figures(folder, summary, record);
    cJSON_Delete(summary);
    return status;
}

void simulate_release_record(simulate_record *record)
{
    if (record->set.page) options_release(&record->set);
    free(record->spec);
}
