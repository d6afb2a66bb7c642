/* The reference of halves.h. */
#include "half.h"
#include "levels.h"

static float cut(float x, float most)
{
    x = x < most ? x : most;
    return x > -most ? x : -most;
}

static void share_fp16(uint16_t *dst, const float *g, size_t n, float a)
{
    for (size_t i = 0; i < n; i++) dst[i] = tw_to_fp16(a * g[i]);
}

static void share_bf16(uint16_t *dst, const float *g, size_t n, float a)
{
    for (size_t i = 0; i < n; i++) dst[i] = tw_to_bf16(a * g[i]);
}

static void share_and_keep_fp16(uint16_t *dst, float *v, const float *g, size_t n, float a, float most)
{
    for (size_t i = 0; i < n; i++) {
        v[i] += a * g[i];
        dst[i] = tw_to_fp16(cut(v[i], most));
        v[i] -= tw_from_fp16(dst[i]);
    }
}

static void share_and_keep_bf16(uint16_t *dst, float *v, const float *g, size_t n, float a, float most)
{
    for (size_t i = 0; i < n; i++) {
        v[i] += a * g[i];
        dst[i] = tw_to_bf16(cut(v[i], most));
        v[i] -= tw_from_bf16(dst[i]);
    }
}

const tw_half_rows tw_fp16_scalar = {.share = share_fp16, .share_and_keep = share_and_keep_fp16};
const tw_half_rows tw_bf16_scalar = {.share = share_bf16, .share_and_keep = share_and_keep_bf16};
