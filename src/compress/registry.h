/* registry.h - finds the scheme that a spec names, and reads what the spec says of it. */
#ifndef TW_REGISTRY_H
#define TW_REGISTRY_H

#include "scheme.h"

/* All schemes there are: the library's own, and behind them those from outside, in the order in which they were
 * registered. NULL past the end. */
const tw_scheme_ops *tw_scheme_at(size_t index);

/* NULL if there is none. */
const tw_scheme_ops *tw_scheme_by_name(const char *name);

/* TW_ERROR_SPEC, with the names there are, if the spec's is none of them. */
tw_status tw_scheme_find(const char *spec, const tw_scheme_ops **ops);

/* Sets the scheme's own options, in `scheme`, and those that all share; release frees their texts. */
tw_status tw_scheme_options_parse(const tw_scheme_ops *ops, const char *spec, tw_scheme *scheme);
void tw_scheme_options_release(const tw_scheme_ops *ops, tw_scheme *scheme);

/* Whether a scheme's options, which somebody else wrote, can be read: TW_ERROR_SPEC or TW_ERROR_ARGUMENT. */
tw_status tw_scheme_options_check(const tw_scheme_ops *ops);

/* tw_spec_for_run of a spec whose options are those of `scheme`, and perhaps others. */
size_t tw_scheme_spec_for_run(const char *scheme, const char *spec, uint64_t steps, char *text, size_t capacity);

#endif
