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

const tw_directions_rows tw_directions_scalar = {.adapt = adapt, .adapt_select = adapt_select};
