/* exchange_paged.h - workers whose weights, gradients and momentum come into memory when they are needed, and go:
 * --memory-budget. See pager.h. */
#ifndef TRAINER_EXCHANGE_PAGED_H
#define TRAINER_EXCHANGE_PAGED_H

#include "exchange.h"

extern const exchange paged_exchange;        /* of one worker, */
extern const exchange paged_rounds_exchange; /* and of those that take local steps between rounds */

/* Before the learner is made: checks what goes with --memory-budget, and makes the worker's pager. */
tw_status paged_open(worker *w);
/* When it is: takes one of the ways above, or, where all of it fits the budget, gives the pager up. */
tw_status paged_choose(worker *w);
/* The optimiser is made, and its arrays are paged, too. */
tw_status paged_attach(worker *w);

/* ---- exchange_paged_steps.c: what both ways have, first in what they keep ---- */

typedef struct paged_way {
    float *parameters, *gradients; /* what is paged; the learner shows all of it, in the file */
    float *shared[PAGER_SHARED];   /* what a round needs beside them, by PAGED_THETA and PAGED_MOMENTUM */
    double *squares;               /* of each tensor's gradient */
    float scale;                   /* of the gradient whose step waits */
    double skipped;                /* steps */
} paged_way;

enum { PAGED_THETA, PAGED_MOMENTUM };

static inline paged_way *paged_way_of(const worker *w)
{
    return w->way;
}

/* The step that waits, of elements begin .. end. */
tw_status paged_take(worker *w, size_t begin, size_t end);
void paged_destroy(worker *w);
tw_status paged_submit(worker *w, size_t index, float *gradient);
/* Of the whole gradient. */
double paged_squares(const worker *w);
/* That gradient's step is the one that groups are to take. */
void paged_begin_step(worker *w, float rate, double squares);

/* exchange_paged_rounds.c: whether --sync is one that it knows; and what a round does with elements begin .. end. */
tw_status paged_check_rounds(const char *sync);
tw_status paged_meet(worker *w, size_t begin, size_t end);

#endif
