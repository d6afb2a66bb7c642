/* run_curves.h - the curves of a run, as plot.h takes them. */
#ifndef TRAINER_RUN_CURVES_H
#define TRAINER_RUN_CURVES_H

#include "plot.h"
#include "run_log.h"

enum { RUN_POINTS = 400 }; /* of a curve, at most; more cannot be seen */

/* One figure of the lines against another, with `x` in units of `unit`. A worker's training loss is that of one small
 * batch: of RUN_LOSS the points are means of those around each.
 * Returns the points, to be freed; NULL: no memory, or no line. */
plot_point *run_curve(const run_lines *lines, run_figure x, double unit, run_figure y, size_t *count);

#endif
