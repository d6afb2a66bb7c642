#include "group.h"

#include <stdatomic.h>
#include <stdio.h>

static atomic_int failures;

void group_note(int holds, const char *file, int line, const char *text)
{
    if (holds) return;
    if (atomic_fetch_add(&failures, 1) < 20) fprintf(stderr, "%s:%d: %s\n", file, line, text);
}

int group_failures(void)
{
    return failures;
}
