#include "changes.h"
#include "error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tw_status changes_refuse(const char *text)
{
    return tw_fail(
        TW_ERROR_ARGUMENT,
        "planned-changes: %s: want STEP SPEC, and more of them behind semicolons, each with a later step, %d "
        "at most",
        text, CHANGES_MOST);
}

/* "STEP SPEC", up to a semicolon or the end. */
static int read_change(const char *text, run_change *change)
{
    char *rest;
    text += strspn(text, " ");
    change->step = strtoull(text, &rest, 10);
    if (*text < '0' || *text > '9' || *rest != ' ') return 0;
    const size_t left = strcspn(rest + 1, ";");
    if (left == 0 || left >= CHANGES_SPEC || strcspn(rest + 1, " ;") != left) return 0;
    memcpy(change->spec, rest + 1, left);
    change->spec[left] = 0;
    return 1;
}

tw_status changes_read(const char *text, run_changes *changes)
{
    *changes = (run_changes){.count = 0};
    for (const char *at = text; at;) {
        run_change *next = &changes->all[changes->count];
        if (changes->count == CHANGES_MOST || !read_change(at, next)) return changes_refuse(text);
        if (changes->count++ > 0 && next->step <= next[-1].step) return changes_refuse(text);
        at = strchr(at, ';');
        if (at) at++;
    }
    return TW_OK;
}

char *changes_text(const run_changes *changes)
{
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    if (!stream) return NULL;
    for (size_t i = 0; i < changes->count; i++)
        fprintf(stream, "%s%llu %s", i > 0 ? "; " : "", (unsigned long long)changes->all[i].step, changes->all[i].spec);
    fclose(stream);
    return text;
}

const char *changes_before(const run_changes *changes, const char *first, uint64_t step)
{
    const char *spec = first;
    for (size_t i = 0; i < changes->count && changes->all[i].step < step; i++) spec = changes->all[i].spec;
    return spec;
}

int changes_add(run_changes *changes, uint64_t step, const char *spec)
{
    if (changes->count == CHANGES_MOST) return 0;
    run_change *next = &changes->all[changes->count++];
    next->step = step;
    snprintf(next->spec, sizeof next->spec, "%s", spec);
    return 1;
}
