#include "plot.h"
#include "error.h"
#include "gnuplot.h"
#include "regular_file.h"

#include <math.h>

/* In pixels, but for the margins, which have gnuplot's own unit. A character of a name takes less than that. */
enum {
    PANEL_WIDTH = 560,
    PANEL_HEIGHT = 400,
    TITLE = 30,
    CHARACTER = 8,
    LINE = 17,
    UNIT = 9,
    LEFT = 10,
    BOTTOM = 4,
    TOP = 3
};
enum { PATH = 4096, LABEL = 160, MOST_LABELS = 64, MOST_MARKS = 30 /* points that are seen as such */, MOST_TICKS = 8 };
/* Bytes of a curve's name. Longer ones would leave no room to draw. */
enum { NAME_MOST = 28, NAME_HEAD = 10, NAME_TAIL = 15 };

const char *plot_colour(int colour)
{
    static const char *const palette[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555"};
    return palette[(size_t)colour % (sizeof palette / sizeof *palette)];
}

/* --- what is in a panel --------------------------------------------------------------------------------------- */

/* Differences and quotients of such are numbers, too. */
static bool can_be_shown(double value, bool logarithmic)
{
    return fabs(value) <= 1e99 && (!logarithmic || value >= 1e-99);
}

static bool is_shown(const plot_panel *panel, plot_point point)
{
    return can_be_shown(point.x, panel->x_logarithmic) && can_be_shown(point.y, panel->y_logarithmic);
}

/* NULL: it has none that can be shown. */
static const plot_point *last_shown(const plot_panel *panel, const plot_curve *curve)
{
    for (size_t i = curve->count; i-- > 0;)
        if (is_shown(panel, curve->points[i])) return &curve->points[i];
    return NULL;
}

typedef struct range {
    double low, high;
    bool logarithmic;
} range;

static void widen(range *axis, double value)
{
    axis->low = fmin(axis->low, value);
    axis->high = fmax(axis->high, value);
}

/* Some room at both ends, or at the upper one where it begins at 0. */
static void pad(range *axis, bool from_zero)
{
    if (axis->logarithmic) {
        double factor = pow(axis->high / axis->low, 0.05);
        axis->low /= factor > 1 ? factor : 2;
        axis->high *= factor > 1 ? factor : 2;
        return;
    }
    if (from_zero) axis->low = fmin(axis->low, 0);
    double room = axis->high > axis->low ? 0.05 * (axis->high - axis->low) : fmax(fabs(axis->high), 1);
    if (!from_zero || axis->low < 0) axis->low -= room;
    axis->high += room;
}

/* false: there is nothing to show. */
static bool find_ranges(const plot_panel *panel, range *x, range *y)
{
    *x = (range){INFINITY, -INFINITY, panel->x_logarithmic};
    *y = (range){INFINITY, -INFINITY, panel->y_logarithmic};
    for (size_t c = 0; c < panel->count; c++)
        for (size_t i = 0; i < panel->curves[c].count; i++) {
            plot_point point = panel->curves[c].points[i];
            if (!is_shown(panel, point)) continue;
            widen(x, point.x);
            widen(y, point.y);
        }
    if (x->low > x->high) return false;
    if (x->low == x->high) pad(x, false);
    pad(y, panel->y_from_zero);
    return true;
}

static double share_of(const range *axis, double value)
{
    if (axis->logarithmic) return log(value / axis->low) / log(axis->high / axis->low);
    return (value - axis->low) / (axis->high - axis->low);
}

/* --- the script ----------------------------------------------------------------------------------------------- */

/* In single quotes gnuplot takes a text as it is. */
static void plot_write_text(FILE *script, const char *text)
{
    fputc('\'', script);
    for (; *text; text++) {
        if (*text == '\'') fputc('\'', script);
        fputc((unsigned char)*text < ' ' ? '?' : *text, script);
    }
    fputc('\'', script);
}

static void set_text(FILE *script, const char *what, const char *text)
{
    fprintf(script, "set %s ", what);
    plot_write_text(script, text ? text : "");
    fputs(" noenhanced\n", script);
}

/* 100k, where %g would be 1e+05. From a million on marks may be 0.2 of one apart, but not on a logarithmic axis. */
static const char *number_format(const range *r)
{
    if (r->high < 1e5) return "%g";
    return r->logarithmic || r->high < 1e6 ? "%.0s%c" : "%.1s%c";
}

static void set_axis(FILE *script, char axis, const range *r, const char *label)
{
    char name[] = {axis, 'l', 'a', 'b', 'e', 'l', 0};
    set_text(script, name, label);
    fprintf(script, "%s logscale %c\nset %crange [%.9g:%.9g]\nset format %c ", r->logarithmic ? "set" : "unset", axis,
            axis, r->low, r->high, axis);
    plot_write_text(script, number_format(r));
    fputc('\n', script);
}

/* 1, and where there is room 2 and 5, of every so manieth power of ten in the range. */
static size_t find_marks(const range *r, double marks[MOST_TICKS])
{
    static const int digits[] = {1, 2, 5};
    double decades = log10(r->high / r->low);
    int step = decades > MOST_TICKS - 2 ? (int)ceil(decades / (MOST_TICKS - 2)) : 1;
    size_t count = 0, digits_used = decades < 1.5 ? 3 : 1;
    for (int power = (int)floor(log10(r->low)); pow(10, power) <= r->high; power += step)
        for (size_t d = 0; d < digits_used && count < MOST_TICKS; d++) {
            marks[count] = digits[d] * pow(10, power);
            count += marks[count] >= r->low && marks[count] <= r->high;
        }
    return count;
}

/* gnuplot's own choice differs between its versions, and in 6 the numbers touch. */
static void set_logarithmic_ticks(FILE *script, char axis, const range *r)
{
    double marks[MOST_TICKS];
    size_t count = find_marks(r, marks);
    if (count == 0) marks[count++] = sqrt(r->low * r->high);
    fprintf(script, "set %ctics (", axis);
    for (size_t i = 0; i < count; i++) fprintf(script, "%s%.2g", i ? "," : "", marks[i]);
    fputs(")\n", script);
}

/* Where the first curve has its points, or where gnuplot likes. */
static void set_ticks(FILE *script, const plot_panel *panel, const range *x, const range *y)
{
    fputs("set xtics autofreq\nset ytics autofreq\n", script);
    if (y->logarithmic) set_logarithmic_ticks(script, 'y', y);
    if (x->logarithmic) set_logarithmic_ticks(script, 'x', x);
    if (!panel->x_at_points) return;
    fputs("set xtics (", script);
    for (size_t i = 0; i < panel->curves[0].count; i++)
        fprintf(script, "%s%.9g", i ? "," : "", panel->curves[0].points[i].x);
    fputs(")\n", script);
}

/* Not into the middle of a character. */
static size_t back_to_character(const char *text, size_t at)
{
    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80) at--;
    return at;
}

/* A long name keeps both ends: runs differ there. */
static void show_name(const char *name, char text[LABEL / 2])
{
    size_t length = strlen(name);
    if (length <= NAME_MOST) {
        snprintf(text, LABEL / 2, "%s", name);
        return;
    }
    size_t head = back_to_character(name, NAME_HEAD), tail = back_to_character(name, length - NAME_TAIL);
    snprintf(text, LABEL / 2, "%.*s...%.*s", (int)head, name, LABEL / 4, name + tail);
}

/* The last value's format is the curve's own. */
static void name_curve(const plot_curve *curve, double last, char text[LABEL])
{
    char value[LABEL / 2 - 2], name[LABEL / 2];
    show_name(curve->name, name);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(value, sizeof value, curve->value ? curve->value : "%.3g", last);
#pragma GCC diagnostic pop
    snprintf(text, LABEL, "%s  %s", name, value);
}

/* Room for the longest name. */
static size_t margin_of(const plot_panel *panel)
{
    size_t longest = 0;
    char text[LABEL];
    for (size_t c = 0; c < panel->count; c++) {
        const plot_point *end = last_shown(panel, &panel->curves[c]);
        if (!end) continue;
        name_curve(&panel->curves[c], end->y, text);
        longest = strlen(text) > longest ? strlen(text) : longest;
    }
    return 2 + longest * CHARACTER / UNIT;
}

/* The label of a curve, beside the panel, and what leads to it from the curve's end. */
static void write_label(FILE *script, const plot_curve *curve, const plot_point *end, const range *x, const range *y,
                        double height)
{
    char text[LABEL];
    const char *colour = plot_colour(curve->colour);
    name_curve(curve, end->y, text);
    fputs("set label ", script);
    plot_write_text(script, text);
    fprintf(script, " at graph 1,%.4f left offset 0.8,0 front noenhanced textcolor rgb '%s'\n", height, colour);
    fprintf(script,
            "set arrow from graph %.4f,%.4f to graph 1.01,%.4f nohead dashtype 3 linewidth 1 linecolor rgb '%s'\n",
            share_of(x, end->x), share_of(y, end->y), height, colour);
}

static void write_labels(FILE *script, const plot_panel *panel, const range *x, const range *y)
{
    double heights[MOST_LABELS];
    const plot_point *ends[MOST_LABELS];
    const plot_curve *curves[MOST_LABELS];
    size_t count = 0;
    for (size_t c = 0; c < panel->count && count < MOST_LABELS; c++) {
        const plot_point *end = last_shown(panel, &panel->curves[c]);
        if (!end) continue;
        heights[count] = share_of(y, end->y);
        ends[count] = end;
        curves[count++] = &panel->curves[c];
    }
    plot_part_labels(heights, count, (double)LINE / (PANEL_HEIGHT - LINE * (BOTTOM + TOP)));
    for (size_t i = 0; i < count; i++) write_label(script, curves[i], ends[i], x, y, heights[i]);
}

/* Of equal curves the later one, which is thinner, leaves the earlier one's edges to see. */
static double line_width(size_t drawn, size_t count)
{
    return 2 + fmax(4.0 / (double)count, 0.8) * (double)(count - 1 - drawn);
}

static void write_panel(FILE *script, const char *name, const plot_panel *panel, size_t *index)
{
    range x, y;
    if (!find_ranges(panel, &x, &y)) return;
    size_t drawn = 0;
    set_text(script, "title", panel->title);
    set_axis(script, 'x', &x, panel->x_label);
    set_axis(script, 'y', &y, panel->y_label);
    set_ticks(script, panel, &x, &y);
    fprintf(script, "set lmargin %d\nset rmargin %zu\nset bmargin %d\nset tmargin %d\nunset label\nunset arrow\n", LEFT,
            margin_of(panel), BOTTOM, TOP);
    write_labels(script, panel, &x, &y);
    for (size_t c = 0; c < panel->count; c++) {
        const plot_curve *curve = &panel->curves[c];
        if (!last_shown(panel, curve)) continue;
        fprintf(script, "%s'%s.dat' index %zu with %s linewidth %.3g linecolor rgb '%s' dashtype %d",
                drawn ? ", \\\n  " : "plot ", name, (*index)++,
                curve->count > MOST_MARKS ? "lines" : "linespoints pointtype 7 pointsize 0.5",
                line_width(drawn, panel->count), plot_colour(curve->colour), curve->dash + 1);
        drawn++;
    }
    fputc('\n', script);
}

static bool has_points(const plot_panel *panel)
{
    range x, y;
    return find_ranges(panel, &x, &y);
}

static void write_script(FILE *script, const plot_picture *picture, size_t shown, const char *name)
{
    size_t columns = shown < picture->columns ? shown : picture->columns, lines = 0, index = 0;
    while (lines * columns < shown) lines++;
    fprintf(script,
            "set terminal svg size %zu,%zu font 'sans-serif,13' background rgb 'white'\nset output '%s.svg'\n"
            "set grid linecolor rgb '#dddddd'\nset border 3\nset tics nomirror\nunset key\n",
            columns * PANEL_WIDTH, lines * PANEL_HEIGHT + (picture->title ? TITLE : 0), name);
    fprintf(script, "set multiplot layout %zu,%zu", lines, columns);
    if (picture->title) {
        fputs(" title ", script);
        plot_write_text(script, picture->title);
        fputs(" noenhanced", script);
    }
    fputc('\n', script);
    for (size_t i = 0; i < picture->count; i++) write_panel(script, name, &picture->panels[i], &index);
    fputs("unset multiplot\n", script);
}

/* --- the points ----------------------------------------------------------------------------------------------- */

/* One block a curve, in the order in which the script names them. */
static void write_points(FILE *data, const plot_picture *picture)
{
    for (size_t p = 0; p < picture->count; p++)
        for (size_t c = 0; c < picture->panels[p].count; c++) {
            const plot_panel *panel = &picture->panels[p];
            const plot_curve *curve = &panel->curves[c];
            if (!last_shown(panel, curve)) continue;
            fputs("# ", data);
            plot_write_text(data, curve->name);
            fprintf(data, ": %s, %s\n", panel->x_label, panel->y_label);
            for (size_t i = 0; i < curve->count; i++)
                if (is_shown(panel, curve->points[i]))
                    fprintf(data, "%.9g %.9g\n", curve->points[i].x, curve->points[i].y);
            fputs("\n\n", data);
        }
}

static tw_status open_file(const char *folder, const char *name, const char *kind, FILE **file)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s.%s", folder, name, kind);
    return regular_file_stream(path, "w", file);
}

static tw_status close_file(FILE *file, const char *folder, const char *name)
{
    int bad = ferror(file);
    return fclose(file) == 0 && !bad
               ? TW_OK
               : tw_fail(TW_ERROR_IO, "%s/%s could not be written: is its disk full?", folder, name);
}

tw_status plot_draw(const plot_picture *picture, const char *folder, const char *name)
{
    FILE *file;
    char script[PATH];
    size_t shown = 0;
    for (size_t i = 0; i < picture->count; i++) shown += has_points(&picture->panels[i]);
    if (!shown) return tw_fail(TW_ERROR_ARGUMENT, "there is no point to draw");
    TW_TRY(open_file(folder, name, "dat", &file));
    write_points(file, picture);
    TW_TRY(close_file(file, folder, name));
    TW_TRY(open_file(folder, name, "gnuplot", &file));
    write_script(file, picture, shown, name);
    TW_TRY(close_file(file, folder, name));
    snprintf(script, sizeof script, "%s.gnuplot", name);
    return gnuplot_run(folder, script);
}
