/* compress.h - what the reducer asks of a scheme, beside the public calls. */
#ifndef TW_COMPRESS_H
#define TW_COMPRESS_H

#include "scheme.h"
#include "table.h"

enum { TW_MOST_RANKS = 16384 }; /* of a scheme */

/* What ops->check says of a spec and a table. */
tw_status tw_spec_check(const char *spec, const tw_tensor *tensors, size_t count);
/* Finds a spec's scheme and reads the options that all schemes share, for who only needs those; release the text with
 * tw_free(dense). */
tw_status tw_common_options_read(const char *spec, const tw_scheme_ops **ops, tw_common_options *options);
/* tw_scheme_create for who sums inside hosts before: `rank` and `size` count hosts. */
tw_status tw_scheme_create_between(const char *spec, const tw_tensor *tensors, size_t count, int rank, int size,
                                   tw_scheme **scheme);
/* Settles the scheme, then visits what it remembers. */
tw_status tw_scheme_walk(tw_scheme *scheme, tw_walk *walk);
/* Visits all that a state of it has, the count of steps too, as it stands. */
tw_status tw_scheme_visit(tw_scheme *scheme, tw_walk *walk);
/* Whether an entry is of a tensor's elements, in numbers that can be added up: which tensor's. What a scheme from
 * outside calls by a tensor's name may be anything. */
int tw_scheme_find_elements(const tw_scheme *scheme, const tw_remembered *entry, size_t *tensor);
/* Whether an entry is of numbers that can be added up, and the value of one of them, which put changes. */
int tw_remembered_adds_up(const tw_remembered *entry);
double tw_remembered_value(const tw_remembered *entry, size_t i);
void tw_remembered_put(const tw_remembered *entry, size_t i, double value);
/* What tw_scheme_fill_state loads: puts what `fill` gives into `state`, but for what is there already. */
tw_status tw_scheme_ask_state(tw_scheme *scheme, tw_state_visit fill, void *context, tw_state *state);
/* Whether tw_scheme_load_state would succeed; changes nothing. */
tw_status tw_scheme_check_state(tw_scheme *scheme, const char *prefix, const tw_state *state);
/* Whether a load would take what it remembers now, which a sum over ranks may have made too large. */
tw_status tw_scheme_check_remembered(tw_scheme *scheme, const char *prefix);
/* What tw_scheme_set_rate says of its argument. */
tw_status tw_rate_check(float rate);
/* Whether it wants no norm, since it looks at gradients in its own pass: begin it with tw_scheme_begin_unseen. */
int tw_scheme_looks(const tw_scheme *scheme);
/* tw_scheme_begin_without for gradients that nobody has looked at. What `elsewhere` answers is added to the sum of
 * their squares to tell whether the norm is below its bound; it is asked in the first tw_scheme_next, when they have
 * been taken in. What they add is in scheme->squares after that. */
tw_status tw_scheme_begin_unseen(tw_scheme *scheme, float *const *gradients, const unsigned char *absent,
                                 tw_squares_elsewhere elsewhere);

#endif
