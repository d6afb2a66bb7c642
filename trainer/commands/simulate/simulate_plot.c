/* simulate.svg: the loss over virtual time, and over the numbers of workers the step's time and bytes, and the
 * gradients a second beside the ideal. */
#include "error.h"
#include "plot.h"
#include "simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PANELS = 4, LOSS = 0, RATE, SECONDS, BYTES, NAME = 128, TITLE = 256 };

/* What all points are kept in: at most one a row and panel, and those of the losses. */
typedef struct drawing {
    plot_point *points;
    char (*names)[NAME];
    plot_curve *curves[PANELS];
    size_t count[PANELS], used;
} drawing;

static int begins_scheme(const simulation *all, size_t row)
{
    return row == 0 || strcmp(all->rows[row].sync, all->rows[row - 1].sync) != 0;
}

static tw_status simulate_plot_make_room(drawing *d, const simulation *all)
{
    size_t points = PANELS * all->row_count;
    for (size_t i = 0; i < all->row_count; i++) points += all->rows[i].result.point_count;
    d->points = calloc(points + 1, sizeof *d->points);
    d->names = calloc(all->row_count + 1, sizeof *d->names);
    int missing = !d->points || !d->names;
    for (int p = 0; p < PANELS; p++) missing |= !(d->curves[p] = calloc(all->row_count + 1, sizeof *d->curves[p]));
    return missing ? tw_fail(TW_ERROR_MEMORY, "no memory for the curves of %zu runs", all->row_count) : TW_OK;
}

static void simulate_plot_release(drawing *d)
{
    for (int p = 0; p < PANELS; p++) free(d->curves[p]);
    free(d->names);
    free(d->points);
}

/* A scheme has one colour in all panels; of its losses those of other numbers of workers differ in the dashes. */
static void add_losses(drawing *d, const simulate_row *row, int colour, int dash)
{
    plot_point *points = d->points + d->used;
    size_t count = row->result.point_count;
    for (size_t i = 0; i < count; i++)
        points[i] = (plot_point){row->result.points[i].seconds, row->result.points[i].loss};
    char *name = d->names[d->count[LOSS]];
    snprintf(name, NAME, "%s, %d", row->sync, row->workers);
    d->curves[LOSS][d->count[LOSS]++] =
        (plot_curve){.name = name, .colour = colour, .dash = dash, .points = points, .count = count};
    d->used += count;
}

static void add_curve(drawing *d, int panel, const simulate_row *first, int colour, const char *value)
{
    d->curves[panel][d->count[panel]++] =
        (plot_curve){.name = first->sync, .value = value, .colour = colour, .points = d->points + d->used};
}

static void add_point(drawing *d, int panel, const simulate_row *row, double y)
{
    d->points[d->used++] = (plot_point){row->workers, y};
    d->curves[panel][d->count[panel] - 1].count++;
}

static void add_scales(drawing *d, const simulation *all, int panel, const char *value)
{
    for (size_t i = 0, scheme = 0; i < all->row_count; i++) {
        const simulate_row *row = &all->rows[i];
        if (begins_scheme(all, i)) add_curve(d, panel, row, (int)scheme++, value);
        add_point(d, panel, row,
                  panel == RATE      ? row->result.rate / simulate_ideal(all, row)
                  : panel == SECONDS ? row->result.step_seconds
                                     : row->result.bytes_per_worker_step / 1e6);
    }
}

/* A run without a model has no losses. */
static void simulate_plot_fill(drawing *d, const simulation *all)
{
    for (size_t i = 0, scheme = 0, dash = 0; i < all->row_count; i++) {
        dash = begins_scheme(all, i) ? 0 : dash + 1;
        scheme += dash == 0;
        const sim_result *result = &all->rows[i].result;
        if (result->point_count && !isnan(result->points[0].loss))
            add_losses(d, &all->rows[i], (int)scheme - 1, (int)dash);
    }
    add_scales(d, all, RATE, "%.2f");
    add_scales(d, all, SECONDS, "%.3g s");
    add_scales(d, all, BYTES, "%.3g MB");
}

tw_status simulate_plot(const simulation *all, const char *out)
{
    plot_panel panels[PANELS] = {
        [LOSS] = {.title = "training loss", .x_label = "virtual seconds", .y_label = "loss"},
        [RATE] = {.title = "gradients per second, over the ideal", .y_label = "share", .y_from_zero = true},
        [SECONDS] = {.title = "time of a step", .y_label = "seconds", .y_from_zero = true},
        [BYTES] = {.title = "bytes sent per worker and step", .y_label = "megabytes", .y_logarithmic = true},
    };
    drawing d = {0};
    tw_status status = simulate_plot_make_room(&d, all);
    if (status == TW_OK) simulate_plot_fill(&d, all);
    for (int p = 0; p < PANELS; p++) {
        panels[p].curves = d.curves[p];
        panels[p].count = d.count[p];
        if (p == LOSS) continue;
        panels[p].x_label = "workers";
        panels[p].x_logarithmic = panels[p].x_at_points = true;
    }
    char title[TITLE];
    snprintf(title, sizeof title, "simulated: %s, %zu parameters, links of %s",
             all->settings->gradients_off ? "no task" : all->settings->train.task->name, all->rows[0].result.parameters,
             all->settings->link);
    const plot_picture picture = {.title = title, .panels = panels, .count = PANELS, .columns = 2};
    if (status == TW_OK) status = plot_draw(&picture, out, "simulate");
    simulate_plot_release(&d);
    return status;
}
