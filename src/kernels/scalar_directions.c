/* The reference of directions.h. */
#include "scalar_select.h"

static void adapt(const tw_adam_step *step, float *first, float *second, float *g, size_t n)
{
    for (size_t i = 0; i < n; i++) g[i] = tw_adam_take(step, g[i], &first[i], &second[i]);
}

static size_t adapt_select(const tw_adam_step *step, float *first, float *second, float *v, float *g, size_t n, float a,
                           float threshold, uint32_t number, uint32_t *index, float *value, size_t *done)
{
    if (done) *done = n = quiet_before(g, n);
    for (size_t i = 0; i < n; i++) {
        v[i] += tw_adam_take(step, a * g[i], &first[i], &second[i]);
        g[i] = 0;
    }
    return select_only(v, n, threshold, number, index, value);
}

static void share(const tw_shared_step *step, const float *first, const float *second, const float *g, float *share,
                  size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float by = tw_adam_divisor(step, second, i), fresh = fmaxf(fminf(g[i] / by, step->most), -step->most);
        share[i] = by > 0 ? step->kept * first[i] / by + step->fresh * fresh : 0;
    }
}

static void adopt(const tw_shared_step *step, float *first, const float *second, float *g, size_t n, int past)
{
    (void)past;
    for (size_t i = 0; i < n; i++) {
        float m = g[i] * tw_adam_divisor(step, second, i);
        first[i] = fmaxf(fminf(m, TW_ADAM_LARGEST), -TW_ADAM_LARGEST);
        g[i] = second ? tw_adam_direction(&step->adam, first[i], second[i]) : first[i];
    }
}

const tw_directions_rows tw_directions_scalar = {TW_DIRECTIONS_LOOPS};
