#include "demo_plot.h"
#include "error.h"
#include "folder.h"
#include "run_curves.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PANELS = 3 };

/* --- points --------------------------------------------------------------------------------------------------- */

/* From the seconds of a crowded machine to those of one with a core and a 1 Gbit/s link for each worker. */
static void predict_seconds(run_log *log, const demo_figures *f)
{
    for (size_t i = 0; i < log->steps.count; i++) {
        double *values = log->steps.lines[i].values;
        values[RUN_SECONDS] = 1e-3 * f->compute_ms * values[RUN_STEP] + 8 * values[RUN_BYTES] / 1e9;
    }
}

static tw_status make_curve(const demo_run *run, int colour, const run_lines *lines, run_figure x, double unit,
                            run_figure y, plot_curve *curve)
{
    *curve = (plot_curve){.name = run->title, .value = y == RUN_METRIC ? "%.2f %%" : "%.3f", .colour = colour};
    plot_point *points = run_curve(lines, x, unit, y, &curve->count);
    curve->points = points;
    return points || !lines->count ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for the curves");
}

static tw_status make_curves(const demo_run *run, int colour, const run_log *log, plot_curve curves[PANELS][DEMO_RUNS])
{
    TW_TRY(make_curve(run, colour, &log->evaluations, RUN_EPOCH, 1, RUN_METRIC, &curves[0][colour]));
    TW_TRY(make_curve(run, colour, &log->steps, RUN_BYTES, 1e6, RUN_LOSS, &curves[1][colour]));
    return make_curve(run, colour, &log->steps, RUN_SECONDS, 1, RUN_LOSS, &curves[2][colour]);
}

/* *title: the network and its data, as the run had them. */
static tw_status read_curves(const char *folder, const demo_run *run, int colour, const demo_figures *f,
                             plot_curve curves[PANELS][DEMO_RUNS], char title[FOLDER_PATH])
{
    char path[FOLDER_PATH];
    run_log log;
    snprintf(path, sizeof path, "%s/%s", folder, run->name);
    TW_TRY(run_log_read(path, &log));
    snprintf(title, FOLDER_PATH, "%.0f workers train a network of %.0f parameters on %s",
             run_log_number(log.start, NULL, "workers"), run_log_number(log.start, NULL, "parameters"),
             strrchr(run_log_text(log.start, "data"), '/') ? strrchr(run_log_text(log.start, "data"), '/') + 1
                                                           : "its data");
    predict_seconds(&log, f);
    tw_status status = make_curves(run, colour, &log, curves);
    run_log_release(&log);
    return status;
}

/* --- the picture ---------------------------------------------------------------------------------------------- */

static tw_status demo_plot_draw(const char *folder, const char *title, plot_curve curves[PANELS][DEMO_RUNS])
{
    const plot_panel panels[PANELS] = {
        {.title = "test accuracy",
         .x_label = "epochs",
         .y_label = "per cent",
         .x_at_points = true,
         .curves = curves[0],
         .count = DEMO_RUNS},
        {.title = "training loss against bytes",
         .x_label = "megabytes sent per worker",
         .y_label = "loss",
         .x_logarithmic = true,
         .y_from_zero = true,
         .curves = curves[1],
         .count = DEMO_RUNS},
        {.title = "training loss against time",
         .x_label = "seconds, predicted for 1 Gbit/s links",
         .y_label = "loss",
         .y_from_zero = true,
         .curves = curves[2],
         .count = DEMO_RUNS},
    };
    const plot_picture picture = {.title = title, .panels = panels, .count = PANELS, .columns = PANELS};
    return plot_draw(&picture, folder, "demo");
}

tw_status demo_plot(const char *folder, const demo_run runs[DEMO_RUNS], const demo_figures figures[DEMO_RUNS],
                    char *path, size_t capacity)
{
    plot_curve curves[PANELS][DEMO_RUNS] = {{{0}}};
    char title[FOLDER_PATH];
    tw_status status = TW_OK;
    for (int i = 0; i < DEMO_RUNS && status == TW_OK; i++)
        status = read_curves(folder, &runs[i], i, &figures[i], curves, title);
    if (status == TW_OK) status = demo_plot_draw(folder, title, curves);
    for (int i = 0; i < PANELS * DEMO_RUNS; i++) free((void *)curves[i / DEMO_RUNS][i % DEMO_RUNS].points);
    snprintf(path, capacity, "%s/demo.svg", folder);
    return status;
}
