/* The curves of a report: drawn into a temporary folder, and read back. */
#include "error.h"
#include "folder.h"
#include "report.h"
#include "run_curves.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PANELS = 4 };

/* --- curves --------------------------------------------------------------------------------------------------- */

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
    for (size_t i = 0; i < r->drawn; i++) {
        const run_log *log = &r->runs[i].log;
        int colour = (int)i;
        TW_TRY(add_curve(log, colour, &log->evaluations, epochs, RUN_METRIC, &panels[0], curves));
        TW_TRY(add_curve(log, colour, &log->steps, epochs, RUN_LOSS, &panels[1], curves + r->drawn));
        TW_TRY(add_curve(log, colour, &log->steps, megabytes, RUN_LOSS, &panels[2], curves + 2 * r->drawn));
        TW_TRY(add_curve(log, colour, &log->steps, seconds, RUN_LOSS, &panels[3], curves + 3 * r->drawn));
    }
    return TW_OK;
}

static tw_status draw_in(const report *r, const char *folder)
{
    char metric[128] = "", label[80] = "";
    const run_log *first = &r->runs[0].log;
    plot_curve *curves = calloc(PANELS * r->drawn, sizeof *curves);
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
    if (status == TW_OK) status = plot_draw(&picture, folder, "report");
    for (size_t i = 0; i < PANELS * r->drawn; i++) free((void *)curves[i].points);
    free(curves);
    return status;
}

/* --- the picture ---------------------------------------------------------------------------------------------- */

static tw_status read_picture(const char *folder, char **picture)
{
    char path[FOLDER_PATH];
    struct stat about;
    snprintf(path, sizeof path, "%s/report.svg", folder);
    FILE *file = fopen(path, "r");
    if (!file || fstat(fileno(file), &about) != 0) {
        if (file) fclose(file);
        return tw_fail(TW_ERROR_IO, "%s could not be read: %s", path, strerror(errno));
    }
    char *text = calloc((size_t)about.st_size + 1, 1);
    size_t got = text ? fread(text, 1, (size_t)about.st_size, file) : 0;
    fclose(file);
    if (got != (size_t)about.st_size || !got) {
        free(text);
        return tw_fail(TW_ERROR_IO, "%s could not be read", path);
    }
    *picture = text;
    return TW_OK;
}

static void remove_all(const char *folder)
{
    static const char *const names[] = {"report.svg", "report.gnuplot", "report.dat"};
    char path[FOLDER_PATH];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

tw_status report_draw(report *r)
{
    const char *temporary = getenv("TMPDIR");
    char folder[FOLDER_PATH - 64];
    snprintf(folder, sizeof folder, "%s/thinwire-XXXXXX", temporary && *temporary ? temporary : "/tmp");
    if (!mkdtemp(folder)) return tw_fail(TW_ERROR_IO, "%s could not be made: %s", folder, strerror(errno));
    tw_status status = draw_in(r, folder);
    if (status == TW_OK) status = read_picture(folder, &r->picture);
    remove_all(folder);
    return status;
}
