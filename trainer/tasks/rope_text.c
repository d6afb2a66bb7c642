#include "rope_text.h"

#include "error.h"

#include <stdio.h>
#include <string.h>

tw_status rope_parse(const char *text, nn_rotary_scaling *s)
{
    char end;
    *s = (nn_rotary_scaling){0};
    if (!text) return TW_OK;
    if (sscanf(text, "llama3:%lf,%lf,%lf,%lf%c", &s->factor, &s->low, &s->high, &s->original, &end) == 4 &&
        s->factor != 0.0 && s->original > 0.0)
        return TW_OK;
    *s = (nn_rotary_scaling){.high = 1.0};
    if (sscanf(text, "linear:%lf%c", &s->factor, &end) == 1 && s->factor != 0.0) return TW_OK;
    return tw_fail(
        TW_ERROR_ARGUMENT,
        "--rope-scaling %.80s: it is linear:FACTOR, or llama3:FACTOR,LOW,HIGH,POSITIONS with the numbers of a "
        "config.json, such as llama3:8,1,4,8192",
        text);
}

const char *rope_text(const nn_rotary_scaling *s, char text[ROPE_TEXT])
{
    if (s->factor == 0.0) return NULL;
    if (s->original > 0.0)
        snprintf(text, ROPE_TEXT, "llama3:%.17g,%.17g,%.17g,%.17g", s->factor, s->low, s->high, s->original);
    else
        snprintf(text, ROPE_TEXT, "linear:%.17g", s->factor);
    return text;
}

char *rope_in_full(const char *text)
{
    char full[ROPE_TEXT];
    nn_rotary_scaling s;
    return rope_parse(text, &s) == TW_OK && rope_text(&s, full) ? strdup(full) : NULL;
}
