/* The curves of a report. */
#include "error.h"
#include "report.h"
#include "run_curves.h"

#include <stdlib.h>

enum { PANELS = 4 };

typedef struct axis {
    run_figure figure;
    double unit;
} axis;

static tw_status add_curve(const run_log *log, int colour, const run_lines *lines, axis x, run_figure y,
                           plot_panel *panel, plot_curve *curves)
{
    plot_curve *curve = &curves[panel->count];
    size_t count;
    plot_point *points = run_curve(lines, x.figure, x.unit, y, &count);
    if (!points) return lines->count ? tw_fail(TW_ERROR_MEMORY, "no memory for the curves") : TW_OK;
    *curve = (plot_curve){.name = log->name,
                          .value = y == RUN_METRIC && log->percent ? "%.2f %%" : "%.3g",
                          .colour = colour,
                          .points = points,
                          .count = count};
    panel->curves = curves;
    panel->count++;
    return TW_OK;
}

static tw_status fill_panels(const report *r, plot_panel panels[PANELS], plot_curve *curves)
{
    static const axis epochs = {RUN_EPOCH, 1}, megabytes = {RUN_BYTES, 1e6}, seconds = {RUN_SECONDS, 1};
    for (size_t i = 0; i < r->count; i++) {
        const run_log *log = &r->runs[i].log;
        int colour = (int)i;
        TW_TRY(add_curve(log, colour, &log->evaluations, epochs, RUN_METRIC, &panels[0], curves));
        TW_TRY(add_curve(log, colour, &log->steps, epochs, RUN_LOSS, &panels[1], curves + r->count));
        TW_TRY(add_curve(log, colour, &log->steps, megabytes, RUN_LOSS, &panels[2], curves + 2 * r->count));
        TW_TRY(add_curve(log, colour, &log->steps, seconds, RUN_LOSS, &panels[3], curves + 3 * r->count));
    }
    return TW_OK;
}

tw_status report_draw(const report *r, FILE *svg)
{
    char metric[128] = "", label[80] = "";
    const run_log *first = &r->runs[0].log;
    plot_curve *curves = calloc(PANELS * r->count, sizeof *curves);
    if (!curves) return tw_fail(TW_ERROR_MEMORY, "no memory for the curves");
    snprintf(metric, sizeof metric, "%s on %s data", first->metric, first->split);
    snprintf(label, sizeof label, "%s%s", first->metric, first->percent ? ", per cent" : "");
    plot_panel panels[PANELS] = {
        {.title = metric, .x_label = "epochs", .y_label = label},
        {.title = "training loss", .x_label = "epochs", .y_label = "loss"},
        {.title = "training loss against bytes",
         .x_label = "megabytes sent per worker",
         .y_label = "loss",
         .x_logarithmic = true},
        {.title = "training loss against time", .x_label = "seconds, as they passed here", .y_label = "loss"},
    };
    tw_status status = fill_panels(r, panels, curves);
    const plot_picture picture = {.panels = panels, .count = PANELS, .columns = 2};
    if (status == TW_OK) status = plot_write(&picture, svg);
    for (size_t i = 0; i < PANELS * r->count; i++) free((void *)curves[i].points);
    free(curves);
    return status;
}
