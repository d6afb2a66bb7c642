/* rounded.h - the rows that take a gradient in, for a residual and a momentum that are kept in bf16. A part of the
 * table in kernels.h; its rules hold.
 *
 * Sums are made in fp32. What is kept of one is rounded at random to one of the two values of bf16 around it, so that
 * the kept value's mean is the sum: rounded to nearest, a residual would lose whatever is small beside it, in each step
 * anew. The noise is that of quantise.h: an element's upper 16 bits are for v, its lower 16 for u. So v's noise of an
 * element is u's of the one 32 apart in its row of 64. That does no harm: each is uniform, so that the mean of what is
 * kept is still the sum, and the roundings of v in a step do not depend on each other, nor do those of u. The gradient
 * holds no NaN. Elements are numbered from noise.first, also those that are listed. */
#ifndef TW_KERNELS_ROUNDED_H
#define TW_KERNELS_ROUNDED_H

#include "directions.h"
#include "moments.h"
#include "quantise.h"

typedef struct tw_rounded_rows {
    /* momentum_select of kernels.h. What is compared and listed is the new v as it is kept. Unless `moments` is NULL
     * that is also added to these, as tw_moments_rows does. */
    size_t (*momentum_select)(tw_moments *moments, uint16_t *u, uint16_t *v, float *g, size_t n, float a, float m,
                              int nesterov, float threshold, tw_noise noise, uint32_t *index, float *value,
                              size_t *done);
    /* adapt_select of directions.h, likewise. The second moment is fp32. */
    size_t (*adapt_select)(const tw_adam_step *step, uint16_t *u, float *second, uint16_t *v, float *g, size_t n,
                           float a, float threshold, tw_noise noise, uint32_t *index, float *value, size_t *done);
    /* accumulate_select of kernels.h, likewise */
    size_t (*accumulate_select)(uint16_t *v, float *g, size_t n, float a, float threshold, tw_noise noise,
                                uint32_t *index, float *value, size_t *done);
    /* v as it is */
    size_t (*select)(const uint16_t *v, size_t n, float threshold, uint32_t first, uint32_t *index, float *value);
    /* v *= a */
    void (*scale)(uint16_t *v, float a, size_t n, tw_noise noise);
} tw_rounded_rows;

/* The reference. */
extern const tw_rounded_rows tw_rounded_scalar;

/* The 32 bits of element i. */
uint32_t tw_noise_at(const tw_noise *noise, size_t i);

#endif
