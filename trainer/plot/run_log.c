#include "run_log.h"
#include "error.h"
#include "folder.h"
#include "json_file.h"
#include "regular_file.h"
#include "room.h"
#include <math.h>
#include <stdlib.h>

double run_log_number(const cJSON *object, const char *group, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(group ? cJSON_GetObjectItem(object, group) : object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
}

const char *run_log_text(const cJSON *object, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(object, key));
    return text ? text : "";
}

/* --- lines ---------------------------------------------------------------------------------------------------- */

/* By what a run tells how far it is: by steps, where it was given so many, and else by epochs, of which other workers
 * count other steps. */
static run_figure clock_of(const run_log *log)
{
    return run_log_number(log->start, "configuration", "steps") > 0 ? RUN_STEP : RUN_EPOCH;
}

/* Lines of version 0.1 have no epoch. */
static bool is_no_earlier(const run_line *line, const run_line *than, run_figure clock)
{
    if (isnan(line->values[clock]) || isnan(than->values[clock])) clock = RUN_STEP;
    return line->values[clock] >= than->values[clock];
}

/* A run that goes on from an earlier step takes these steps again. */
static tw_status add_line(run_lines *all, const run_line *line, run_figure clock)
{
    while (all->count && is_no_earlier(&all->lines[all->count - 1], line, clock)) all->count--;
    if (!room_make(&all->lines, &all->room, all->count + 1, sizeof *all->lines))
        return tw_fail(TW_ERROR_MEMORY, "no memory for %zu lines of metrics", all->count + 1);
    all->lines[all->count++] = *line;
    return TW_OK;
}

static run_line run_log_line_of(const cJSON *line, const char *loss)
{
    return (run_line){{[RUN_STEP] = run_log_number(line, NULL, "step"),
                       [RUN_EPOCH] = run_log_number(line, NULL, "epoch"),
                       [RUN_SECONDS] = run_log_number(line, NULL, "seconds"),
                       [RUN_BYTES] = run_log_number(line, NULL, "bytes_sent"),
                       [RUN_LOSS] = run_log_number(line, NULL, loss),
                       [RUN_METRIC] = NAN}};
}

/* "test" of "test_loss"; the first such member counts. */
static void find_split(run_log *log, const cJSON *line)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, line)
    {
        const char *end = item->string ? strstr(item->string, "_loss") : NULL;
        if (!end || strcmp(item->string, "train_loss") == 0) continue;
        snprintf(log->split, sizeof log->split, "%.*s", (int)(end - item->string), item->string);
        return;
    }
}

static tw_status take_evaluation(run_log *log, const cJSON *line)
{
    char loss[64];
    if (!*log->split) find_split(log, line);
    snprintf(loss, sizeof loss, "%s_loss", log->split);
    if (!cJSON_HasObjectItem(line, loss)) return TW_OK; /* the test at the end, of a run that has validated */
    run_line evaluation = run_log_line_of(line, loss);
    evaluation.values[RUN_METRIC] = run_log_number(line, NULL, log->metric) * (log->percent ? 100 : 1);
    return isnan(evaluation.values[RUN_STEP]) || isnan(evaluation.values[RUN_METRIC])
               ? TW_OK
               : add_line(&log->evaluations, &evaluation, clock_of(log));
}

/* A run of version 0.1 named its metric at its end only. */
static void take_start(run_log *log, cJSON *line)
{
    const cJSON *metric = cJSON_GetObjectItem(line, "metric");
    if (!metric) metric = cJSON_GetObjectItem(log->summary, "metric");
    snprintf(log->metric, sizeof log->metric, "%s", run_log_text(metric, "name"));
    log->percent = cJSON_IsTrue(cJSON_GetObjectItem(metric, "percent"));
    cJSON_Delete(log->start);
    log->start = line;
}

static tw_status take_line(run_log *log, cJSON *line)
{
    const char *kind = run_log_text(line, "kind");
    tw_status status = TW_OK;
    if (strcmp(kind, "start") == 0) {
        take_start(log, line);
        return TW_OK;
    }
    run_line step = run_log_line_of(line, "loss");
    if (strcmp(kind, "step") == 0 && isfinite(step.values[RUN_STEP]))
        status = add_line(&log->steps, &step, clock_of(log));
    if (strcmp(kind, "epoch") == 0) status = take_evaluation(log, line);
    cJSON_Delete(line);
    return status;
}

/* --- files ---------------------------------------------------------------------------------------------------- */

/* The last line of a run that goes on may be half there. */
static tw_status read_lines(run_log *log, const char *path, FILE *file)
{
    char *text = NULL;
    size_t room = 0, number = 0;
    ssize_t length;
    tw_status status = TW_OK;
    while (status == TW_OK && (length = getline(&text, &room, file)) > 0 && text[length - 1] == '\n') {
        cJSON *line = cJSON_Parse(text);
        number++;
        status = line ? take_line(log, line) : tw_fail(TW_ERROR_FORMAT, "%s:%zu is not JSON", path, number);
    }
    free(text);
    return status;
}

static tw_status read_metrics(run_log *log, const char *folder)
{
    char path[FOLDER_PATH];
    FILE *file;
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    if (!path_exists(folder)) return tw_fail(TW_ERROR_IO, "%s: %s", folder, strerror(errno));
    if (regular_file_stream(path, "r", &file) != TW_OK)
        return tw_fail(TW_ERROR_IO, "%s: there is no metrics.jsonl in it, so it is no folder of a run", folder);
    tw_status status = read_lines(log, path, file);
    fclose(file);
    if (status == TW_OK && !log->start)
        status = tw_fail(TW_ERROR_FORMAT, "%s does not say how the run was begun", path);
    return status;
}

static tw_status read_summary(run_log *log, const char *folder)
{
    char path[FOLDER_PATH];
    snprintf(path, sizeof path, "%s/summary.json", folder);
    return access(path, F_OK) == 0 ? json_read(path, &log->summary) : TW_OK;
}

/* One of an earlier version that went on behind its end has not ended. Newer ones remove their summary. */
static void forget_summary_of_a_part(run_log *log)
{
    const run_lines *steps = &log->steps;
    if (steps->count == 0 ||
        !(steps->lines[steps->count - 1].values[RUN_EPOCH] > run_log_number(log->summary, NULL, "epochs")))
        return;
    cJSON_Delete(log->summary);
    log->summary = NULL;
}

tw_status run_log_read(const char *folder, run_log *log)
{
    *log = (run_log){0};
    tw_status status = read_summary(log, folder);
    if (status == TW_OK) status = read_metrics(log, folder);
    if (status == TW_OK) forget_summary_of_a_part(log);
    if (status != TW_OK) run_log_release(log);
    return status;
}

void run_log_release(run_log *log)
{
    free(log->steps.lines);
    free(log->evaluations.lines);
    cJSON_Delete(log->start);
    cJSON_Delete(log->summary);
    *log = (run_log){0};
}
