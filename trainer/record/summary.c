#include "summary.h"
#include "error.h"
#include "exchange.h"
#include "folder.h"
#include "json_file.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

tw_status summary_gather(worker *w, totals *mean)
{
    totals own;
    TW_TRY(worker_totals(w, &own));
    totals *all = calloc((size_t)w->size, sizeof *all);
    if (!all) return tw_fail(TW_ERROR_MEMORY, "no memory to hear %d workers", w->size);
    tw_status status = tw_comm_allgather(w->comm, &own, sizeof own, all);
    *mean = (totals){{0}};
    for (int r = 0; r < w->size; r++)
        for (int i = 0; i < TOTAL_COUNT; i++) mean->values[i] += all[r].values[i] / w->size;
    free(all);
    return status;
}

/* Null where nothing was sent. */
static void add_ratio(cJSON *object, const char *name, double dense, double sent)
{
    cJSON_AddNumberToObject(object, name, sent > 0 ? dense / sent : NAN);
}

static void add_bytes(cJSON *object, const worker *w, const double *v)
{
    cJSON *bytes = cJSON_AddObjectToObject(object, "bytes");
    cJSON_AddNumberToObject(bytes, "dense", round(v[TOTAL_BYTES_DENSE]));
    cJSON_AddNumberToObject(bytes, "sent", round(v[TOTAL_BYTES_SENT]));
    cJSON_AddNumberToObject(bytes, "received", round(v[TOTAL_BYTES_RECEIVED]));
    if (w->exchange->counts_hosts) cJSON_AddNumberToObject(bytes, "between", round(v[TOTAL_BYTES_BETWEEN]));
    cJSON *ratio = cJSON_AddObjectToObject(object, "ratio");
    add_ratio(ratio, "compressed", v[TOTAL_COMPRESSED_FP32], v[TOTAL_COMPRESSED_PACKET]);
    add_ratio(ratio, "message", v[TOTAL_MESSAGE_FP32], v[TOTAL_MESSAGE_PACKET]);
    add_ratio(ratio, "traffic", v[TOTAL_BYTES_DENSE], v[TOTAL_BYTES_SENT]);
    add_ratio(object, "density", v[TOTAL_ELEMENTS_SENT], v[TOTAL_ELEMENTS]);
}

static void add_seconds(cJSON *object, const worker *w, const double *v)
{
    cJSON *seconds = cJSON_AddObjectToObject(object, "seconds");
    cJSON_AddNumberToObject(seconds, "wall", v[TOTAL_SECONDS_WALL]);
    cJSON_AddNumberToObject(seconds, "training", v[TOTAL_SECONDS_TRAINING]);
    cJSON_AddNumberToObject(seconds, "compute", v[TOTAL_SECONDS_COMPUTE]);
    cJSON_AddNumberToObject(seconds, "data", v[TOTAL_SECONDS_DATA]);
    cJSON_AddNumberToObject(seconds, "codec", v[TOTAL_SECONDS_CODEC]);
    cJSON_AddNumberToObject(seconds, "exchange", v[TOTAL_SECONDS_EXCHANGE]);
    cJSON_AddNumberToObject(seconds, "wait", v[TOTAL_SECONDS_WAIT]);
    double items = v[TOTAL_ITEMS] * w->size, training = v[TOTAL_SECONDS_TRAINING];
    cJSON_AddNumberToObject(object, "samples_per_second", training > 0 ? items / training : 0);
}

/* "metric" is the headline; a task with more figures has all of them in "metrics". */
static void add_metrics(cJSON *object, const task_metric *metrics, const task_score *score)
{
    cJSON *headline = cJSON_AddObjectToObject(object, "metric");
    cJSON_AddStringToObject(headline, "name", metrics->name);
    cJSON_AddNumberToObject(headline, "value", task_metric_value(metrics, score));
    if (!metrics[1].name) return;
    cJSON *all = cJSON_AddObjectToObject(object, "metrics");
    for (const task_metric *m = metrics; m->name; m++)
        cJSON_AddNumberToObject(all, m->name, task_metric_value(m, score));
}

/* How long a forward and backward pass takes, and how much that varies: what a simulation is told. */
static void add_pass(cJSON *object, const double *v, double steps)
{
    cJSON *pass = cJSON_AddObjectToObject(object, "pass");
    cJSON_AddNumberToObject(pass, "seconds", v[TOTAL_SECONDS_PASS] / steps);
    cJSON_AddNumberToObject(pass, "deviation", sqrt(v[TOTAL_SQUARES_PASS] / steps));
}

/* Of --memory-budget. */
static void add_memory(cJSON *object, const worker *w)
{
    pager_counts counts;
    if (!w->pager) return;
    cJSON *memory = cJSON_AddObjectToObject(object, "memory");
    pager_count(w->pager, &counts);
    cJSON_AddNumberToObject(memory, "budget", (double)counts.budget);
    cJSON_AddNumberToObject(memory, "total", (double)counts.total);
    cJSON_AddNumberToObject(memory, "most_resident", (double)counts.most_resident);
    cJSON_AddNumberToObject(memory, "groups", (double)counts.groups);
    cJSON_AddNumberToObject(memory, "loads", (double)counts.loads);
    cJSON_AddNumberToObject(memory, "seconds_wait", counts.seconds_wait);
    cJSON_AddNumberToObject(memory, "predicted_seconds", counts.predicted);
    cJSON_AddNumberToObject(memory, "measured_seconds", counts.measured);
}

/* What models are chosen by, under a name of its own; null where nothing is held out for it. */
static void add_validation(cJSON *object, const task_metric *metrics, const evaluation *validation)
{
    cJSON *own = validation ? cJSON_AddObjectToObject(object, "validation") : NULL;
    if (!own) {
        cJSON_AddNullToObject(object, "validation");
        return;
    }
    add_metrics(own, metrics, &validation->score);
    cJSON_AddNumberToObject(own, "loss", validation->loss);
}

cJSON *summary_json(const worker *w, const evaluation *result, const evaluation *validation, const totals *mean)
{
    char checksum[16];
    snprintf(checksum, sizeof checksum, "%08x", w->judged ? w->last_checksum : worker_checksum(w));
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "task", w->task->ops->name);
    cJSON_AddStringToObject(object, "model", w->learner->model);
    cJSON_AddNumberToObject(object, "parameters", (double)w->learner->parameter_count);
    cJSON_AddNumberToObject(object, "workers", w->size);
    cJSON_AddStringToObject(object, "transport", tw_comm_transport(w->comm));
    cJSON_AddStringToObject(object, "sync", w->settings.sync);
    cJSON_AddNumberToObject(object, "seed", (double)w->settings.seed);
    cJSON_AddNumberToObject(object, "epochs", (double)w->step / (double)w->steps_per_epoch);
    cJSON_AddNumberToObject(object, "steps", (double)w->step);
    cJSON_AddNumberToObject(object, "steps_skipped", mean->values[TOTAL_STEPS_SKIPPED]);
    cJSON_AddStringToObject(object, "split", task_split_name(result->split));
    cJSON_AddNumberToObject(object, "chosen_step", (double)(w->judged ? w->judged : w->step));
    add_metrics(object, w->task->metrics, &result->score);
    cJSON_AddNumberToObject(object, "loss", result->loss);
    add_validation(object, w->task->metrics, validation);
    cJSON_AddNumberToObject(object, "train_loss", result->train_loss);
    cJSON_AddStringToObject(object, "weights_crc32c", checksum);
    add_bytes(object, w, mean->values);
    add_seconds(object, w, mean->values);
    add_pass(object, mean->values, (double)w->step);
    add_memory(object, w);
    return object;
}

tw_status summary_write(const train_settings *settings, const cJSON *summary)
{
    if (settings->out) {
        char path[FOLDER_PATH];
        snprintf(path, sizeof path, "%s/" SUMMARY, settings->out);
        TW_TRY(json_write(path, summary));
    }
    return settings->json ? json_write(settings->json, summary) : TW_OK;
}
