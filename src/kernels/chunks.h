/* chunks.h - the largest of each chunk, what follows from it (ScaleCom, AdaComp), and the way back. A part of the table
 * in kernels.h; its rules hold. An array is cut into chunks of `chunk` elements (at least 1); the last may be shorter.
 */
#ifndef TW_KERNELS_CHUNKS_H
#define TW_KERNELS_CHUNKS_H

#include <stddef.h>
#include <stdint.h>

enum { TW_RISING_MOST = 4096 }; /* elements of a chunk of accumulate_rising, at most */

typedef struct tw_chunks_rows {
    /* v += a*g; then position gets, for each chunk, where in it |v + b*g| is largest: the first of equals, 0 if all
     * are zero or NaN. Returns the largest of all chunks. */
    float (*accumulate_top)(float *v, const float *g, size_t n, float a, float b, size_t chunk, uint32_t *position);
    /* v += a*g. Lists every i, in ascending order, whose |v[i] + a*g[i]| (the new v) is not below the largest |v| of
     * its chunk, unless v[i] is zero: index gets first + i and value gets v[i]; both have room for n. Adds each chunk's
     * largest |v|, in order, to *largest. Returns how many it listed. `chunk` is at most TW_RISING_MOST. */
    size_t (*accumulate_rising)(float *v, const float *g, size_t n, float a, size_t chunk, uint32_t first,
                                uint32_t *index, float *value, double *largest);
    /* dst[begin .. end) becomes zeros, but each dst[index[j]] value[j]; the n indices ascend, begin <= index[j] < end.
     * It is written past the cache where the level can, which is for arrays that are larger. */
    void (*spread)(float *dst, size_t begin, size_t end, const uint32_t *index, const float *value, size_t n);
} tw_chunks_rows;

/* The reference. */
extern const tw_chunks_rows tw_chunks_scalar;

#endif
