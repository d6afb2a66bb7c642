/* scalar_quiet.h - how far the reference comes in a gradient that may have something loud. */
#ifndef TW_KERNELS_SCALAR_QUIET_H
#define TW_KERNELS_SCALAR_QUIET_H

#include "levels.h"

#include <math.h>

TW_INLINE int all_below(const float *x, size_t n, float limit)
{
    int below = 1;
    for (size_t i = 0; i < n; i++) below &= fabsf(x[i]) < limit;
    return below;
}

/* How many elements stand before the first group of g that has a loud one, or NaN. */
TW_INLINE size_t quiet_before(const float *g, size_t n)
{
    size_t quiet = 0;
    while (quiet < n) {
        size_t group = n - quiet < TW_GROUP ? n - quiet : TW_GROUP;
        if (!all_below(g + quiet, group, TW_LOUD)) break;
        quiet += group;
    }
    return quiet;
}

#endif
