/* The reference of moments.h. */
#include "scalar_select.h"

static void add(tw_moments *moments, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        moments->sum[i % 16] += x[i];
        moments->squares[i % 16] += (double)x[i] * x[i];
    }
}

static size_t measured_select(tw_moments *moments, float *u, float *v, float *g, size_t n, float a, float m,
                              int nesterov, float threshold, uint32_t first, uint32_t *index, float *value,
                              size_t *done)
{
    size_t count = momentum_select(u, v, g, n, a, m, nesterov, threshold, first, index, value, done);
    add(moments, v, done ? *done : n);
    return count;
}

const tw_moments_rows tw_moments_scalar = {.add = add, .momentum_select = measured_select};

void tw_moments_finish(const tw_moments *moments, size_t n, double *mean, double *deviation)
{
    tw_moments folded = *moments;
    double count = (double)n, first = tw_kernels_fold(folded.sum) / count;
    double variance = tw_kernels_fold(folded.squares) / count - first * first;
    *mean = first;
    *deviation = variance > 0 ? sqrt(variance) : 0; /* rounding may leave less than nothing */
}
