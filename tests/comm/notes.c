#include "group.h"

#include <stdatomic.h>
#include <stdio.h>

#include "support/cmocka.h"

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

void group_test(int least, int most, rank_program program, const void *context)
{
    for (int i = 0; group_size(i); i++)
        if (group_size(i) >= least && group_size(i) <= most) group_run(group_size(i), program, context);
    assert_int_equal(failures, 0);
}
