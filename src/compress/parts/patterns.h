/* patterns.h - patterns that name tensors: * is any number of bytes, ? is any one, all else stands for itself. */
#ifndef TW_PATTERNS_H
#define TW_PATTERNS_H

#include <stddef.h>
#include <thinwire/thinwire.h>

/* A piece of an option's text, not terminated. */
typedef struct tw_pattern {
    const char *at;
    size_t length;
} tw_pattern;

/* 1 if the pattern matches the whole name, in steps that the product of their lengths bounds. The empty one matches no
 * tensor, as none has an empty name. */
int tw_pattern_fits(tw_pattern pattern, const char *name);

/* 1 if it matches the name of a tensor in the table. */
int tw_pattern_names_any(tw_pattern pattern, const tw_tensor *tensors, size_t count);

/* 1 if one of "pattern|pattern" matches the name. */
int tw_patterns_fit(const char *patterns, const char *name);

/* TW_ERROR_SPEC if one of the patterns of dense= matches no tensor: a misspelt name must not pass for a rule. */
tw_status tw_patterns_check(const char *patterns, const tw_tensor *tensors, size_t count);

#endif
