/* The reference: plain C, an element at a time. It says what the other levels must compute, to the bit. */
#include "half.h"
#include "scalar_select.h"

static int all_finite(const float *x, size_t n)
{
    int finite = 1;
    for (size_t i = 0; i < n; i++) finite &= (tw_float_bits(x[i]) & 0x7F800000u) != 0x7F800000u;
    return finite;
}

static void add_squares(double partial[16], const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) partial[i % 16] += (double)x[i] * x[i];
}

static double sum_squares(const float *x, size_t n)
{
    double partial[16] = {0};
    add_squares(partial, x, n);
    return tw_kernels_fold(partial);
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

static size_t accumulate_select(float *v, float *g, size_t n, float a, float threshold, uint32_t first, uint32_t *index,
                                float *value, size_t *done)
{
    if (done) *done = n = quiet_before(g, n);
    return update_and_select(TW_ACCUMULATE, v, v, g, n, a, 0, threshold, first, index, value);
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
    .descent = &tw_descent_scalar,
    .directions = &tw_directions_scalar,
    .quantise = &tw_quantise_scalar,
    .lowrank = &tw_lowrank_scalar,
    .rounded = &tw_rounded_scalar,
    .fp16 = &tw_fp16_scalar,
    .bf16 = &tw_bf16_scalar,
    TW_KERNEL_LOOPS,
};
