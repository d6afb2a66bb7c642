#include "run_curves.h"

#include <math.h>
#include <stdlib.h>

enum { WINDOWS = 10 }; /* as many of them as are averaged over would fit side by side */

/* Fewer neighbours at both ends, and none that is no number: a step without a loss leaves its neighbours theirs. */
static double mean_around(const run_lines *lines, size_t at, size_t half, run_figure y)
{
    size_t first = at > half ? at - half : 0, last = at + half < lines->count ? at + half : lines->count - 1;
    double sum = 0, count = 0;
    for (size_t i = first; i <= last; i++) {
        double value = lines->lines[i].values[y];
        if (!isfinite(value)) continue;
        sum += value;
        count++;
    }
    return sum / count;
}

plot_point *run_curve(const run_lines *lines, run_figure x, double unit, run_figure y, size_t *count)
{
    size_t stride = 1 + lines->count / RUN_POINTS, half = y == RUN_LOSS ? lines->count / WINDOWS / 2 : 0;
    plot_point *points = lines->count ? malloc((lines->count / stride + 2) * sizeof *points) : NULL;
    *count = 0;
    if (!points) return NULL;
    for (size_t i = 0; i < lines->count; i += stride)
        points[(*count)++] = (plot_point){lines->lines[i].values[x] / unit, mean_around(lines, i, half, y)};
    size_t last = lines->count - 1;
    if (last % stride)
        points[(*count)++] = (plot_point){lines->lines[last].values[x] / unit, mean_around(lines, last, half, y)};
    return points;
}
