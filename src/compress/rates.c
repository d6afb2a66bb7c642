#include "rates.h"

#include "error.h"
#include "scheme.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PATTERN = 255 };

typedef struct rule {
    char pattern[MOST_PATTERN + 1];
    size_t rate;
} rule;

/* Takes the first of "pattern@rate|pattern@rate" off. */
static tw_status next_rule(const char **rates, rule *next)
{
    const char *text = *rates;
    size_t length = strcspn(text, "|"), pattern = strcspn(text, "@|");
    char *end = NULL;
    long rate = text[pattern] == '@' ? strtol(text + pattern + 1, &end, 10) : 0;
    if (pattern == 0 || pattern > MOST_PATTERN || end != text + length || rate < 1 || rate > TW_MOST_RATE)
        return tw_fail(TW_ERROR_SPEC, "rates=%.*s: wanted is a name or pattern, @, and a rate from 1 to %d",
                       (int)length, text, TW_MOST_RATE);
    memcpy(next->pattern, text, pattern);
    next->pattern[pattern] = 0;
    next->rate = (size_t)rate;
    *rates = text + length + (text[length] == '|');
    return TW_OK;
}

tw_status tw_rate_of(const char *rates, const char *name, size_t otherwise, size_t *rate)
{
    rule next;
    int found = 0;
    *rate = otherwise;
    while (*rates) {
        TW_TRY(next_rule(&rates, &next));
        if (found || fnmatch(next.pattern, name, 0) != 0) continue;
        *rate = next.rate;
        found = 1;
    }
    return TW_OK;
}

tw_status tw_rates_check(const char *rates, const tw_tensor *tensors, size_t count)
{
    rule next;
    while (*rates) {
        TW_TRY(next_rule(&rates, &next));
        if (!tw_pattern_matches(next.pattern, tensors, count))
            return tw_fail(TW_ERROR_SPEC, "rates=%s@%zu: no tensor has such a name; the first is called %s",
                           next.pattern, next.rate, tensors[0].name);
    }
    return TW_OK;
}
