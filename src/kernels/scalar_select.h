/* scalar_select.h - the reference of what updates v and lists what stands out, for each of the files that has it. */
#ifndef TW_KERNELS_SCALAR_SELECT_H
#define TW_KERNELS_SCALAR_SELECT_H

#include "scalar_quiet.h"

/* Updates one element and returns the new v. */
TW_INLINE float updated(tw_update update, float *u, float *v, const float *g, float a, float m)
{
    if (update == TW_AS_IS) return *v;
    float step = a * *g;
    if (update != TW_ACCUMULATE) {
        *u = m * *u + step;
        step = update == TW_NESTEROV ? m * *u + step : *u;
    }
    return *v += step;
}

TW_INLINE size_t update_and_select(tw_update update, float *u, float *v, float *g, size_t n, float a, float m,
                                   float threshold, uint32_t first, uint32_t *index, float *value)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        float x = updated(update, u + i, v + i, g + i, a, m);
        if (update != TW_AS_IS) g[i] = 0;
        if (!(fabsf(x) > threshold)) continue;
        index[count] = first + (uint32_t)i;
        value[count++] = x;
    }
    return count;
}

TW_INLINE size_t momentum_select(float *u, float *v, float *g, size_t n, float a, float m, int nesterov,
                                 float threshold, uint32_t first, uint32_t *index, float *value, size_t *done)
{
    if (done) *done = n = quiet_before(g, n);
    return nesterov ? update_and_select(TW_NESTEROV, u, v, g, n, a, m, threshold, first, index, value)
                    : update_and_select(TW_MOMENTUM, u, v, g, n, a, m, threshold, first, index, value);
}

TW_INLINE size_t select_only(const float *v, size_t n, float threshold, uint32_t first, uint32_t *index, float *value)
{
    float *same = (float *)v; /* TW_AS_IS writes nothing */
    return update_and_select(TW_AS_IS, same, same, same, n, 0, 0, threshold, first, index, value);
}

#endif
