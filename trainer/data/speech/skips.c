#include "skips.h"

#include <stdio.h>
#include <string.h>

#include "code_point.h"

static const char *const reasons[SKIP_REASONS] = {
    [SKIP_NO_TRANSCRIPT] = "without a transcript",
    [SKIP_AUDIO] = "with unusable audio",
    [SKIP_CHARACTERS] = "with characters outside the alphabet",
    [SKIP_TOO_SHORT] = "too short",
    [SKIP_ALIGNMENT] = "without a fitting alignment",
};

void skips_add(skips *s, skip_reason reason, const char *example)
{
    if (s->count[reason]++ == 0) code_point_show(example, strlen(example), s->first[reason], SKIP_EXAMPLE);
}

size_t skips_total(const skips *s)
{
    size_t total = 0;
    for (int reason = 0; reason < SKIP_REASONS; reason++) total += s->count[reason];
    return total;
}

const char *skips_text(const skips *s, char text[SKIPS_TEXT])
{
    size_t total = skips_total(s);
    text[0] = 0;
    if (total == 0) return text;
    int length = snprintf(text, SKIPS_TEXT, "%zu utterance%s skipped", total, total == 1 ? "" : "s");
    const char *separator = ":";
    for (int reason = 0; reason < SKIP_REASONS; reason++) {
        size_t count = s->count[reason];
        if (count == 0) continue;
        length += snprintf(text + length, SKIPS_TEXT - (size_t)length, "%s %zu %s (%s%s)", separator, count,
                           reasons[reason], count > 1 ? "first: " : "", s->first[reason]);
        separator = ",";
    }
    return text;
}
