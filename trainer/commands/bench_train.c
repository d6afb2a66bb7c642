/* thinwire bench train: training steps of one worker on made-up images, one thread, no exchange. */
#include "bench.h"
#include "commands.h"
#include "error.h"
#include "json_file.h"
#include "launch.h"
#include "model.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct train_bench {
    char *model, *json;
    long batch, steps, size, channels;
} train_bench;

static const option_row rows[] = {
    {"model", "NAME", OPTION_TEXT, offsetof(train_bench, model), "resnet20", 0, 0, .help = "network"},
    {"batch", "B", OPTION_INTEGER, offsetof(train_bench, batch), "128", 1, 4096, .help = "images a step"},
    {"steps", "S", OPTION_INTEGER, offsetof(train_bench, steps), "10", 1, 10000,
     .help = "steps timed, after two that are not"},
    {"size", "PIXELS", OPTION_INTEGER, offsetof(train_bench, size), "32", 8, 512,
     .help = "width and height of an image"},
    {"channels", "C", OPTION_INTEGER, offsetof(train_bench, channels), "3", 1, 3, .help = "channels of an image"},
    {"json", "FILE", OPTION_TEXT, offsetof(train_bench, json), .alone = "-",
     .help = "also write the figures as JSON; alone or -: to standard output"},
};

static const option_page page = {
    .usage = "thinwire bench train [options]",
    .description = "Times whole training steps (forward, backward, update with momentum) of one worker on one thread. "
                   "bench/train.sh in the source tree runs the same network in PyTorch beside it.",
    .examples = "  thinwire bench train --model resnet20 --batch 128\n",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

/* The images of every step, and the network they are for. */
typedef struct bench_run {
    model *net;
    float *images;
    uint8_t *labels;
    float *velocity;
} bench_run;

static tw_status create_run(const train_bench *settings, bench_run *run)
{
    size_t size = (size_t)settings->size, batch = (size_t)settings->batch, channels = (size_t)settings->channels;
    model_shape shape = {channels, size, size, 10, batch};
    TW_TRY(model_create(settings->model, &shape, &run->net));
    model_initialise(run->net, 1);
    size_t pixels = batch * channels * size * size;
    run->images = malloc(pixels * sizeof *run->images);
    run->labels = malloc(batch);
    run->velocity = calloc(model_parameter_count(run->net), sizeof *run->velocity);
    if (!run->images || !run->labels || !run->velocity)
        return tw_fail(TW_ERROR_MEMORY, "no memory for a batch of %zu", batch);
    uint32_t words[4];
    for (size_t i = 0; i < pixels; i++) {
        tw_random(2, 0, i, words);
        run->images[i] = (float)words[0] / 2147483648.0f - 1;
    }
    for (size_t i = 0; i < batch; i++) run->labels[i] = (uint8_t)(i % 10);
    return TW_OK;
}

static void destroy_run(bench_run *run)
{
    model_destroy(run->net);
    free(run->images);
    free(run->labels);
    free(run->velocity);
}

static tw_status step(const train_bench *settings, bench_run *run)
{
    model_result result = {0};
    TW_TRY(model_step(run->net, run->images, run->labels, (size_t)settings->batch, NULL, NULL, &result));
    float *weights = model_parameters(run->net);
    const float *gradients = model_gradients(run->net);
    for (size_t i = 0; i < model_parameter_count(run->net); i++) {
        run->velocity[i] = 0.9f * run->velocity[i] + gradients[i] + 1e-4f * weights[i];
        weights[i] -= 0.01f * run->velocity[i];
    }
    return TW_OK;
}

static tw_status measure(const train_bench *settings, bench_run *run, double *median_seconds)
{
    double *seconds = malloc((size_t)settings->steps * sizeof *seconds);
    tw_status status = seconds ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory");
    for (long i = -2; i < settings->steps && status == TW_OK; i++) {
        double start = tw_clock();
        status = step(settings, run);
        if (i >= 0) seconds[i] = tw_clock() - start;
    }
    if (status == TW_OK) *median_seconds = bench_median(seconds, (size_t)settings->steps);
    free(seconds);
    return status;
}

static tw_status report(const train_bench *settings, double seconds)
{
    double rate = (double)settings->batch / seconds;
    fprintf(json_beside(settings->json), "%s, batch %ld, %ldx%ld: %.1f ms a step, %.0f images a second\n",
            settings->model, settings->batch, settings->size, settings->size, 1e3 * seconds, rate);
    if (!settings->json) return TW_OK;
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "model", settings->model);
    cJSON_AddNumberToObject(root, "batch", (double)settings->batch);
    cJSON_AddNumberToObject(root, "step_ms", 1e3 * seconds);
    cJSON_AddNumberToObject(root, "images_per_second", rate);
    tw_status status = json_write(settings->json, root);
    cJSON_Delete(root);
    return status;
}

static tw_status run_bench(const train_bench *settings)
{
    bench_run run = {0};
    double seconds = 0;
    if (settings->json) TW_TRY(json_check(settings->json));
    tw_status status = create_run(settings, &run);
    if (status == TW_OK) status = measure(settings, &run, &seconds);
    destroy_run(&run);
    return status == TW_OK ? report(settings, seconds) : status;
}

static int run(void *settings, options *set)
{
    (void)set;
    return run_bench(settings) == TW_OK ? EXIT_DONE : launch_refuse();
}

int bench_train(int argc, char **argv)
{
    train_bench settings = {0};
    return command_run(&page, argc, argv, &settings, run);
}
