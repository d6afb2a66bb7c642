/* descent.h - an outer step of local updates, and a digest of what it makes. A part of the table in kernels.h; its
 * rules hold. */
#ifndef TW_KERNELS_DESCENT_H
#define TW_KERNELS_DESCENT_H

#include <stddef.h>
#include <stdint.h>

/* Fletcher's sums of the bits, modulo 2^32, of the elements with the same i mod 4: one word that differs changes the
 * first, and two that make up for each other there the second. Sums carry upwards alone: of signs or exponents that
 * differ in many places nothing would be left, unless the upper half of a word went into its lower one, too. A
 * processor adds faster than it makes a better checksum. Starts as zeros. What is behind the end counts as 0. */
typedef struct tw_digest {
    uint32_t first[4], second[4];
} tw_digest;

/* A descent under way, of an array that may come in pieces, all but the last a multiple of 16 long. */
typedef struct tw_descent {
    float rate, momentum;
    int nesterov;
    int past_cache; /* for speed alone: the weights are larger than a cache, and are written past it */
    /* Sums over i mod 16, which start as zeros: of d * d, of the v before, squared, and of the one by the other. */
    float mean[16], before[16], both[16];
    tw_digest theta, v; /* as they are afterwards */
} tw_descent;

typedef struct tw_descent_rows {
    /* v = momentum * v + d, and theta -= rate * v, or with nesterov rate * (d + momentum * v); then weights = theta,
     * unless that is NULL. */
    void (*descend)(tw_descent *descent, const float *d, float *v, float *theta, float *weights, size_t n);
    /* Adds n elements. */
    void (*digest)(tw_digest *digest, const float *x, size_t n);
} tw_descent_rows;

/* The reference. */
extern const tw_descent_rows tw_descent_scalar;

#endif
