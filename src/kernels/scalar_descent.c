/* The reference of descent.h. Its loops over a constant number of elements are any compiler's to vectorise. */
#include "half.h"
#include "levels.h"

#include <string.h>

enum { GROUP = 4, LINE = 16 };

/* What is behind the count of a group is 0. */
TW_INLINE void digest_group(tw_digest *of, const float *x, size_t count)
{
    for (size_t lane = 0; lane < count; lane++) {
        uint32_t bits = tw_float_bits(x[lane]);
        of->first[lane] += bits ^ bits >> 16;
    }
    for (size_t lane = 0; lane < GROUP; lane++) of->second[lane] += of->first[lane];
}

static void digest(tw_digest *of, const float *x, size_t n)
{
    size_t whole = n / GROUP * GROUP;
    tw_digest sums = *of;
    for (size_t i = 0; i < whole; i += GROUP) digest_group(&sums, x + i, GROUP);
    if (whole < n) digest_group(&sums, x + whole, n - whole);
    *of = sums;
}

TW_INLINE void descend_line(tw_descent *descent, int nesterov, const float *restrict d, float *restrict v,
                            float *restrict theta, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float before = v[i], now = descent->momentum * before + d[i];
        descent->mean[i] += d[i] * d[i];
        descent->before[i] += before * before;
        descent->both[i] += d[i] * before;
        v[i] = now;
        theta[i] -= descent->rate * (nesterov ? d[i] + descent->momentum * now : now);
    }
}

TW_INLINE void descend_with(tw_descent *descent, int nesterov, const float *d, float *v, float *theta, size_t n)
{
    size_t whole = n / LINE * LINE;
    tw_descent sums = *descent;
    for (size_t i = 0; i < whole; i += LINE) descend_line(&sums, nesterov, d + i, v + i, theta + i, LINE);
    descend_line(&sums, nesterov, d + whole, v + whole, theta + whole, n - whole);
    *descent = sums;
}

static void descend(tw_descent *descent, const float *d, float *v, float *theta, float *weights, size_t n)
{
    if (descent->nesterov)
        descend_with(descent, 1, d, v, theta, n);
    else
        descend_with(descent, 0, d, v, theta, n);
    if (weights) memcpy(weights, theta, n * sizeof *theta);
    digest(&descent->theta, theta, n);
    digest(&descent->v, v, n);
}

const tw_descent_rows tw_descent_scalar = {.descend = descend, .digest = digest};
