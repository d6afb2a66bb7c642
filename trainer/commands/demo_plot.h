/* demo_plot.h - the picture of a demo: accuracy at equal training, loss against bytes, and against time. */
#ifndef TRAINER_DEMO_PLOT_H
#define TRAINER_DEMO_PLOT_H

#include <stddef.h>
#include <thinwire/thinwire.h>

enum { DEMO_RUNS = 3 };

/* One of the runs that are compared. */
typedef struct demo_run {
    const char *name;  /* its folder */
    const char *title; /* for people */
    const char *sync;  /* its spec */
} demo_run;

/* What a run came to. */
typedef struct demo_figures {
    double accuracy; /* per cent, of the test images */
    double megabytes, message_ratio, traffic_ratio, seconds;
    double compute_ms, wire_ms; /* of a step, with a core and a 1 Gbit/s link for each worker */
} demo_figures;

/* Draws <folder>/demo.svg from the runs' metrics.jsonl with gnuplot, and writes its path. TW_ERROR_UNSUPPORTED without
 * gnuplot; the points are then in <folder>/demo.dat. */
tw_status demo_plot(const char *folder, const demo_run runs[DEMO_RUNS], const demo_figures figures[DEMO_RUNS],
                    char *path, size_t capacity);

#endif
