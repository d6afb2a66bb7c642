/* The reference of rounded.h. */
#include "half.h"
#include "scalar_quiet.h"

/* All that a row is asked, but for the arrays. */
typedef struct request {
    float a, m, threshold;
    tw_noise noise;
    const tw_adam_step *adam; /* of whom a second moment is there */
} request;

static float keep(uint16_t *dst, float x, uint32_t noise)
{
    *dst = tw_to_bf16_random(x, noise);
    return tw_from_bf16(*dst);
}

/* Updates element i and returns the new v. */
TW_INLINE float updated(tw_update update, uint16_t *u, float *second, uint16_t *v, const float *g, size_t i,
                        const request *r)
{
    if (update == TW_AS_IS) return tw_from_bf16(v[i]);
    uint32_t noise = tw_noise_at(&r->noise, i);
    float step = r->a * g[i];
    if (second) {
        float first = tw_from_bf16(u[i]);
        step = tw_adam_take(r->adam, step, &first, second + i);
        keep(u + i, first, noise & 0xFFFFu);
    } else if (update != TW_ACCUMULATE) {
        float velocity = r->m * tw_from_bf16(u[i]) + step;
        keep(u + i, velocity, noise & 0xFFFFu);
        step = update == TW_NESTEROV ? r->m * velocity + step : velocity;
    }
    return keep(v + i, tw_from_bf16(v[i]) + step, noise >> 16);
}

TW_INLINE size_t update_and_select(tw_update update, uint16_t *u, float *second, uint16_t *v, float *g, size_t n,
                                   const request *r, uint32_t *index, float *value)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        float x = updated(update, u, second, v, g, i, r);
        if (update != TW_AS_IS) g[i] = 0;
        if (!(fabsf(x) > r->threshold)) continue;
        index[count] = r->noise.first + (uint32_t)i;
        value[count++] = x;
    }
    return count;
}

static void add_moments(tw_moments *moments, const uint16_t *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float x = tw_from_bf16(v[i]);
        moments->sum[i % 16] += x;
        moments->squares[i % 16] += (double)x * x;
    }
}

static size_t momentum_select(tw_moments *moments, uint16_t *u, uint16_t *v, float *g, size_t n, float a, float m,
                              int nesterov, float threshold, tw_noise noise, uint32_t *index, float *value,
                              size_t *done)
{
    const request r = {a, m, threshold, noise, NULL};
    if (done) *done = n = quiet_before(g, n);
    size_t count = nesterov ? update_and_select(TW_NESTEROV, u, NULL, v, g, n, &r, index, value)
                            : update_and_select(TW_MOMENTUM, u, NULL, v, g, n, &r, index, value);
    if (moments) add_moments(moments, v, n);
    return count;
}

static size_t adapt_select(const tw_adam_step *step, uint16_t *u, float *second, uint16_t *v, float *g, size_t n,
                           float a, float threshold, tw_noise noise, uint32_t *index, float *value, size_t *done)
{
    const request r = {a, 0, threshold, noise, step};
    if (done) *done = n = quiet_before(g, n);
    return update_and_select(TW_MOMENTUM, u, second, v, g, n, &r, index, value);
}

static size_t accumulate_select(uint16_t *v, float *g, size_t n, float a, float threshold, tw_noise noise,
                                uint32_t *index, float *value, size_t *done)
{
    const request r = {a, 0, threshold, noise, NULL};
    if (done) *done = n = quiet_before(g, n);
    return update_and_select(TW_ACCUMULATE, v, NULL, v, g, n, &r, index, value);
}

static size_t select_only(const uint16_t *v, size_t n, float threshold, uint32_t first, uint32_t *index, float *value)
{
    const request r = {.threshold = threshold, .noise.first = first};
    uint16_t *same = (uint16_t *)v; /* TW_AS_IS writes nothing */
    return update_and_select(TW_AS_IS, same, NULL, same, NULL, n, &r, index, value);
}

static void scale(uint16_t *v, float a, size_t n, tw_noise noise)
{
    for (size_t i = 0; i < n; i++) keep(v + i, a * tw_from_bf16(v[i]), tw_noise_at(&noise, i) >> 16);
}

const tw_rounded_rows tw_rounded_scalar = {
    .momentum_select = momentum_select,
    .adapt_select = adapt_select,
    .accumulate_select = accumulate_select,
    .select = select_only,
    .scale = scale,
};
