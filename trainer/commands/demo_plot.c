#include "demo_plot.h"
#include "error.h"
#include "folder.h"
#include "gnuplot.h"
#include "regular_file.h"

#include <cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A worker's loss is of one small batch: a moving average shows where it goes. */
#define SMOOTHING 0.95

/* One line of the curve: megabytes sent, seconds as predicted on 1 Gbit/s, loss. */
static void write_point(FILE *curve, const cJSON *line, const demo_figures *f, double *average)
{
    const cJSON *step = cJSON_GetObjectItem(line, "step"), *loss = cJSON_GetObjectItem(line, "loss");
    const cJSON *sent = cJSON_GetObjectItem(line, "bytes_sent");
    if (!cJSON_IsNumber(step) || !cJSON_IsNumber(loss) || !cJSON_IsNumber(sent)) return;
    *average = *average < 0 ? loss->valuedouble : SMOOTHING * *average + (1 - SMOOTHING) * loss->valuedouble;
    double wire = 8 * sent->valuedouble / 1e9, compute = 1e-3 * f->compute_ms * step->valuedouble;
    fprintf(curve, "%.6g %.6g %.6g\n", sent->valuedouble / 1e6, compute + wire, *average);
}

static tw_status write_curve(const char *folder, const demo_run *run, const demo_figures *f)
{
    char src[FOLDER_PATH], dst[FOLDER_PATH], *text = NULL;
    size_t room = 0;
    double average = -1;
    snprintf(src, sizeof src, "%s/%s/metrics.jsonl", folder, run->name);
    snprintf(dst, sizeof dst, "%s/%s.dat", folder, run->name);
    FILE *metrics, *curve;
    TW_TRY(regular_file_stream(src, "r", &metrics));
    tw_status status = regular_file_stream(dst, "w", &curve);
    while (status == TW_OK && getline(&text, &room, metrics) > 0) {
        cJSON *line = cJSON_Parse(text);
        write_point(curve, line, f, &average);
        cJSON_Delete(line);
    }
    free(text);
    fclose(metrics);
    TW_TRY(status);
    if (fclose(curve) == 0) return TW_OK;
    return tw_fail(TW_ERROR_IO, "%s could not be made from %s", dst, src);
}

static void write_curves_of(FILE *script, const demo_run runs[DEMO_RUNS], const char *columns)
{
    static const char *const colours[DEMO_RUNS] = {"#888888", "#d1495b"};
    fprintf(script, "plot ");
    for (int i = 0; i < DEMO_RUNS; i++)
        fprintf(script, "'%s.dat' using %s with lines linewidth 2 linecolor rgb '%s' title '%s'%s", runs[i].name,
                columns, colours[i], runs[i].title, i + 1 < DEMO_RUNS ? ", " : "\n");
}

static tw_status write_script(const char *folder, const demo_run runs[DEMO_RUNS])
{
    char path[FOLDER_PATH];
    snprintf(path, sizeof path, "%s/demo.gnuplot", folder);
    FILE *script;
    TW_TRY(regular_file_stream(path, "w", &script));
    fprintf(script, "set terminal svg size 1000,420 font 'sans-serif,13' background rgb 'white'\n"
                    "set output 'demo.svg'\n"
                    "set multiplot layout 1,2\n"
                    "set grid\nset key top right\nset ylabel 'training loss (moving average)'\nset yrange [0:1.2]\n"
                    "set title 'loss against bytes'\nset logscale x\nset xrange [10:]\nset format x '%%g'\n"
                    "set xlabel 'megabytes sent by each worker'\n");
    write_curves_of(script, runs, "1:3");
    fprintf(script, "set title 'loss against time'\nunset logscale x\nset xrange [0:]\n"
                    "set xlabel 'seconds, predicted for 1 Gbit/s links'\n");
    write_curves_of(script, runs, "2:3");
    fprintf(script, "unset multiplot\n");
    return fclose(script) == 0 ? TW_OK : tw_fail(TW_ERROR_IO, "%s could not be written", path);
}

tw_status demo_plot(const char *folder, const demo_run runs[DEMO_RUNS], const demo_figures figures[DEMO_RUNS],
                    char *path, size_t capacity)
{
    for (int i = 0; i < DEMO_RUNS; i++) TW_TRY(write_curve(folder, &runs[i], &figures[i]));
    TW_TRY(write_script(folder, runs));
    TW_TRY(gnuplot_run(folder, "demo.gnuplot"));
    snprintf(path, capacity, "%s/demo.svg", folder);
    return TW_OK;
}
