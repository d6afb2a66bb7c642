/* compress.h - what the reducer asks of a scheme, beside the public calls. */
#ifndef TW_COMPRESS_H
#define TW_COMPRESS_H

#include "scheme.h"
#include "table.h"

/* What ops->check says of a spec and a table. */
tw_status tw_spec_check(const char *spec, const tw_tensor *tensors, size_t count);
/* Reads a spec's options that all schemes share, for who only needs those; release the text with tw_free(dense). */
tw_status tw_common_options_read(const char *spec, tw_common_options *options);
/* tw_scheme_create for who sums inside hosts before: `rank` and `size` count hosts. */
tw_status tw_scheme_create_between(const char *spec, const tw_tensor *tensors, size_t count, int rank, int size,
                                   tw_scheme **scheme);
/* Settles the scheme, then visits what it remembers. */
tw_status tw_scheme_walk(tw_scheme *scheme, tw_walk *walk);
/* Whether tw_scheme_load_state would succeed; changes nothing. */
tw_status tw_scheme_check_state(tw_scheme *scheme, const char *prefix, const tw_state *state);
float tw_scheme_momentum(const tw_scheme *scheme, int *nesterov);
/* Whether it wants no norm, since it looks at gradients in its own pass: begin it with tw_scheme_begin_unseen. */
int tw_scheme_looks(const tw_scheme *scheme);
/* tw_scheme_begin for gradients that nobody has looked at. `elsewhere` is added to the sum of their squares to tell
 * whether the norm is below its bound; what they add is in scheme->squares after the first tw_scheme_next. */
tw_status tw_scheme_begin_unseen(tw_scheme *scheme, float *const *gradients, double elsewhere);

#endif
