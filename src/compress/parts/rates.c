#include "rates.h"

#include "error.h"
#include "patterns.h"

#include <stdlib.h>
#include <string.h>

typedef struct rule {
    tw_pattern pattern;
    size_t rate;
} rule;

/* Takes the first of "pattern@rate|pattern@rate" off. */
static tw_status next_rule(const char **rates, rule *next)
{
    const char *text = *rates;
    size_t length = strcspn(text, "|"), pattern = strcspn(text, "@|");
    char *end = NULL;
    long rate = text[pattern] == '@' ? strtol(text + pattern + 1, &end, 10) : 0;
    if (pattern == 0 || end != text + length || rate < 1 || rate > TW_MOST_RATE)
        return tw_fail(TW_ERROR_SPEC, "rates=%.*s: wanted is a name or pattern, @, and a rate from 1 to %d",
                       (int)length, text, TW_MOST_RATE);
    *next = (rule){{text, pattern}, (size_t)rate};
    *rates = text + length + (text[length] == '|');
    return TW_OK;
}

tw_status tw_rate_of(const char *rates, const char *name, size_t otherwise, size_t *rate)
{
    rule next = {0};
    int found = 0;
    *rate = otherwise;
    while (*rates) {
        TW_TRY(next_rule(&rates, &next));
        if (found || !tw_pattern_fits(next.pattern, name)) continue;
        *rate = next.rate;
        found = 1;
    }
    return TW_OK;
}

tw_status tw_rates_check(const char *rates, const tw_tensor *tensors, size_t count)
{
    rule next = {0};
    while (*rates) {
        TW_TRY(next_rule(&rates, &next));
        if (!tw_pattern_names_any(next.pattern, tensors, count))
            return tw_fail(TW_ERROR_SPEC, "rates=%.*s@%zu: no tensor has such a name; the first is called %s",
                           (int)next.pattern.length, next.pattern.at, next.rate, tensors[0].name);
    }
    return TW_OK;
}
