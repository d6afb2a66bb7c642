/* scheme.h - what --sync may name: the library's schemes for gradients, and those for weights (gossip). */
#ifndef TRAINER_SCHEME_H
#define TRAINER_SCHEME_H

#include <thinwire/thinwire.h>

/* The scheme that a spec, "dgc:density=0.001", begins with; tw_scheme_count() when there is none of that name. */
size_t scheme_find(const char *spec);
/* Likewise, among the gossip schemes; tw_gossip_scheme_count(). */
size_t scheme_find_gossip(const char *spec);
/* True of a scheme for gradients that holds nothing back: what comes out is the mean of what went in. */
int scheme_is_exact(const char *spec);
/* TW_ERROR_ARGUMENT, with the names of both kinds, unless the spec begins with one of them. */
tw_status scheme_check(const char *spec);

#endif
