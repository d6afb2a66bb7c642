/* The reference of averaging.h. */
#include "averaging.h"

#include <math.h>

static int difference(float *dst, const float *a, const float *b, size_t n, float most, int past_cache)
{
    int within = 1;
    (void)past_cache;
    for (size_t i = 0; i < n; i++) {
        dst[i] = a[i] - b[i];
        within &= fabsf(dst[i]) <= most;
    }
    return within;
}

static void draw(tw_average *average, float *dst, size_t first, size_t n, int add)
{
    for (size_t i = first; i < first + n; i++) {
        float sent = average->sent[i], c = average->theirs[0][i] - sent;
        for (size_t p = 1; p < average->partners; p++) c += average->theirs[p][i] - sent;
        c *= average->share;
        dst[i] = add ? dst[i] + c : c;
        average->squares[i % 16] += (double)c * c;
    }
}

const tw_averaging_rows tw_averaging_scalar = {.difference = difference, .draw = draw};
