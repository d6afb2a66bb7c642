/* thinwire demo: the same network trained on real images, dense and compressed, side by side. */
#include "commands.h"
#include "cores.h"
#include "demo_plot.h"
#include "error.h"
#include "exit.h"
#include "folder.h"
#include "json_file.h"
#include "launcher.h"
#include "options.h"
#include "run_log.h"

#include <math.h>
#include <stdio.h>

typedef struct demo_settings {
    char *data, *out;
    long workers, epochs, seed;
} demo_settings;

static const option_row rows[] = {
    {"data", "DIR", OPTION_TEXT, offsetof(demo_settings, data), .help = "The folder of an IDX or CIFAR data set",
     .stands_for = "Debian's dataset-fashion-mnist"},
    {"workers", "N", OPTION_INTEGER, offsetof(demo_settings, workers), "4", 2, 64,
     .help = "Train with N workers, which are threads of this process"},
    {"epochs", "N", OPTION_INTEGER, offsetof(demo_settings, epochs), "5", 1, 1000,
     .help = "Pass over the images N times in each run"},
    {"seed", "N", OPTION_INTEGER, offsetof(demo_settings, seed), "1", 0, 1e9, .help = "The seed of weights and order"},
    {"out", "DIR", OPTION_TEXT, offsetof(demo_settings, out), .help = "Keep the runs and the plot in folder DIR",
     .stands_for = "the first free of runs/demo-1, runs/demo-2, ..."},
};

static const option_page page = {
    .usage = "thinwire demo [options]",
    .description = "Trains a small convolutional network on Fashion-MNIST three times, on several workers: exchanging "
                   "dense gradients, with Deep Gradient Compression as it is by default, and with its bold setting, "
                   "which sends a thousandth of the gradient. Shows what accuracy each reaches, and what that means on "
                   "a 1 Gbit/s network.",
    .examples = "  thinwire demo\n",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

static const demo_run runs[DEMO_RUNS] = {
    {"dense", "dense fp32", "allreduce"},
    {"dgc", "DGC", "dgc"},
    {"dgc-bold", "DGC, bold", "dgc-bold"},
};

/* ---- training ---- */

static int demo_train(const demo_settings *settings, const demo_run *run, const char *folder)
{
    char workers[24], epochs[24], seed[24], out[FOLDER_PATH];
    snprintf(workers, sizeof workers, "%ld", settings->workers);
    snprintf(epochs, sizeof epochs, "%ld", settings->epochs);
    snprintf(seed, sizeof seed, "%ld", settings->seed);
    snprintf(out, sizeof out, "%s/%s", folder, run->name);
    printf("\n%s: thinwire train image --workers %s --sync %s --epochs %s --seed %s --out %s\n", run->title, workers,
           run->sync, epochs, seed, out);
    char *words[] = {"image",  "--workers", workers, "--sync", (char *)run->sync, "--epochs",    epochs,
                     "--seed", seed,        "--out", out,      "--data",          settings->data};
    return command_train(settings->data ? 13 : 11, words);
}

/* ---- the table ---- */

static double demo_number(const cJSON *object, const char *group, const char *key)
{
    double value = run_log_number(object, group, key);
    return isfinite(value) ? value : 0;
}

/* What a step takes where every worker has a core and a 1 Gbit/s link to itself: computing, coding and sending. */
static void demo_predict(demo_figures *f, const cJSON *summary)
{
    double steps = demo_number(summary, NULL, "steps"), workers = demo_number(summary, NULL, "workers");
    double cores = core_count();
    double crowding = workers > cores ? workers / cores : 1; /* here they take turns: a clock counts the waiting too */
    double seconds = demo_number(summary, "seconds", "compute") + demo_number(summary, "seconds", "codec");
    f->compute_ms = 1e3 * seconds / crowding / steps;
    f->wire_ms = 1e3 * 8 * demo_number(summary, "bytes", "sent") / 1e9 / steps;
}

static tw_status read_figures(const char *folder, const demo_run *run, demo_figures *f)
{
    char path[FOLDER_PATH];
    cJSON *summary;
    snprintf(path, sizeof path, "%s/%s/summary.json", folder, run->name);
    TW_TRY(json_read(path, &summary));
    f->accuracy = 100 * demo_number(summary, "metric", "value");
    f->megabytes = demo_number(summary, "bytes", "sent") / 1e6;
    f->message_ratio = demo_number(summary, "ratio", "message");
    f->traffic_ratio = demo_number(summary, "ratio", "traffic");
    f->seconds = demo_number(summary, "seconds", "wall");
    demo_predict(f, summary);
    cJSON_Delete(summary);
    return TW_OK;
}

/* A run that ends in its warm-up has no ratio after it. */
static void print_ratio(double ratio)
{
    if (ratio > 0)
        printf(" %9.0fx", ratio);
    else
        printf(" %10s", "-");
}

static void print_table(const demo_settings *settings, const demo_figures figures[DEMO_RUNS])
{
    printf("\n%-20s %9s %14s %10s %10s %9s %18s\n", "", "test", "sent by each", "message", "traffic", "time",
           "a step over");
    printf("%-20s %9s %14s %10s %10s %9s %18s\n", "", "accuracy", "worker", "ratio", "ratio", "here",
           "1 Gbit/s would be");
    for (int i = 0; i < DEMO_RUNS; i++) {
        const demo_figures *f = &figures[i];
        printf("%-20s %7.2f %% %11.1f MB", runs[i].title, f->accuracy, f->megabytes);
        print_ratio(f->message_ratio);
        print_ratio(f->traffic_ratio);
        printf(" %7.0f s %15.1f ms\n", f->seconds, f->compute_ms + f->wire_ms);
    }
    printf(
        "\nMessage ratio: fp32 gradient over what a worker contributes to a step, after warm-up. Traffic ratio: what a "
        "dense\nring would send over what was sent, warm-up included, counted in the transport. The last column is "
        "predicted:\ncomputing and coding as measured here with a core for each of the %ld workers, plus the bytes of "
        "a step; no overlap.\n",
        settings->workers);
}

/* ---- the command ---- */

static tw_status check_folder(const char *folder)
{
    for (int i = 0; i < DEMO_RUNS; i++) {
        char path[FOLDER_PATH];
        snprintf(path, sizeof path, "%s/%s", folder, runs[i].name);
        if (folder_has_checkpoint(path))
            return tw_fail(TW_ERROR_ARGUMENT, "--out %s holds an earlier demo; choose another folder", folder);
    }
    return TW_OK;
}

/* The one that was asked for, or the first of runs/demo-1, runs/demo-2, ... that is free: no run is written over. */
static tw_status choose_folder(const demo_settings *settings, char *folder, size_t capacity)
{
    if (settings->out) {
        snprintf(folder, capacity, "%s", settings->out);
        return check_folder(folder);
    }
    return folder_choose("demo", folder, capacity);
}

static int run(void *command_settings, options *set)
{
    const demo_settings *settings = command_settings;
    char folder[FOLDER_PATH - 64], plot[FOLDER_PATH];
    demo_figures figures[DEMO_RUNS] = {{0}};
    (void)set;
    if (choose_folder(settings, folder, sizeof folder) != TW_OK) return launcher_refuse();
    for (int i = 0; i < DEMO_RUNS; i++) {
        int code = demo_train(settings, &runs[i], folder);
        if (code != EXIT_DONE) return code;
        if (read_figures(folder, &runs[i], &figures[i]) != TW_OK) return launcher_refuse();
    }
    print_table(settings, figures);
    if (demo_plot(folder, runs, figures, plot, sizeof plot) == TW_OK)
        printf("\nplot: %s\n", plot);
    else
        printf("\nno plot: %s\n", tw_last_error());
    return EXIT_DONE;
}

int command_demo(int argc, char **argv)
{
    demo_settings settings = {0};
    return command_run(&page, argc, argv, &settings, run);
}
