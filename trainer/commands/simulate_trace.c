/* What a recorded run says of machine and codec. */
#include "error.h"
#include "folder.h"
#include "simulate.h"

#include <cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_STEPS = 200 }; /* of the prediction: one step is like another */

static tw_status read_summary(const char *folder, cJSON **summary)
{
    char path[FOLDER_PATH];
    struct stat info;
    snprintf(path, sizeof path, "%s/summary.json", folder);
    FILE *file = fopen(path, "r");
    if (!file || fstat(fileno(file), &info) != 0) {
        if (file) fclose(file);
        return tw_fail(TW_ERROR_IO, "--trace %s: %s could not be read; want the folder of a run that has ended", folder,
                       path);
    }
    char *text = calloc((size_t)info.st_size + 1, 1);
    size_t got = text ? fread(text, 1, (size_t)info.st_size, file) : 0;
    fclose(file);
    *summary = got ? cJSON_Parse(text) : NULL;
    free(text);
    return *summary ? TW_OK : tw_fail(TW_ERROR_FORMAT, "--trace %s: %s is not JSON", folder, path);
}

static double number(const cJSON *object, const char *group, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(group ? cJSON_GetObjectItem(object, group) : object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static tw_status take_figures(const char *folder, const cJSON *summary, simulate_record *record)
{
    train_settings *s = &record->settings;
    double steps = number(summary, NULL, "steps"), pass = number(summary, "pass", "seconds");
    s->workers = (long)number(summary, NULL, "workers");
    if (steps < 1 || s->workers < 1 || pass <= 0)
        return tw_fail(TW_ERROR_FORMAT, "--trace %s: summary.json lacks steps, workers or pass.seconds", folder);
    double training = number(summary, "seconds", "training"), compute = number(summary, "seconds", "compute");
    double other = training - compute - number(summary, "seconds", "wait");
    record->step_seconds = training / steps;
    record->pass_seconds = pass;
    record->jitter = number(summary, "pass", "deviation") / pass;
    record->other_seconds = other > 0 ? other / steps : 0;
    record->codec_seconds = number(summary, "seconds", "codec") / steps;
    record->bytes_received = number(summary, "bytes", "received") / steps;
    record->elements = number(summary, NULL, "parameters");
    s->steps = steps < MOST_STEPS ? (long)steps : MOST_STEPS;
    return TW_OK;
}

/* The run's configuration is a file of train's options for its task. */
static tw_status read_configuration(const char *folder, const char *name, simulate_record *record)
{
    char path[FOLDER_PATH];
    train_settings *s = &record->settings;
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    TW_TRY(task_find(name, &s->task));
    char *words[] = {(char *)s->task->name};
    settings_page(s->task, &record->page);
    TW_TRY(options_parse(&record->page.page, 1, words, s, &record->set));
    s->set = &record->set;
    TW_TRY(options_read_file(&record->set, path));
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
}
