/* candidates.h - the ways to exchange that a plan compares, and what each is known to cost. A new one is a row. */
#ifndef TW_PLAN_CANDIDATES_H
#define TW_PLAN_CANDIDATES_H

#include <stddef.h>

/* What was measured of a candidate with a kind of optimiser. */
typedef struct tw_candidate_cost {
    double steps;     /* of the run; it speaks for longer ones, too */
    double extra;     /* steps that it takes more than an exact exchange to the same loss, as a share of them */
    const char *seen; /* in a few words; NULL: nothing was measured */
    const char *page; /* that has it */
} tw_candidate_cost;

typedef struct tw_candidate {
    const char *spec;
    tw_candidate_cost sgd, adam, adapters; /* the last with Adam, too */
} tw_candidate;

/* Exact and simple ones first; NULL past the end. */
const tw_candidate *tw_candidate_at(size_t index);
/* Whether it was measured, in a run of so many steps or a shorter one. */
int tw_candidate_is_known(const tw_candidate_cost *cost, double steps);

#endif
