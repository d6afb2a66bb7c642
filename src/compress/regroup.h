/* regroup.h - what some number of ranks remember, for another number of ranks.
 *
 * The old ranks lie side by side on a line, each as long as the others, and so do the new ones, on the same line. What
 * two of them have in common says how much a new rank takes over from an old one: of what adds, that part of the old
 * rank's; of what averages, the old rank counts as that part of the new one. So nothing is lost, every new rank holds
 * as much as any other, and half or twice as many ranks give exact sums and halves. */
#ifndef TW_REGROUP_H
#define TW_REGROUP_H

#include "compress.h"

/* Rank `rank` of `size` follows `old_size` ranks. */
typedef struct tw_regrouping {
    int old_size, rank, size;
} tw_regrouping;

/* TW_ERROR_ARGUMENT unless there can be such ranks. */
tw_status tw_regrouping_check(const tw_regrouping *to);
/* TW_ERROR_ARGUMENT for what a public call that regroups needs and has not. */
tw_status tw_regrouping_check_call(const char *spec, tw_state_source source, const char *prefix, const tw_state *state);
/* dst is the average of what came before; what an old rank had enters it, by its part. Equal values stay as they are,
 * to the bit. */
void tw_regrouping_average(const tw_regrouping *to, int old, const float *values, size_t count, float *dst);

/* Calls `take` for each old rank that matters, in order: those with which one of `count` new ranks has something in
 * common, and the first that is there, with whom the others must agree. `state` is NULL where an old rank's is lost,
 * which take may refuse; one at least must be there. `stride`: ranks that act as one, the first for all. A failure is
 * said to be the old rank's. */
tw_status tw_regrouping_each(const tw_regrouping *to, size_t count, int stride, tw_state_source source, void *context,
                             tw_status (*take)(void *taker, int old, const tw_state *state), void *taker);

/* Adds to a scheme made for the new rank, with nothing remembered yet, what it takes over from an old rank, whose
 * scheme has loaded what was saved. Old ranks come in order; `first` is the one that came first. */
tw_status tw_scheme_take_over(tw_scheme *scheme, tw_scheme *old_scheme, const tw_regrouping *to, int old, int first);

#endif
