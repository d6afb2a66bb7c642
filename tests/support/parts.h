/* parts.h - how much of a sweep is made: in the test NAME, which `make test` runs, as much as shows in a moment what it
 * is about; in NAME_extra, and by hand, all of it. See tw_divide. */
#ifndef TESTS_SUPPORT_PARTS_H
#define TESTS_SUPPORT_PARTS_H

#include <stdlib.h>
#include <string.h>

static inline int in_part(int most, int all)
{
    const char *part = getenv("TEST_PART");
    return part && strcmp(part, "most") == 0 ? most : all;
}

#endif
