/* levels.h - what the files of this folder share: one table a level, and the pieces every level repeats.
 *
 * A level's file exports its table and nothing else. Its functions are compiled for instructions that this processor
 * may lack, so that none may run before cpu.h was asked: also none that would only fill a table. */
#ifndef TW_KERNELS_LEVELS_H
#define TW_KERNELS_LEVELS_H

#include "kernels.h"

/* What happens to v before it is looked at. A level writes its step once, over this; because the functions below it are
 * inlined with a constant, each row still gets a loop of its own without the test. */
typedef enum tw_update { TW_AS_IS, TW_ACCUMULATE, TW_MOMENTUM, TW_NESTEROV } tw_update;

#define TW_INLINE static inline __attribute__((always_inline))

/* The reference. The other levels hand it the elements left over after their last whole vector. */
extern const tw_kernels tw_kernels_scalar;
/* Those of this build; each may be looked at anywhere, and called where tw_isa_supported says so. */
extern const tw_kernels tw_kernels_neon, tw_kernels_avx2, tw_kernels_avx512;
/* By level; NULL for those that are not of this build. */
extern const tw_kernels *const tw_kernels_tables[TW_ISA_LEVELS];

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

/* Writes the floats of src, one after the other, to the elements of dst whose bit in `lanes` is set. */
TW_INLINE void tw_unpack_each(uint64_t lanes, const float *src, float *dst)
{
    for (; lanes; lanes &= lanes - 1) dst[__builtin_ctzll(lanes)] = *src++;
}

#endif
