/* simulate.svg: the loss over virtual time, and over the numbers of workers the step's time and bytes, and the
 * gradients a second beside the ideal. */
#include "error.h"
#include "folder.h"
#include "gnuplot.h"
#include "regular_file.h"
#include "simulate.h"

#include <math.h>
#include <string.h>

typedef struct picture {
    const simulation *all;
    const char *folder;
    FILE *script;
} picture;

static tw_status open_file(const picture *p, const char *name, FILE **file)
{
    char path[FOLDER_PATH];
    snprintf(path, sizeof path, "%s/%s", p->folder, name);
    return regular_file_stream(path, "w", file);
}

static tw_status close_file(FILE *file, const char *name)
{
    return fclose(file) == 0 ? TW_OK : tw_fail(TW_ERROR_IO, "%s could not be written", name);
}

/* A run without a model has none. */
static int has_losses(const simulate_row *row)
{
    return row->result.point_count && !isnan(row->result.points[0].loss);
}

/* One block a run, in the order of the rows. */
static tw_status write_curves(const picture *p)
{
    FILE *file;
    TW_TRY(open_file(p, "loss.dat", &file));
    for (size_t i = 0; i < p->all->row_count; i++) {
        const simulate_row *row = &p->all->rows[i];
        fprintf(file, "# %s, %d workers: virtual seconds, loss\n", row->sync, row->workers);
        for (size_t j = 0; j < row->result.point_count; j++)
            fprintf(file, "%.9g %.9g\n", row->result.points[j].seconds, row->result.points[j].loss);
        fputs("\n\n", file);
    }
    return close_file(file, "loss.dat");
}

static int begins_scheme(const simulation *all, size_t row)
{
    return row == 0 || strcmp(all->rows[row].sync, all->rows[row - 1].sync) != 0;
}

/* One block a scheme. */
static tw_status write_scales(const picture *p)
{
    FILE *file;
    TW_TRY(open_file(p, "scale.dat", &file));
    for (size_t i = 0; i < p->all->row_count; i++) {
        const simulate_row *row = &p->all->rows[i];
        if (begins_scheme(p->all, i))
            fprintf(file, "%s# %s: workers, seconds a step, bytes a worker and step, gradients a second over ideal\n",
                    i ? "\n\n" : "", row->sync);
        fprintf(file, "%d %.9g %.9g %.9g\n", row->workers, row->result.step_seconds, row->result.bytes_per_worker_step,
                row->result.rate / simulate_ideal(p->all, row->workers));
    }
    return close_file(file, "scale.dat");
}

/* A comma before all but the first; what follows is one more line of the plot. */
static void begin_line(FILE *script, int *lines)
{
    fputs((*lines)++ ? ", \\\n  " : "plot ", script);
}

/* A scheme has one colour in all pictures; numbers of workers differ in the dashes. */
static void plot_losses(const picture *p)
{
    int lines = 0, scheme = 0, dash = 0;
    fputs("set title 'training loss'\nset xlabel 'virtual seconds'\n", p->script);
    for (size_t i = 0; i < p->all->row_count; i++) {
        const simulate_row *row = &p->all->rows[i];
        dash = begins_scheme(p->all, i) ? 1 : dash + 1;
        scheme += dash == 1;
        if (!has_losses(row)) continue;
        begin_line(p->script, &lines);
        fprintf(p->script, "'loss.dat' index %zu with lines linewidth 2 linetype %d dashtype %d title '%s, %d'", i,
                scheme, dash, row->sync, row->workers);
    }
    fputc('\n', p->script);
}

/* A mark on the axis for each number of workers, and a little room on both sides. */
static void mark_workers(const picture *p)
{
    int least = p->all->rows[0].workers, most = least;
    fputs("set xlabel 'workers'\nset logscale x 2\nset xtics (", p->script);
    for (size_t i = 0; i < p->all->row_count && (i == 0 || !begins_scheme(p->all, i)); i++) {
        int workers = p->all->rows[i].workers;
        least = workers < least ? workers : least;
        most = workers > most ? workers : most;
        fprintf(p->script, "%s%d", i ? ", " : "", workers);
    }
    fprintf(p->script, ")\nset xrange [%g:%g]\n", least / 1.2, most * 1.2);
}

static void plot_scale(const picture *p, const char *title, int column)
{
    int lines = 0, scheme = 0;
    fprintf(p->script, "set title '%s'\n", title);
    for (size_t i = 0; i < p->all->row_count; i++) {
        if (!begins_scheme(p->all, i)) continue;
        begin_line(p->script, &lines);
        fprintf(p->script,
                "'scale.dat' index %d using 1:%d with linespoints linewidth 2 linetype %d pointtype 7 title '%s'",
                scheme, column, scheme + 1, p->all->rows[i].sync);
        scheme++;
    }
    fputc('\n', p->script);
}

static void set_up(const picture *p, int losses)
{
    fprintf(p->script,
            "set terminal svg size %s font 'sans-serif,13' background rgb 'white'\n"
            "set output 'simulate.svg'\nset multiplot layout %s\nset grid\n"
            "set key noenhanced below Left reverse font ',11'\n",
            losses ? "1200,1000" : "1500,500", losses ? "2,2" : "1,3");
}

static tw_status write_script(picture *p)
{
    int losses = 0;
    for (size_t i = 0; i < p->all->row_count; i++) losses |= has_losses(&p->all->rows[i]);
    TW_TRY(open_file(p, "simulate.gnuplot", &p->script));
    set_up(p, losses);
    if (losses) plot_losses(p);
    mark_workers(p);
    fputs("set yrange [0:1.1]\n", p->script);
    plot_scale(p, "gradients a second, over the ideal", 4);
    fputs("set yrange [0:*]\n", p->script);
    plot_scale(p, "seconds a step", 2);
    fputs("set autoscale y\nset logscale y\nset format y '%.0s %cB'\n", p->script);
    plot_scale(p, "bytes a worker sends a step", 3);
    fputs("unset multiplot\n", p->script);
    return close_file(p->script, "simulate.gnuplot");
}

tw_status simulate_plot(const simulation *all, const char *out)
{
    picture p = {.all = all, .folder = out};
    TW_TRY(write_curves(&p));
    TW_TRY(write_scales(&p));
    TW_TRY(write_script(&p));
    return gnuplot_run(out, "simulate.gnuplot");
}
