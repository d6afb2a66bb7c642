/* levels.h - what the files of this folder share: one fill function a level, and the pieces every level repeats. */
#ifndef TW_KERNELS_LEVELS_H
#define TW_KERNELS_LEVELS_H

#include "kernels.h"

/* What happens to v before it is looked at. A level writes its step once, over this; because the functions below it are
 * inlined with a constant, each row still gets a loop of its own without the test. */
typedef enum tw_update { TW_AS_IS, TW_ACCUMULATE, TW_MOMENTUM, TW_NESTEROV } tw_update;

#define TW_INLINE static inline __attribute__((always_inline))

/* The reference. The other levels hand it the elements left over after their last whole vector. */
extern const tw_kernels tw_kernels_scalar;

/* Ends sum_squares: adds the squares of x to the sixteen partial sums, x[0] to the first, and folds them. */
double tw_finish_squares(double partial[16], const float *x, size_t n);

/* Lists, one by one, the elements of a block whose bit in `hits` is 1; block[0] has the number `first`. */
TW_INLINE size_t tw_append_each(uint64_t hits, const float *block, uint32_t first, uint32_t *index, float *value)
{
    size_t count = 0;
    for (; hits; hits &= hits - 1) {
        uint32_t lane = (uint32_t)__builtin_ctzll(hits);
        index[count] = first + lane;
        value[count++] = block[lane];
    }
    return count;
}

/* Overwrites the rows this level has. */
void tw_kernels_fill_neon(tw_kernels *table);
void tw_kernels_fill_avx2(tw_kernels *table);
void tw_kernels_fill_avx512(tw_kernels *table);

#endif
