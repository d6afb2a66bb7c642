/* The reference of descent.h. */
#include "descent.h"

#include "half.h"

static void digest(tw_digest *of, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = tw_float_bits(x[i]);
        of->first[i % 4] += bits ^ bits >> 16;
        if (i % 4 < 3 && i + 1 < n) continue;
        for (size_t lane = 0; lane < 4; lane++) of->second[lane] += of->first[lane];
    }
}

static void descend(tw_descent *descent, const float *d, float *v, float *theta, float *weights, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float before = v[i], now = descent->momentum * before + d[i];
        descent->mean[i % 16] += d[i] * d[i];
        descent->before[i % 16] += before * before;
        descent->both[i % 16] += d[i] * before;
        v[i] = now;
        theta[i] -= descent->rate * (descent->nesterov ? d[i] + descent->momentum * now : now);
        if (weights) weights[i] = theta[i];
    }
    digest(&descent->theta, theta, n);
    digest(&descent->v, v, n);
}

const tw_descent_rows tw_descent_scalar = {.descend = descend, .digest = digest};
