/* report.h - what the files behind `thinwire report` share. */
#ifndef TRAINER_REPORT_H
#define TRAINER_REPORT_H

#include "run_log.h"
#include <limits.h>
#include <stdio.h>

enum { REPORT_MOST_DRAWN = 16 };

typedef struct report_run {
    run_log log;
    char path[PATH_MAX]; /* its folder, from the root on */
    const char *name;    /* as much of the path's end as no other run has */
    char colour[8];      /* "#rrggbb", of its curves */
} report_run;

typedef struct report {
    report_run *runs;
    size_t count, drawn; /* the first of them have curves, as more could not be told apart */
    char *picture;       /* SVG; NULL: there is none, and `no_picture` says why */
    char no_picture[512];
} report;

/* Reads the runs in so many folders, each once, and names them. */
tw_status report_read(report *r, char *const *folders, size_t count);
void report_release(report *r);

/* Draws r's curves into r->picture. */
tw_status report_draw(report *r);

/* The whole page as HTML, which needs no other file, and what it begins with. */
#define REPORT_BEGINS "<!DOCTYPE html>"
void report_write_page(FILE *file, const report *r);

#endif
