/* group_local.h - what groups share whose ranks are all in this process. Whoever includes it says how large a group may
 * be, MOST, and which SIZES are tried where not all are. */
#ifndef TEST_GROUP_LOCAL_H
#define TEST_GROUP_LOCAL_H

#include "group.h"

void group_begin(int *argc, char ***argv)
{
    (void)argc, (void)argv;
}

void group_end(void)
{
}

int group_size(int index)
{
#ifdef SIZES
    static const int sizes[] = {SIZES, 0};
    return sizes[index];
#else
    return index < MOST ? index + 1 : 0;
#endif
}

#endif
