/* gnuplot.h - drawing with gnuplot, where it is installed. */
#ifndef TRAINER_GNUPLOT_H
#define TRAINER_GNUPLOT_H

#include <thinwire/thinwire.h>

/* Runs <folder>/<script> in its folder, so that no path has to be quoted. TW_ERROR_UNSUPPORTED without gnuplot, which
 * leaves the script and its data as they are. */
tw_status gnuplot_run(const char *folder, const char *script);

#endif
