/* scheme_text.h - what the text of a spec, "dgc:density=0.001", says by itself, whatever scheme it is of. */
#ifndef TRAINER_SCHEME_TEXT_H
#define TRAINER_SCHEME_TEXT_H

#include <stddef.h>

/* What stands behind "option=" in the spec, and how long that is; NULL where the spec does not set it. */
const char *scheme_text_value(const char *spec, const char *option, size_t *length);
int scheme_text_sets(const char *spec, const char *option);
/* The same as a number; NaN where the spec does not set it. */
double scheme_text_number(const char *spec, const char *option);
int scheme_text_is_on(const char *spec, const char *option);
/* The spec with that value of an option, malloc'd; NULL: no memory. */
char *scheme_text_with(const char *spec, const char *option, const char *value);

#endif
