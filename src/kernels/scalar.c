/* The reference: plain C, an element at a time. It says what the other levels must compute, to the bit. */
#include "half.h"
#include "levels.h"

#include <math.h>

static int all_finite(const float *x, size_t n)
{
    int finite = 1;
    for (size_t i = 0; i < n; i++) finite &= (tw_float_bits(x[i]) & 0x7F800000u) != 0x7F800000u;
    return finite;
}

static int all_below(const float *x, size_t n, float limit)
{
    int below = 1;
    for (size_t i = 0; i < n; i++) below &= fabsf(x[i]) < limit;
    return below;
}

double tw_kernels_fold(double partial[16])
{
    for (int half = 8; half > 0; half /= 2)
        for (int k = 0; k < half; k++) partial[k] += partial[k + half];
    return partial[0];
}

double tw_finish_squares(double partial[16], const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) partial[i % 16] += (double)x[i] * x[i];
    return tw_kernels_fold(partial);
}

static double sum_squares(const float *x, size_t n)
{
    double partial[16] = {0};
    return tw_finish_squares(partial, x, n);
}

static void add(float *dst, const float *src, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] += src[i];
}

static void scale(float *x, float a, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] *= a;
}

static void divide(float *x, float a, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] /= a;
}

static void velocity(float *v, float *g, size_t n, float m, int nesterov)
{
    for (size_t i = 0; i < n; i++) {
        v[i] = m * v[i] + g[i];
        g[i] = nesterov ? m * v[i] + g[i] : v[i];
    }
}

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

size_t tw_quiet_before(const float *g, size_t n)
{
    size_t quiet = 0;
    while (quiet < n) {
        size_t group = n - quiet < TW_GROUP ? n - quiet : TW_GROUP;
        if (!all_below(g + quiet, group, TW_LOUD)) break;
        quiet += group;
    }
    return quiet;
}

static size_t momentum_select(float *u, float *v, float *g, size_t n, float a, float m, int nesterov, float threshold,
                              uint32_t first, uint32_t *index, float *value, size_t *done)
{
    if (done) *done = n = tw_quiet_before(g, n);
    return nesterov ? update_and_select(TW_NESTEROV, u, v, g, n, a, m, threshold, first, index, value)
                    : update_and_select(TW_MOMENTUM, u, v, g, n, a, m, threshold, first, index, value);
}

static size_t accumulate_select(float *v, float *g, size_t n, float a, float threshold, uint32_t first, uint32_t *index,
                                float *value, size_t *done)
{
    if (done) *done = n = tw_quiet_before(g, n);
    return update_and_select(TW_ACCUMULATE, v, v, g, n, a, 0, threshold, first, index, value);
}

static size_t select_only(const float *v, size_t n, float threshold, uint32_t first, uint32_t *index, float *value)
{
    float *same = (float *)v; /* TW_AS_IS writes nothing */
    return update_and_select(TW_AS_IS, same, same, same, n, 0, 0, threshold, first, index, value);
}

static void to_fp16(uint16_t *dst, const float *src, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] = tw_to_fp16(src[i]);
}

static void from_fp16(float *dst, const uint16_t *src, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] = tw_from_fp16(src[i]);
}

static void to_bf16(uint16_t *dst, const float *src, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] = tw_to_bf16(src[i]);
}

static void from_bf16(float *dst, const uint16_t *src, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] = tw_from_bf16(src[i]);
}

static void drain(void)
{
}

const tw_kernels tw_kernels_scalar = {
    .averaging = &tw_averaging_scalar,
    .moments = &tw_moments_scalar,
    .chunks = &tw_chunks_scalar,
    .directions = &tw_directions_scalar,
    .quantise = &tw_quantise_scalar,
    .lowrank = &tw_lowrank_scalar,
    .rounded = &tw_rounded_scalar,
    .fp16 = &tw_fp16_scalar,
    .bf16 = &tw_bf16_scalar,
    TW_KERNEL_LOOPS,
};
