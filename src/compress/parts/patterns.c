#include "patterns.h"

#include "error.h"

#include <string.h>

/* A star first stands for nothing, and for a byte more each time that what follows it does not fit. Only the last star
 * is ever tried again: if there is a match at all, there is one in which the stars before it stand for the fewest. */
int tw_pattern_fits(tw_pattern pattern, const char *name)
{
    const char *at = pattern.at, *end = pattern.at + pattern.length, *star = NULL, *retry = NULL;
    while (*name) {
        if (at < end && *at == '*') {
            star = ++at;
            retry = name;
        } else if (at < end && (*at == '?' || *at == *name)) {
            at++;
            name++;
        } else if (star) {
            at = star;
            name = ++retry;
        } else {
            return 0;
        }
    }
    while (at < end && *at == '*') at++;
    return at == end;
}

int tw_pattern_names_any(tw_pattern pattern, const tw_tensor *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (tw_pattern_fits(pattern, tensors[i].name)) return 1;
    return 0;
}

/* Takes the first of "pattern|pattern" off. */
static tw_pattern next_pattern(const char **patterns)
{
    tw_pattern pattern = {*patterns, strcspn(*patterns, "|")};
    *patterns += pattern.length + ((*patterns)[pattern.length] == '|');
    return pattern;
}

int tw_patterns_fit(const char *patterns, const char *name)
{
    while (*patterns)
        if (tw_pattern_fits(next_pattern(&patterns), name)) return 1;
    return 0;
}

tw_status tw_patterns_check(const char *patterns, const tw_tensor *tensors, size_t count)
{
    while (patterns && *patterns) {
        tw_pattern pattern = next_pattern(&patterns);
        if (pattern.length && !tw_pattern_names_any(pattern, tensors, count))
            return tw_fail(TW_ERROR_SPEC, "dense=%.*s: no tensor has such a name; the first is called %s",
                           (int)pattern.length, pattern.at, tensors[0].name);
    }
    return TW_OK;
}
