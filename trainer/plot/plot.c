#include "plot.h"
#include "error.h"
#include "markup.h"
#include "range.h"
#include "whole_file.h"

#include <math.h>
#include <string.h>

/* In pixels. A character of a name takes less than CHARACTER. */
enum {
    PANEL_WIDTH = 560,
    PANEL_HEIGHT = 400,
    TITLE = 30,
    LEFT = 90,
    BOTTOM = 68,
    TOP = 51,
    NAME_LEFT = 8, /* of a curve's name, beside the panel */
    NAME_RIGHT = 10,
    CHARACTER = 8,
    LINE = 17,
    FONT = 13,
    BETWEEN_MARKS = 45
};
enum { PATH = 4096, LABEL = 160, MOST_LABELS = 64, MOST_MARKS = 30 /* points that are seen as such */ };
/* Bytes of a curve's name. Longer ones would leave no room to draw. */
enum { NAME_MOST = 28, NAME_HEAD = 10, NAME_TAIL = 15 };

#define INK "#222"

const char *plot_colour(int colour)
{
    static const char *const palette[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555"};
    return palette[(size_t)colour % (sizeof palette / sizeof *palette)];
}

/* --- what is in a panel --------------------------------------------------------------------------------------- */

static bool is_shown(const plot_panel *panel, plot_point point)
{
    return range_can_show(point.x, panel->x_logarithmic) && range_can_show(point.y, panel->y_logarithmic);
}

/* NULL: it has none that can be shown. */
static const plot_point *last_shown(const plot_panel *panel, const plot_curve *curve)
{
    for (size_t i = curve->count; i-- > 0;)
        if (is_shown(panel, curve->points[i])) return &curve->points[i];
    return NULL;
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
            range_widen(x, point.x);
            range_widen(y, point.y);
        }
    if (x->low > x->high) return false;
    if (x->low == x->high) range_pad(x, false);
    range_pad(y, panel->y_from_zero);
    return true;
}

/* --- names --------------------------------------------------------------------------------------------------- */

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
static double margin_of(const plot_panel *panel)
{
    size_t longest = 0;
    char text[LABEL];
    for (size_t c = 0; c < panel->count; c++) {
        const plot_point *end = last_shown(panel, &panel->curves[c]);
        if (!end) continue;
        name_curve(&panel->curves[c], end->y, text);
        longest = strlen(text) > longest ? strlen(text) : longest;
    }
    return NAME_LEFT + (double)longest * CHARACTER + NAME_RIGHT;
}

/* --- a panel -------------------------------------------------------------------------------------------------- */

/* Where a panel's curves are, in pixels. */
typedef struct frame {
    FILE *svg;
    const plot_panel *panel;
    range x, y;
    double left, right, top, bottom;
} frame;

static double across(const frame *f, double x)
{
    return f->left + range_share(&f->x, x) * (f->right - f->left);
}

static double up(const frame *f, double share)
{
    return f->bottom - share * (f->bottom - f->top);
}

/* The baseline begins, has its middle or ends at x, as `anchor` says. */
static void write_text(FILE *svg, double x, double y, const char *anchor, const char *colour, const char *text)
{
    fprintf(svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\">", x, y, anchor, FONT,
            colour);
    markup_write(svg, text ? text : "");
    fputs("</text>\n", svg);
}

static void write_line(FILE *svg, double x1, double y1, double x2, double y2, const char *colour, const char *dashes)
{
    fprintf(svg, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-dasharray=\"%s\"/>\n", x1,
            y1, x2, y2, colour, dashes);
}

static void write_y_marks(const frame *f)
{
    double marks[RANGE_MARKS];
    size_t count = range_marks(&f->y, (size_t)(f->bottom - f->top) / BETWEEN_MARKS, marks);
    char text[RANGE_TEXT];
    for (size_t i = 0; i < count; i++) {
        double y = up(f, range_share(&f->y, marks[i]));
        range_text(&f->y, marks[i], text);
        write_line(f->svg, f->left, y, f->right, y, "#ddd", "none");
        write_text(f->svg, f->left - 6, y + 4, "end", INK, text);
    }
}

/* *taken: where the number before it ends. A mark has none where that is too near. */
static void write_x_mark(const frame *f, double mark, double *taken)
{
    char text[RANGE_TEXT];
    double x = across(f, mark);
    range_text(&f->x, mark, text);
    double half = 0.5 * CHARACTER * (double)strlen(text);
    write_line(f->svg, x, f->top, x, f->bottom, "#ddd", "none");
    if (x - half < *taken) return;
    write_text(f->svg, x, f->bottom + LINE, "middle", INK, text);
    *taken = x + half;
}

static void write_x_marks(const frame *f)
{
    double marks[RANGE_MARKS], taken = 0;
    if (f->panel->x_at_points) {
        const plot_curve *first = &f->panel->curves[0];
        for (size_t i = 0; i < first->count; i++)
            if (is_shown(f->panel, first->points[i])) write_x_mark(f, first->points[i].x, &taken);
        return;
    }
    size_t count = range_marks(&f->x, (size_t)fmax((f->right - f->left) / BETWEEN_MARKS, 3), marks);
    for (size_t i = 0; i < count; i++) write_x_mark(f, marks[i], &taken);
}

static void write_axes(const frame *f)
{
    double middle = (f->left + f->right) / 2, side = f->left - LEFT + LINE, half = (f->top + f->bottom) / 2;
    write_y_marks(f);
    write_x_marks(f);
    write_line(f->svg, f->left, f->top, f->left, f->bottom, INK, "none");
    write_line(f->svg, f->left, f->bottom, f->right, f->bottom, INK, "none");
    write_text(f->svg, middle, f->top - LINE, "middle", INK, f->panel->title);
    write_text(f->svg, middle, f->bottom + 2.5 * LINE, "middle", INK, f->panel->x_label);
    fprintf(f->svg, "<g transform=\"translate(%.1f,%.1f) rotate(-90)\">", side, half);
    write_text(f->svg, 0, 0, "middle", INK, f->panel->y_label);
    fputs("</g>\n", f->svg);
}

/* The labels of curves, beside the panel, and what leads to each from its curve's end. */
static void write_labels(const frame *f)
{
    double heights[MOST_LABELS];
    const plot_point *ends[MOST_LABELS];
    const plot_curve *curves[MOST_LABELS];
    char text[LABEL];
    size_t count = 0;
    for (size_t c = 0; c < f->panel->count && count < MOST_LABELS; c++) {
        const plot_point *end = last_shown(f->panel, &f->panel->curves[c]);
        if (!end) continue;
        heights[count] = range_share(&f->y, end->y);
        ends[count] = end;
        curves[count++] = &f->panel->curves[c];
    }
    plot_part_labels(heights, count, LINE / (f->bottom - f->top));
    for (size_t i = 0; i < count; i++) {
        const char *colour = plot_colour(curves[i]->colour);
        double y = up(f, heights[i]), end = up(f, range_share(&f->y, ends[i]->y));
        name_curve(curves[i], ends[i]->y, text);
        write_line(f->svg, across(f, ends[i]->x), end, f->right + NAME_LEFT / 2.0, y, colour, "2,3");
        write_text(f->svg, f->right + NAME_LEFT, y + 4, "start", colour, text);
    }
}

/* Of equal curves the later one, which is thinner, leaves the earlier one's edges to see. */
static double line_width(size_t drawn, size_t count)
{
    return 2 + fmax(4.0 / (double)count, 0.8) * (double)(count - 1 - drawn);
}

static void write_points(const frame *f, const plot_curve *curve, const char *before, const char *behind)
{
    for (size_t i = 0; i < curve->count; i++)
        if (is_shown(f->panel, curve->points[i]))
            fprintf(f->svg, "%s%.1f,%.1f%s", before, across(f, curve->points[i].x),
                    up(f, range_share(&f->y, curve->points[i].y)), behind);
    fputs("\"/>\n", f->svg);
}

static void write_curve(const frame *f, const plot_curve *curve, double width)
{
    static const char *const dashes[] = {"none", "8,5", "2,4", "12,4,2,4"};
    const char *colour = plot_colour(curve->colour);
    fprintf(f->svg, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%.3g\" stroke-dasharray=\"%s\" points=\"",
            colour, width, dashes[(size_t)curve->dash % (sizeof dashes / sizeof *dashes)]);
    write_points(f, curve, "", " ");
    if (curve->count > MOST_MARKS) return;
    fprintf(f->svg, "<path stroke=\"%s\" stroke-width=\"%.3g\" stroke-linecap=\"round\" d=\"", colour, width + 4);
    write_points(f, curve, "M", "h0");
}

static void write_panel(FILE *svg, const plot_panel *panel, double left, double top)
{
    frame f = {.svg = svg,
               .panel = panel,
               .left = left + LEFT,
               .right = left + PANEL_WIDTH - margin_of(panel),
               .top = top + TOP,
               .bottom = top + PANEL_HEIGHT - BOTTOM};
    size_t drawn = 0;
    find_ranges(panel, &f.x, &f.y);
    write_axes(&f);
    write_labels(&f);
    for (size_t c = 0; c < panel->count; c++)
        if (last_shown(panel, &panel->curves[c])) write_curve(&f, &panel->curves[c], line_width(drawn++, panel->count));
}

/* --- the picture ---------------------------------------------------------------------------------------------- */

static bool has_points(const plot_panel *panel)
{
    range x, y;
    return find_ranges(panel, &x, &y);
}

tw_status plot_write(const plot_picture *picture, FILE *svg)
{
    size_t shown = 0, place = 0, title = picture->title ? TITLE : 0;
    for (size_t i = 0; i < picture->count; i++) shown += has_points(&picture->panels[i]);
    if (!shown) return tw_fail(TW_ERROR_ARGUMENT, "there is no point to draw");
    size_t columns = shown < picture->columns ? shown : picture->columns, rows = (shown + columns - 1) / columns;
    size_t width = columns * PANEL_WIDTH, height = rows * PANEL_HEIGHT + title;
    fprintf(svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%zu\" height=\"%zu\" viewBox=\"0 0 %zu %zu\" "
            "font-family=\"sans-serif\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            width, height, width, height);
    if (title) write_text(svg, (double)width / 2, LINE + 4, "middle", INK, picture->title);
    for (size_t i = 0; i < picture->count; i++) {
        size_t row = place / columns, column = place % columns;
        if (!has_points(&picture->panels[i])) continue;
        write_panel(svg, &picture->panels[i], (double)(column * PANEL_WIDTH), (double)(title + row * PANEL_HEIGHT));
        place++;
    }
    fputs("</svg>\n", svg);
    return TW_OK;
}

/* One block a curve. */
static tw_status write_data(void *of, FILE *data)
{
    const plot_picture *picture = of;
    for (size_t p = 0; p < picture->count; p++)
        for (size_t c = 0; c < picture->panels[p].count; c++) {
            const plot_panel *panel = &picture->panels[p];
            const plot_curve *curve = &panel->curves[c];
            if (!last_shown(panel, curve)) continue;
            fprintf(data, "# %s: %s, %s\n", curve->name, panel->x_label, panel->y_label);
            for (size_t i = 0; i < curve->count; i++)
                if (is_shown(panel, curve->points[i]))
                    fprintf(data, "%.9g %.9g\n", curve->points[i].x, curve->points[i].y);
            fputs("\n\n", data);
        }
    return TW_OK;
}

static tw_status write_picture(void *of, FILE *svg)
{
    return plot_write(of, svg);
}

tw_status plot_draw(const plot_picture *picture, const char *folder, const char *name)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s.svg", folder, name);
    TW_TRY(whole_file_write(path, write_picture, (void *)picture));
    snprintf(path, sizeof path, "%s/%s.dat", folder, name);
    return whole_file_write(path, write_data, (void *)picture);
}
