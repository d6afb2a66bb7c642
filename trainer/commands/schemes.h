/* schemes.h - the library's schemes by name. */
#ifndef TRAINER_SCHEMES_H
#define TRAINER_SCHEMES_H

#include <stddef.h>

/* The scheme that a spec, "dgc:density=0.001", begins with; tw_scheme_count() when there is none of that name. */
size_t scheme_find(const char *spec);

#endif
