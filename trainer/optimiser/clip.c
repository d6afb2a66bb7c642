#include "clip.h"
#include <math.h>

/* Several sums side by side, in a fixed order: what a vector unit can do at once. */
enum { LANES = 8 };

static double norm(const float *values, size_t count)
{
    double sums[LANES] = {0}, sum = 0;
    size_t whole = count - count % LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++) sums[lane] += (double)values[i + lane] * (double)values[i + lane];
    for (size_t i = whole; i < count; i++) sum += (double)values[i] * (double)values[i];
    for (size_t lane = 0; lane < LANES; lane++) sum += sums[lane];
    return sqrt(sum);
}

void clip_norm(float *values, size_t count, double limit)
{
    double length = norm(values, count);
    if (!(length > limit) || !isfinite(length)) return;
    float scale = (float)(limit / length);
    for (size_t i = 0; i < count; i++) values[i] *= scale;
}
