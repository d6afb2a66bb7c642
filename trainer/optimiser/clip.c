#include "clip.h"
#include <math.h>

/* Several sums side by side, in a fixed order: what a vector unit can do at once. */
enum { LANES = 8 };

double clip_squares(const float *values, size_t count)
{
    double sums[LANES] = {0}, sum = 0;
    size_t whole = count - count % LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++) sums[lane] += (double)values[i + lane] * (double)values[i + lane];
    for (size_t i = whole; i < count; i++) sum += (double)values[i] * (double)values[i];
    for (size_t lane = 0; lane < LANES; lane++) sum += sums[lane];
    return sum;
}

float clip_scale(double squares, double limit)
{
    double length = sqrt(squares);
    return length > limit && isfinite(length) ? (float)(limit / length) : 1;
}

void clip_norm(const tw_tensor *tensors, size_t count, float *values, double limit)
{
    double squares = 0;
    size_t all = 0;
    for (size_t i = 0; i < count; i++) {
        size_t own = tw_tensor_count(&tensors[i]);
        squares += clip_squares(values + all, own);
        all += own;
    }
    float scale = clip_scale(squares, limit);
    for (size_t i = 0; i < all && scale != 1; i++) values[i] *= scale;
}
