#include "scheme_text.h"
#include "pairs.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *scheme_text_value(const char *spec, const char *option, size_t *length)
{
    const char *list = strchr(spec, ':');
    if (!list) return NULL;
    list++;
    for (pair next; pair_next(&list, &next);) {
        if (!next.value || !pair_has_key(&next, option)) continue;
        *length = next.value_length;
        return next.value;
    }
    return NULL;
}

int scheme_text_sets(const char *spec, const char *option)
{
    size_t length;
    return scheme_text_value(spec, option, &length) != NULL;
}

double scheme_text_number(const char *spec, const char *option)
{
    size_t length;
    const char *value = scheme_text_value(spec, option, &length);
    return value ? strtod(value, NULL) : NAN;
}

int scheme_text_is_on(const char *spec, const char *option)
{
    size_t length;
    const char *value = scheme_text_value(spec, option, &length);
    return value && length == strlen("on") && strncmp(value, "on", length) == 0;
}

char *scheme_text_with(const char *spec, const char *option, const char *value)
{
    char *with;
    size_t length;
    const char *old = scheme_text_value(spec, option, &length);
    int written = old ? asprintf(&with, "%.*s%s%s", (int)(old - spec), spec, value, old + length)
                      : asprintf(&with, "%s%c%s=%s", spec, strchr(spec, ':') ? ',' : ':', option, value);
    return written < 0 ? NULL : with;
}
