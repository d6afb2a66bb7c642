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

enum { LOSSES = 3, MOST_PANELS = REPORT_MOST_DRAWN + LOSSES };

/* --- curves --------------------------------------------------------------------------------------------------- */

typedef struct axis {
    run_figure figure;
    double unit;
} axis;

static const axis epochs = {RUN_EPOCH, 1}, megabytes = {RUN_BYTES, 1e6}, seconds = {RUN_SECONDS, 1};

typedef struct drawing {
    const report *r;
    plot_panel panels[MOST_PANELS];
    char titles[REPORT_MOST_DRAWN][128], labels[REPORT_MOST_DRAWN][80]; /* of the metrics' panels, which come first */
    size_t count;
    plot_curve *curves; /* one of each run for each panel */
} drawing;

static tw_status add_curve(const report_run *run, int colour, const run_lines *lines, axis x, run_figure y,
                           plot_panel *panel, plot_curve *curves)
{
    plot_curve *curve = &curves[panel->count];
    size_t count;
    plot_point *points = run_curve(lines, x.figure, x.unit, y, &count);
    if (!points) return lines->count ? tw_fail(TW_ERROR_MEMORY, "no memory for the curves") : TW_OK;
    *curve = (plot_curve){.name = run->name,
                          .value = y == RUN_METRIC && run->log.percent ? "%.2f %%" : "%.3g",
                          .colour = colour,
                          .points = points,
                          .count = count};
    panel->count++;
    return TW_OK;
}

static bool is_comparable(const run_log *one, const run_log *other)
{
    return strcmp(one->metric, other->metric) == 0 && strcmp(one->split, other->split) == 0;
}

/* `like`: the figure is a metric, and the panel is for runs that have it, too; NULL: it is the training loss. */
static tw_status add_panel(drawing *d, plot_panel panel, axis x, const run_log *like)
{
    plot_curve *curves = d->curves + d->count * d->r->drawn;
    panel.curves = curves;
    plot_panel *added = &d->panels[d->count++];
    *added = panel;
    for (size_t i = 0; i < d->r->drawn; i++) {
        const report_run *run = &d->r->runs[i];
        if (like && !is_comparable(&run->log, like)) continue;
        TW_TRY(add_curve(run, (int)i, like ? &run->log.evaluations : &run->log.steps, x, like ? RUN_METRIC : RUN_LOSS,
                         added, curves));
    }
    return TW_OK;
}

/* What other tasks call good is another scale. */
static tw_status add_metric(drawing *d, const run_log *log)
{
    char *title = d->titles[d->count], *label = d->labels[d->count];
    snprintf(title, sizeof d->titles[0], "%s on %s data", log->metric, log->split);
    snprintf(label, sizeof d->labels[0], "%s%s", log->metric, log->percent ? ", per cent" : "");
    for (size_t i = 0; i < d->count; i++)
        if (strcmp(d->panels[i].title, title) == 0) return TW_OK;
    return add_panel(d, (plot_panel){.title = title, .x_label = "epochs", .y_label = label}, epochs, log);
}

static tw_status fill_panels(drawing *d)
{
    for (size_t i = 0; i < d->r->drawn; i++)
        if (d->r->runs[i].log.evaluations.count) TW_TRY(add_metric(d, &d->r->runs[i].log));
    TW_TRY(add_panel(d, (plot_panel){.title = "training loss", .x_label = "epochs", .y_label = "loss"}, epochs, NULL));
    TW_TRY(add_panel(d,
                     (plot_panel){.title = "training loss against bytes",
                                  .x_label = "megabytes sent per worker",
                                  .y_label = "loss",
                                  .x_logarithmic = true},
                     megabytes, NULL));
    return add_panel(d,
                     (plot_panel){.title = "training loss against time",
                                  .x_label = "seconds, as they passed here",
                                  .y_label = "loss"},
                     seconds, NULL);
}

static tw_status draw_in(const report *r, const char *folder)
{
    drawing d = {.r = r, .curves = calloc(MOST_PANELS * r->drawn, sizeof *d.curves)};
    if (!d.curves) return tw_fail(TW_ERROR_MEMORY, "no memory for the curves");
    tw_status status = fill_panels(&d);
    const plot_picture picture = {.panels = d.panels, .count = d.count, .columns = 2};
    if (status == TW_OK) status = plot_draw(&picture, folder, "report");
    for (size_t i = 0; i < MOST_PANELS * r->drawn; i++) free((void *)d.curves[i].points);
    free(d.curves);
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
