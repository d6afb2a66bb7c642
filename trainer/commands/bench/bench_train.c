/* thinwire bench train: training steps of one worker on made-up data, one thread, no exchange. */
#include "bench.h"
#include "bench_workload.h"
#include "commands.h"
#include "error.h"
#include "exit.h"
#include "json_file.h"
#include "launcher.h"
#include "median.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct train_bench {
    char *model, *json;
    long batch, steps, size, channels;
    int compute; /* nn_precision */
} train_bench;

static const option_row rows[] = {
    {"model", "NAME", OPTION_TEXT, offsetof(train_bench, model), "resnet20", 0, 0,
     .help = "The network: one for images; lm-small, lm-medium, lm-large, lm-tied or lm-transformer; or lstm-2x650 or "
             "bilstm-2x256, which are layers alone"},
    {"batch", "B", OPTION_INTEGER, offsetof(train_bench, batch), "0", 0, 4096, .help = "Images or sequences per step",
     .stands_for = "128 images, or what is usual for the model"},
    {"steps", "S", OPTION_INTEGER, offsetof(train_bench, steps), "10", 1, 10000,
     .help = "Time S steps, after two that are not timed"},
    {"size", "PIXELS", OPTION_INTEGER, offsetof(train_bench, size), "32", 8, 512,
     .help = "Width and height of an image"},
    {"channels", "C", OPTION_INTEGER, offsetof(train_bench, channels), "3", 1, 3, .help = "Channels of an image"},
    {"compute", NULL, OPTION_CHOICE, offsetof(train_bench, compute), "fp32", .choices = "fp32|bf16",
     .help = "The precision of products and convolutions, as in thinwire train"},
    {"json", "FILE", OPTION_TEXT, offsetof(train_bench, json), .alone = "-",
     .help = "Write the figures to FILE as JSON, too. Without FILE, or with -, write them to standard output"},
};

static const option_page page = {
    .usage = "thinwire bench train [options]",
    .description = "Times whole training steps (forward, backward, update with momentum) of one worker on one thread. "
                   "bench/train.py in the source tree runs the same networks in PyTorch beside it.",
    .examples = "  thinwire bench train --model resnet20 --batch 128\n"
                "  thinwire bench train --model lm-medium\n",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

/* With momentum and weight decay, as PyTorch's SGD. */
static void bench_train_update(const workload *w, float *velocity)
{
    for (size_t i = 0; i < w->parameter_count; i++) {
        velocity[i] = 0.9f * velocity[i] + w->gradients[i] + 1e-4f * w->parameters[i];
        w->parameters[i] -= 0.01f * velocity[i];
    }
}

/* Seconds of a step. The processor's are those of this process: on a busy machine they still tell two programs apart.
 */
typedef struct step_seconds {
    double wall, processor;
} step_seconds;

static double processor_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Each step after the first two. */
static tw_status time_steps(workload *w, float *velocity, long steps, double *wall, double *processor)
{
    for (long i = -2; i < steps; i++) {
        double start = tw_clock(), processor_start = processor_clock();
        TW_TRY(w->step(w));
        bench_train_update(w, velocity);
        if (i < 0) continue;
        wall[i] = tw_clock() - start;
        processor[i] = processor_clock() - processor_start;
    }
    return TW_OK;
}

static tw_status bench_train_measure(workload *w, long steps, step_seconds *medians)
{
    size_t count = (size_t)steps;
    double *wall = malloc(count * sizeof *wall), *processor = malloc(count * sizeof *processor);
    float *velocity = calloc(w->parameter_count, sizeof *velocity);
    tw_status status = wall && processor && velocity
                           ? time_steps(w, velocity, steps, wall, processor)
                           : tw_fail(TW_ERROR_MEMORY, "no memory for the benchmark's momentum");
    if (status == TW_OK) *medians = (step_seconds){median_of(wall, count), median_of(processor, count)};
    free(wall);
    free(processor);
    free(velocity);
    return status;
}

static tw_status bench_train_report(const train_bench *settings, const workload *w, step_seconds seconds)
{
    double rate = w->items_per_step / seconds.wall;
    char key[64];
    fprintf(json_beside(settings->json), "%s, batch %zu, size %zu: %.1f ms a step, %.0f %s a second\n", settings->model,
            w->batch, w->size, 1e3 * seconds.wall, rate, w->items);
    if (!settings->json) return TW_OK;
    cJSON *root = cJSON_CreateObject();
    snprintf(key, sizeof key, "%s_per_second", w->items);
    cJSON_AddStringToObject(root, "model", settings->model);
    cJSON_AddStringToObject(root, "compute", settings->compute == NN_BF16 ? "bf16" : "fp32");
    cJSON_AddNumberToObject(root, "batch", (double)w->batch);
    cJSON_AddNumberToObject(root, "size", (double)w->size);
    cJSON_AddNumberToObject(root, "step_ms", 1e3 * seconds.wall);
    cJSON_AddNumberToObject(root, "step_cpu_ms", 1e3 * seconds.processor);
    cJSON_AddNumberToObject(root, key, rate);
    tw_status status = json_write(settings->json, root);
    cJSON_Delete(root);
    return status;
}

static tw_status run_bench(const train_bench *settings)
{
    const workload_options wanted = {settings->model, (size_t)settings->batch, (size_t)settings->size,
                                     (size_t)settings->channels, (nn_precision)settings->compute};
    workload *w = NULL;
    step_seconds seconds = {0};
    if (settings->json) TW_TRY(json_check(settings->json));
    TW_TRY(workload_create(&wanted, &w));
    tw_status status = bench_train_measure(w, settings->steps, &seconds);
    if (status == TW_OK) status = bench_train_report(settings, w, seconds);
    w->destroy(w);
    return status;
}

static int bench_train_run(void *settings, options *set)
{
    (void)set;
    return run_bench(settings) == TW_OK ? EXIT_DONE : launcher_refuse();
}

int bench_train(int argc, char **argv)
{
    train_bench settings = {0};
    return command_run(&page, argc, argv, &settings, bench_train_run);
}
