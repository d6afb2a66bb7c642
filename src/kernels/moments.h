/* moments.h - the first two moments of an array (SDAGC). A part of the table in kernels.h; its rules hold. */
#ifndef TW_KERNELS_MOMENTS_H
#define TW_KERNELS_MOMENTS_H

#include <stddef.h>
#include <stdint.h>

/* Sums under way, of the elements i with the same i mod 16. Starts as zeros. */
typedef struct tw_moments {
    double sum[16], squares[16];
} tw_moments;

typedef struct tw_moments_rows {
    /* Adds x[i] and its square to partial sum i mod 16. An array may come in pieces: all but the last a multiple of 16
     * long, the sums are the same. */
    void (*add)(tw_moments *moments, const float *x, size_t n);
    /* momentum_select of kernels.h, and add for the new v, as far as it comes. */
    size_t (*momentum_select)(tw_moments *moments, float *u, float *v, float *g, size_t n, float a, float m,
                              int nesterov, float threshold, uint32_t first, uint32_t *index, float *value,
                              size_t *done);
} tw_moments_rows;

/* The reference. */
extern const tw_moments_rows tw_moments_scalar;

/* The mean of the n elements that were added, n > 0, and their standard deviation (over n, not n - 1). The partial sums
 * are folded by halves. */
void tw_moments_finish(const tw_moments *moments, size_t n, double *mean, double *deviation);

#endif
