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

static float divisor_of(const float *divisor, size_t i)
{
    return divisor ? divisor[i] : 1;
}

/* What m is divided by where it is shared. */
static float shared_over(const tw_shared_step *step, float divisor)
{
    if (!(divisor > 0)) return 0;
    return step->divides ? divisor : 1;
}

static void share(const tw_shared_step *step, const float *first, const float *divisor, const float *g, float *share,
                  size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float by = shared_over(step, divisor_of(divisor, i)), fresh = tw_adam_within(g[i] / by, step->most);
        share[i] = by > 0 ? step->kept * first[i] / by + step->fresh * fresh : 0;
    }
}

static void adopt(const tw_shared_step *step, float *first, const float *divisor, float *g, size_t n, int past)
{
    (void)past;
    for (size_t i = 0; i < n; i++) {
        float by = divisor_of(divisor, i), m = tw_adam_bounded(g[i] * shared_over(step, by));
        first[i] = m;
        g[i] = by > 0 ? tw_adam_bounded(step->correction * m / by) : m;
    }
}

const tw_directions_rows tw_directions_scalar = {TW_DIRECTIONS_LOOPS};
