/* scheme.h - what --sync may name: the schemes of exchange.h. All that is asked of a spec here is answered by the
 * library's own lists. */
#ifndef TRAINER_SCHEME_H
#define TRAINER_SCHEME_H

#include <thinwire/thinwire.h>

/* True of a scheme for gradients that compresses none of them differently from the others and so holds nothing back:
 * what comes out is the mean of what went in, but for rounding. */
int scheme_is_exact(const char *spec);
/* What a number among its options is, given or not; NaN where the scheme has no such option. */
double scheme_number(const char *spec, const char *option);
/* Whether it gives Adam's direction, to which AdamW has only to add the decay. */
int scheme_adapts(const char *spec);
/* Whether it gives the sign of each element of its momentum: a whole step, but for the rate and the decay. */
int scheme_gives_signs(const char *spec);
/* Whether it sends a part of a gradient in each step, and the rest later; of a density of 1 there is no rest. */
int scheme_sends_a_part(const char *spec);
/* The spec with every option of its scheme, in the library's order and with numbers in one form, malloc'd; NULL where
 * there is no such scheme, or no memory. Specs that mean the same are the same in full. */
char *scheme_in_full(const char *spec);
/* The spec with what follows from the run's length (tw_spec_for_run), malloc'd; NULL where there is no memory. */
char *scheme_for_run(const char *spec, uint64_t steps);
/* TW_ERROR_ARGUMENT, with the names of all there are, unless the spec begins with one of them. */
tw_status scheme_check(const char *spec);

#endif
