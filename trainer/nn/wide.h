/* wide.h - loops compiled for every width of vectors, and the functions of one number that they are made of.
 *
 * The bits do not depend on the width: no product is contracted with a sum, and no sum changes its order. */
#ifndef NN_WIDE_H
#define NN_WIDE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Before a function: the compiler makes one for each instruction set, and the loader takes the best that runs. No
 * optimize("O3") beside it: GCC 11 then calls the functions below, and makes no vectors of such loops. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&     \
    !defined(__clang__)
#define NN_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define NN_WIDE
#endif

/* Running sums side by side: their order is fixed, and a vector unit can follow it. */
enum { NN_LANES = 16 };
static inline float nn_sum_lanes(const float lanes[NN_LANES])
{
    float sum = lanes[0];
    for (size_t k = 1; k < NN_LANES; k++) sum += lanes[k];
    return sum;
}

static inline float nn_sum(const float *row, size_t count)
{
    float lanes[NN_LANES] = {0};
    size_t i = 0;
    for (; i + NN_LANES <= count; i += NN_LANES)
        for (size_t k = 0; k < NN_LANES; k++) lanes[k] += row[i + k];
    for (; i < count; i++) lanes[0] += row[i];
    return nn_sum_lanes(lanes);
}

static inline float nn_dot(const float *a, const float *b, size_t count)
{
    float lanes[NN_LANES] = {0};
    size_t i = 0;
    for (; i + NN_LANES <= count; i += NN_LANES)
        for (size_t k = 0; k < NN_LANES; k++) lanes[k] += a[i + k] * b[i + k];
    for (; i < count; i++) lanes[0] += a[i] * b[i];
    return nn_sum_lanes(lanes);
}

/* Comparisons are written so that NaN comes through. */
static inline float nn_clamp(float x, float low, float high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

/* e^x = 2^n (1 + fraction), with |ln(1 + fraction)| <= ln(2) / 2. For |x| <= 87. */
typedef struct nn_exponential {
    float power, fraction;
} nn_exponential;

static inline nn_exponential nn_split_exponential(float x)
{
    const float rounder = 12582912.0f; /* 1.5 * 2^23: added, it leaves an integer in the last bits */
    float shifted = x * 1.44269504f + rounder, n = shifted - rounder;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f; /* ln(2) in two pieces, the first exact times n */
    float series = 1.0f / 5040;
    series = series * r + 1.0f / 720;
    series = series * r + 1.0f / 120;
    series = series * r + 1.0f / 24;
    series = series * r + 1.0f / 6;
    series = series * r + 1.0f / 2;
    nn_exponential e = {.fraction = series * r * r + r};
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23;
    memcpy(&e.power, &bits, sizeof bits);
    return e;
}

/* e^x to 2e-7 of itself; what is beyond e^87 or e^-87 becomes these. */
static inline float nn_exp(float x)
{
    nn_exponential e = nn_split_exponential(nn_clamp(x, -87.0f, 87.0f));
    return e.power + e.power * e.fraction;
}

static inline float nn_sigmoid(float x)
{
    return 1.0f / (1.0f + nn_exp(-x));
}

/* With e^2x - 1, which is exact near 0 too. */
static inline float nn_tanh(float x)
{
    nn_exponential e = nn_split_exponential(nn_clamp(2.0f * x, -20.0f, 20.0f));
    float minus_one = (e.power - 1.0f) + e.power * e.fraction;
    return minus_one / (minus_one + 2.0f);
}

#endif
