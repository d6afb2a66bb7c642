/* progress.h - what a person sees while a run goes on: a bar on a terminal, plain lines now and then in a pipe. */
#ifndef TRAINER_PROGRESS_H
#define TRAINER_PROGRESS_H

#include "worker.h"
#include <stdio.h>

typedef struct progress {
    FILE *stream;   /* NULL: quiet */
    int terminal;   /* it can show a bar */
    int bar_stands; /* and one is on its last line */
    double started, shown;
    uint64_t first_step;
    double first_items;
} progress;

void progress_begin(progress *p, FILE *stream, const worker *w);
/* After each step; shows something a few times a second, or every few seconds in a pipe. */
void progress_step(progress *p, const worker *w, double loss, const totals *sums);
void progress_epoch(progress *p, const worker *w, const evaluation *result, const totals *sums);

/* A line of its own, under a bar that may stand. */
void progress_say(progress *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Who sent what rank 0 counts, after "sent ". */
const char *progress_senders(const worker *w);

/* "1.23 MB": bytes for a person, in powers of 1000. */
#define BYTES_TEXT 24
const char *bytes_text(double bytes, char text[BYTES_TEXT]);

#endif
