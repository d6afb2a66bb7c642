/* exchange_paged.h - one worker whose weights, gradients and momentum come into memory when they are needed, and go:
 * --memory-budget. See pager.h. */
#ifndef TRAINER_EXCHANGE_PAGED_H
#define TRAINER_EXCHANGE_PAGED_H

#include "exchange.h"

extern const exchange paged_exchange;

/* Before the learner is made: checks what goes with --memory-budget, and makes the worker's pager. */
tw_status paged_open(worker *w);
/* When it is: takes the way above, or, where all of it fits the budget, gives the pager up. */
tw_status paged_choose(worker *w);
/* The optimiser is made, and its arrays are paged, too. */
tw_status paged_attach(worker *w);

/* "200MB" as bytes. */
tw_status paged_parse(const char *text, size_t *bytes);

#endif
