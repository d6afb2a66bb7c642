/* The reference of moments.h. */
#include "moments.h"

#include <math.h>

static void add(tw_moments *moments, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        moments->sum[i % 16] += x[i];
        moments->squares[i % 16] += (double)x[i] * x[i];
    }
}

const tw_moments_rows tw_moments_scalar = {.add = add};

static double fold(double partial[16])
{
    for (int half = 8; half > 0; half /= 2)
        for (int k = 0; k < half; k++) partial[k] += partial[k + half];
    return partial[0];
}

void tw_moments_finish(const tw_moments *moments, size_t n, double *mean, double *deviation)
{
    tw_moments folded = *moments;
    double count = (double)n, first = fold(folded.sum) / count;
    double variance = fold(folded.squares) / count - first * first;
    *mean = first;
    *deviation = variance > 0 ? sqrt(variance) : 0; /* rounding may leave less than nothing */
}
