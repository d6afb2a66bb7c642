/* The results of `thinwire simulate`: a table for a person, JSON for a program. */
#include "error.h"
#include "json_file.h"
#include "progress.h"
#include "simulate.h"

#include <math.h>
#include <string.h>

/* A pipeline is as fast as a stage that goes forward twice, as all but the last do. */
double simulate_ideal(const simulation *all, const simulate_row *row)
{
    const pace_model *machine = &all->setup.pace;
    const double passes = row->micro_batches && row->workers > 1 ? 4.0 / 3 : 1;
    const double other = machine->other_seconds / (row->micro_batches ? row->micro_batches : 1);
    return row->workers / (passes * machine->step_seconds + other);
}

/* --- the table ------------------------------------------------------------------------------------------------ */

void simulate_print_head(FILE *stream)
{
    fprintf(stream, "%-30s %7s %8s %10s %22s %12s %8s %8s %9s\n", "", "", "steps", "virtual", "gradients a second",
            "bytes a", "test", "", "consensus");
    fprintf(stream, "%-30s %7s %8s %10s %10s %11s %12s %8s %8s %9s\n", "scheme", "workers", "each", "seconds", "",
            "ideal", "worker, step", "loss", "metric", "distance");
}

static void print_quality(FILE *stream, const sim_result *result)
{
    if (result->metric_name)
        fprintf(stream, " %8.4f %8.4f", result->loss, result->metric);
    else
        fprintf(stream, " %8s %8s", "-", "-");
    fprintf(stream, " %9.3g", result->distance);
}

void simulate_print_row(FILE *stream, const simulation *all, const simulate_row *row)
{
    const sim_result *result = &row->result;
    char bytes[BYTES_TEXT];
    fprintf(stream, "%-30s %7d %8.1f %10.4g %10.5g %11.5g %12s", row->sync, row->workers, result->steps,
            result->seconds, result->rate, simulate_ideal(all, row), bytes_text(result->bytes_per_worker_step, bytes));
    if (result->diverged)
        fprintf(stream, " diverged");
    else
        print_quality(stream, result);
    if (result->seconds_to_loss >= 0)
        fprintf(stream, "   loss %g after %.4g s", all->settings->until_loss, result->seconds_to_loss);
    if (row->workers > 1 && result->bytes_per_worker_step == 0)
        fprintf(stream, "   not one exchange fell into these steps");
    if (strcmp(result->spec, row->sync) != 0 && !row->micro_batches) fprintf(stream, "   with --sync %s", result->spec);
    fputc('\n', stream);
    fflush(stream);
}

void simulate_print_record(FILE *stream, const simulation *all)
{
    const simulate_record *record = &all->record;
    const simulate_row *row = &all->recorded;
    double predicted = row->result.step_seconds;
    fprintf(stream, "%s: %s on %d workers, a step of a worker took %.4g s; predicted %.4g s (%+.1f %%)\n",
            all->settings->trace, record->settings.sync, row->workers, record->step_seconds, predicted,
            100 * (predicted / record->step_seconds - 1));
    if ((uint64_t)record->settings.steps < record->steps)
        fprintf(stream, "predicted: %ld steps for its %llu, with --sync %s\n", record->settings.steps,
                (unsigned long long)record->steps, row->result.spec);
    fprintf(stream, "from it: a pass of %.4g s (+- %.0f %%), %.4g s beside it, codec %.4g s (%.3g GB/s)\n\n",
            record->pass_seconds, 100 * record->jitter, record->other_seconds, record->codec_seconds,
            all->codec_rate / 1e9);
}

/* --- JSON ----------------------------------------------------------------------------------------------------- */

static void add_metric(cJSON *object, const sim_result *result)
{
    if (!result->metric_name) {
        cJSON_AddNullToObject(object, "metric");
        return;
    }
    cJSON *metric = cJSON_AddObjectToObject(object, "metric");
    cJSON_AddStringToObject(metric, "name", result->metric_name);
    cJSON_AddNumberToObject(metric, "value", result->metric);
}

static void add_checksum(cJSON *object, const sim_result *result)
{
    char checksum[16];
    snprintf(checksum, sizeof checksum, "%08x", result->checksum);
    if (result->metric_name) cJSON_AddStringToObject(object, "weights_crc32c", checksum);
}

static cJSON *curve_json(const sim_result *result)
{
    cJSON *curve = cJSON_CreateArray();
    for (size_t i = 0; i < result->point_count; i++) {
        const sim_point *at = &result->points[i];
        if (!isfinite(at->loss)) continue;
        cJSON *point = cJSON_CreateObject();
        cJSON_AddNumberToObject(point, "seconds", at->seconds);
        cJSON_AddNumberToObject(point, "gradients", (double)at->gradients);
        cJSON_AddNumberToObject(point, "loss", at->loss);
        cJSON_AddItemToArray(curve, point);
    }
    return curve;
}

static cJSON *row_json(const simulation *all, const simulate_row *row)
{
    const sim_result *result = &row->result;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "sync", row->micro_batches ? "allreduce" : row->sync);
    cJSON_AddStringToObject(object, "spec", result->spec);
    if (row->micro_batches) cJSON_AddStringToObject(object, "pipeline", row->sync);
    cJSON_AddNumberToObject(object, "workers", row->workers);
    cJSON_AddNumberToObject(object, "parameters", (double)result->parameters);
    cJSON_AddNumberToObject(object, "steps", result->steps);
    cJSON_AddNumberToObject(object, "gradients", (double)result->gradients);
    cJSON_AddNumberToObject(object, "virtual_seconds", result->seconds);
    cJSON_AddNumberToObject(object, "step_seconds", result->step_seconds);
    cJSON_AddNumberToObject(object, "gradients_per_virtual_second", result->rate);
    cJSON_AddNumberToObject(object, "gradients_ideal", simulate_ideal(all, row));
    cJSON_AddNumberToObject(object, "bytes_per_worker_step", result->bytes_per_worker_step);
    cJSON_AddNumberToObject(object, "loss", result->metric_name ? result->loss : (double)NAN);
    add_metric(object, result);
    add_checksum(object, result);
    cJSON_AddNumberToObject(object, "consensus_distance", result->distance);
    cJSON_AddNumberToObject(object, "seconds_to_loss",
                            result->seconds_to_loss >= 0 ? result->seconds_to_loss : (double)NAN);
    cJSON_AddBoolToObject(object, "diverged", result->diverged);
    cJSON_AddItemToObject(object, "curve", curve_json(result));
    return object;
}

static cJSON *machine_json(const simulation *all)
{
    const tw_world_options *world = &all->setup.world;
    const pace_model *machine = &all->setup.pace;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "bytes_per_second", world->bandwidth);
    cJSON_AddNumberToObject(object, "bytes_per_second_down", world->bandwidth_down);
    cJSON_AddNumberToObject(object, "latency", world->latency);
    cJSON_AddNumberToObject(object, "overhead", world->overhead);
    cJSON_AddNumberToObject(object, "workers_per_host", world->workers_per_host);
    cJSON_AddNumberToObject(object, "pass_seconds", machine->step_seconds);
    cJSON_AddNumberToObject(object, "other_seconds", machine->other_seconds);
    cJSON_AddNumberToObject(object, "jitter", machine->jitter);
    cJSON_AddNumberToObject(object, "codec_bytes_per_second", all->codec_rate);
    return object;
}

static cJSON *record_json(const simulation *all)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "run", all->settings->trace);
    cJSON_AddStringToObject(object, "sync", all->record.settings.sync);
    cJSON_AddStringToObject(object, "spec", all->recorded.result.spec);
    cJSON_AddNumberToObject(object, "workers", all->recorded.workers);
    cJSON_AddNumberToObject(object, "measured_step_seconds", all->record.step_seconds);
    cJSON_AddNumberToObject(object, "predicted_step_seconds", all->recorded.result.step_seconds);
    return object;
}

tw_status simulate_write_json(const simulation *all, const char *path)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "task", all->settings->gradients_off ? "none" : all->settings->train.task->name);
    cJSON_AddItemToObject(root, "machine", machine_json(all));
    if (all->settings->trace) cJSON_AddItemToObject(root, "trace", record_json(all));
    cJSON *runs = cJSON_AddArrayToObject(root, "runs");
    for (size_t i = 0; i < all->row_count; i++) cJSON_AddItemToArray(runs, row_json(all, &all->rows[i]));
    tw_status status = json_write(path, root);
    cJSON_Delete(root);
    return status;
}
