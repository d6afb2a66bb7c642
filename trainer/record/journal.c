#include "journal.h"
#include "banner.h"
#include "error.h"
#include "folder.h"
#include "json_file.h"
#include "regular_file.h"
#include "summary.h"
#include <time.h>

/* Steps between lines of metrics.jsonl; epochs have lines of their own. */
#define STEPS_A_LINE 10

#define CONFIGURATION "config.yaml"
#define METRICS "metrics.jsonl"
#define LOCK "run.lock"

int journal_continues(const train_settings *s)
{
    char checkpoint[FOLDER_PATH];
    if (!s->resume) return 0;
    return *s->resume == '\0' || (folder_find(s->resume, 0, checkpoint) == TW_OK && folder_owns(s->out, checkpoint));
}

static tw_status lock_folder(journal *j, const char *out)
{
    return j->lock ? TW_OK : run_lock_take(out, &j->lock);
}

tw_status journal_lock(journal *j, const worker *w)
{
    const char *out = w->settings.out;
    return out && path_is_folder(out) ? lock_folder(j, out) : TW_OK;
}

/* The folder may have been moved or removed, lock and all, and another run's may be in its place. */
tw_status journal_keep(journal *j, const worker *w)
{
    const char *out = w->settings.out;
    if (!out || !j->lock || run_lock_holds(j->lock, out)) return TW_OK;
    if (folder_has_checkpoint(out))
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--out %s was moved while this run wrote there, and another run's checkpoints are in its place: "
                       "this run ends with step %llu, and its last checkpoint is where its folder is now",
                       out, (unsigned long long)w->step);
    TW_TRY(folder_open(out));
    run_lock_release(j->lock);
    j->lock = NULL;
    return run_lock_take(out, &j->lock);
}

static const char *in_folder(const char *folder, const char *file, char path[FOLDER_PATH])
{
    snprintf(path, FOLDER_PATH, "%s/%s", folder, file);
    return path;
}

/* A configuration that somebody wrote is not a run's: every run has metrics, too, or where it has none a lock. */
static tw_status spare_configuration(const char *out, const char *also)
{
    char configuration[FOLDER_PATH], other[FOLDER_PATH];
    if (!path_exists(in_folder(out, CONFIGURATION, configuration)) || path_exists(in_folder(out, also, other)))
        return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--out %s has a %s and no run that it is of; the run's own would take its place: choose another "
                   "folder",
                   out, CONFIGURATION);
}

static tw_status prepare_folder(journal *j, const worker *w, const char *also)
{
    const train_settings *s = &w->settings;
    if (folder_has_checkpoint(s->out) && !journal_continues(s))
        return tw_fail(
            TW_ERROR_ARGUMENT,
            "--out %s holds an earlier run's checkpoints: add --resume to continue it, or choose another folder",
            s->out);
    if (!journal_continues(s)) TW_TRY(spare_configuration(s->out, also));
    TW_TRY(folder_open(s->out));
    TW_TRY(lock_folder(j, s->out));
    char path[FOLDER_PATH];
    TW_TRY(settings_write(s, in_folder(s->out, CONFIGURATION, path)));
    if (w->step < w->steps) (void)remove(in_folder(s->out, SUMMARY, path)); /* of an end that is none any more */
    return TW_OK;
}

static cJSON *tensors_json(const worker *w)
{
    const tw_tensor *tensors = w->learner->tensors;
    cJSON *array = cJSON_CreateArray();
    for (size_t i = 0; i < w->learner->tensor_count; i++) {
        cJSON *entry = cJSON_CreateObject();
        cJSON_AddStringToObject(entry, "name", tensors[i].name);
        cJSON_AddNumberToObject(entry, "elements", (double)tw_tensor_count(&tensors[i]));
        cJSON_AddStringToObject(entry, "plan", worker_plan(w, i));
        cJSON_AddItemToArray(array, entry);
    }
    return array;
}

/* The figure of merit that the lines of evaluations have under its name. */
static cJSON *metric_json(const task_metric *metric)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", metric->name);
    cJSON_AddBoolToObject(object, "percent", metric->percent);
    return object;
}

/* The first line: all that is needed to know what the others mean. */
static cJSON *start_line(const worker *w)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "kind", "start");
    cJSON_AddNumberToObject(line, "time", (double)time(NULL));
    cJSON_AddStringToObject(line, "thinwire", tw_version());
    cJSON_AddStringToObject(line, "isa", tw_isa());
    cJSON_AddStringToObject(line, "transport", tw_comm_transport(w->comm));
    cJSON_AddNumberToObject(line, "workers", w->size);
    cJSON_AddNumberToObject(line, "parameters", (double)w->learner->parameter_count);
    cJSON_AddNumberToObject(line, "step", (double)w->step);
    cJSON_AddNumberToObject(line, "steps", (double)w->steps);
    cJSON_AddNumberToObject(line, "steps_per_epoch", (double)w->steps_per_epoch);
    cJSON_AddStringToObject(line, "data", w->task->path);
    cJSON_AddItemToObject(line, "metric", metric_json(w->task->metrics));
    cJSON_AddItemToObject(line, "configuration", settings_json(&w->settings));
    cJSON_AddItemToObject(line, "tensors", tensors_json(w));
    return line;
}

tw_status journal_open(journal *j, const worker *w)
{
    const train_settings *s = &w->settings;
    FILE *stream = json_beside(s->json);
    if (s->json) TW_TRY(json_check(s->json));
    if (s->out) {
        char path[FOLDER_PATH];
        TW_TRY(prepare_folder(j, w, METRICS));
        TW_TRY(jsonl_open(in_folder(s->out, METRICS, path), &j->metrics));
        TW_TRY(jsonl_write(j->metrics, start_line(w)));
        TW_TRY(tensorboard_open(s->out, &j->board));
    }
    if (w->chosen_out && !s->quiet) fprintf(stderr, "thinwire: this run is kept in %s\n", w->chosen_out);
    progress_begin(&j->progress, s->quiet ? NULL : stream, w);
    if (j->progress.stream) banner_print(stream, w);
    return TW_OK;
}

tw_status journal_share(journal *j, const worker *w)
{
    TW_TRY(prepare_folder(j, w, LOCK));
    j->shares = 1;
    return TW_OK;
}

tw_status journal_reconfigure(const worker *w)
{
    char path[FOLDER_PATH];
    const train_settings *s = &w->settings;
    if (!s->out || (w->rank > 0 && !w->first_on_disk)) return TW_OK;
    return settings_write(s, in_folder(s->out, CONFIGURATION, path));
}

void journal_close(journal *j)
{
    const bool was_refused = !j->metrics && !j->shares;
    jsonl_close(j->metrics);
    tensorboard_close(j->board);
    if (was_refused)
        run_lock_withdraw(j->lock);
    else
        run_lock_release(j->lock);
}

static cJSON *journal_line_of(const worker *w, const char *kind, const totals *sums)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "kind", kind);
    cJSON_AddNumberToObject(line, "step", (double)w->step);
    cJSON_AddNumberToObject(line, "epoch", (double)w->step / (double)w->steps_per_epoch);
    cJSON_AddNumberToObject(line, "seconds", sums->values[TOTAL_SECONDS_WALL]);
    cJSON_AddNumberToObject(line, "bytes_sent", sums->values[TOTAL_BYTES_SENT]);
    cJSON_AddNumberToObject(line, "bytes_dense", sums->values[TOTAL_BYTES_DENSE]);
    cJSON_AddNumberToObject(line, "steps_skipped", sums->values[TOTAL_STEPS_SKIPPED]);
    return line;
}

/* Of this worker's share of the step, as the loss is. */
static tw_status measure_step(journal *j, const worker *w, cJSON *line)
{
    char name[64];
    for (const task_metric *m = w->task->metrics; w->task->measures_steps && m->name; m++) {
        double value = task_metric_value(m, &w->step_score);
        cJSON_AddNumberToObject(line, m->name, value);
        snprintf(name, sizeof name, "train/%s", m->name);
        TW_TRY(tensorboard_scalar(j->board, name, w->step, (float)value));
    }
    return TW_OK;
}

static tw_status record_rounds(const journal *j, const worker *w, cJSON *line)
{
    if (!w->exchange->last_round) return TW_OK;
    cJSON_AddNumberToObject(line, "rounds", j->rounds.rounds);
    cJSON_AddNumberToObject(line, "cosine", j->rounds.cosine);
    cJSON_AddNumberToObject(line, "gain", j->rounds.gain);
    cJSON_AddNumberToObject(line, "energy", j->rounds.energy);
    return tensorboard_scalar(j->board, "rounds/cosine", w->step, (float)j->rounds.cosine);
}

static tw_status record_step(journal *j, const worker *w, double loss, const totals *sums)
{
    double rate = schedule_rate(&w->schedule, w->step - 1);
    cJSON *line = journal_line_of(w, "step", sums);
    cJSON_AddNumberToObject(line, "loss", loss);
    cJSON_AddNumberToObject(line, "lr", rate);
    tw_status measured = measure_step(j, w, line);
    if (measured == TW_OK) measured = record_rounds(j, w, line);
    TW_TRY(jsonl_write(j->metrics, line));
    TW_TRY(measured);
    TW_TRY(tensorboard_scalar(j->board, "train/loss", w->step, (float)loss));
    TW_TRY(tensorboard_scalar(j->board, "train/lr", w->step, (float)rate));
    return tensorboard_scalar(j->board, "traffic/bytes_sent", w->step, (float)sums->values[TOTAL_BYTES_SENT]);
}

/* What a person may have to look after is told when it comes. */
static tw_status watch_rounds(journal *j, const worker *w)
{
    const round_figures before = j->rounds;
    if (!w->exchange->last_round) return TW_OK;
    TW_TRY(w->exchange->last_round(w, &j->rounds));
    if (j->rounds.empty > before.empty)
        progress_say(&j->progress,
                     "round %.0f changed nothing: no worker gave anything, or it was too large for the exchange",
                     j->rounds.rounds);
    if (j->rounds.unstable > before.unstable)
        progress_say(&j->progress,
                     "round %.0f is one of three in a row that pointed against the one before; a smaller outer_lr or "
                     "outer_momentum would be stable",
                     j->rounds.rounds);
    return TW_OK;
}

tw_status journal_step(journal *j, const worker *w, double loss)
{
    int due = j->metrics && (w->step % STEPS_A_LINE == 0 || w->step == 1);
    if (!due && !j->progress.stream) return TW_OK;
    totals sums;
    TW_TRY(worker_totals(w, &sums));
    progress_step(&j->progress, w, loss, &sums);
    TW_TRY(watch_rounds(j, w));
    return due ? record_step(j, w, loss, &sums) : TW_OK;
}

/* The loss and every metric of a split: as members of `line`, which is written, and as TensorBoard's scalars. */
static tw_status record_split(journal *j, const worker *w, const evaluation *result, cJSON *line)
{
    const char *split = task_split_name(result->split);
    char name[64];
    snprintf(name, sizeof name, "%s_loss", split);
    cJSON_AddNumberToObject(line, name, result->loss);
    snprintf(name, sizeof name, "%s/loss", split);
    TW_TRY(tensorboard_scalar(j->board, name, w->step, (float)result->loss));
    for (const task_metric *m = w->task->metrics; m->name; m++) {
        double value = task_metric_value(m, &result->score);
        snprintf(name, sizeof name, "%s/%s", split, m->name);
        cJSON_AddNumberToObject(line, m->name, value);
        TW_TRY(tensorboard_scalar(j->board, name, w->step, (float)value));
    }
    return jsonl_write(j->metrics, line);
}

tw_status journal_epoch(journal *j, const worker *w, const evaluation *result)
{
    totals sums;
    TW_TRY(worker_totals(w, &sums));
    progress_epoch(&j->progress, w, result, &sums);
    if (!j->metrics) return TW_OK;
    cJSON *line = journal_line_of(w, "epoch", &sums);
    cJSON_AddStringToObject(line, "weights", result->own ? "own" : w->judged ? "best" : "all");
    cJSON_AddNumberToObject(line, "train_loss", result->train_loss);
    return record_split(j, w, result, line);
}

/* Each stage of a pipeline sends something else, and there is no exchange whose dense form could be named. */
static tw_status say_end(journal *j, const worker *w, const char *result, const double *mean)
{
    char sent[BYTES_TEXT], dense[BYTES_TEXT];
    unsigned long long steps = w->step;
    totals own;
    TW_TRY(worker_totals(w, &own));
    if (w->settings.pipeline)
        progress_say(&j->progress, "%s after %llu steps; %s sent %s", result, steps,
                     bytes_text(own.values[TOTAL_BYTES_SENT], sent), progress_senders(w));
    else
        progress_say(&j->progress, "%s after %llu steps; %s sent a worker on average, dense fp32 would have sent %s",
                     result, steps, bytes_text(mean[TOTAL_BYTES_SENT], sent),
                     bytes_text(mean[TOTAL_BYTES_DENSE], dense));
    return TW_OK;
}

tw_status journal_end(journal *j, const worker *w, const evaluation *result, const evaluation *validation,
                      const totals *mean)
{
    char metric[TASK_METRIC_TEXT], chosen[80] = "", text[TASK_METRIC_TEXT + 120];
    if (w->judged)
        snprintf(chosen, sizeof chosen, " with the weights of step %llu, the best by validation,",
                 (unsigned long long)w->judged);
    snprintf(text, sizeof text, "%s %s%s", task_split_name(result->split),
             task_metric_text(w->task->metrics, &result->score, metric), chosen);
    TW_TRY(say_end(j, w, text, mean->values));
    if (w->rank != 0) return TW_OK;
    cJSON *summary = summary_json(w, result, validation, mean);
    tw_status status = summary_write(&w->settings, summary);
    cJSON_Delete(summary);
    return status == TW_OK && j->metrics ? jsonl_check(j->metrics) : status;
}

void journal_interrupted(journal *j, const worker *w)
{
    unsigned long long step = w->step;
    if (w->settings.out)
        progress_say(&j->progress, "interrupted after step %llu; thinwire train --resume %s goes on", step,
                     w->settings.out);
    else
        progress_say(&j->progress, "interrupted after step %llu; nothing is kept, as --out none asks", step);
}
