/* One table a level, filled once: the reference's rows, then what each level up to it overwrites. */
#include "levels.h"

#include <pthread.h>

static tw_kernels tables[TW_ISA_LEVELS];
static tw_isa_level highest;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill_tables(void)
{
    tables[TW_ISA_SCALAR] = tw_kernels_scalar;
#if defined(TW_KERNELS_X86)
    highest = tw_isa_supported();
    tables[TW_ISA_AVX2] = tables[TW_ISA_SCALAR];
    tw_kernels_fill_avx2(&tables[TW_ISA_AVX2]);
    tables[TW_ISA_AVX512] = tables[TW_ISA_AVX2];
    tw_kernels_fill_avx512(&tables[TW_ISA_AVX512]);
#endif
}

const tw_kernels *tw_kernels_at(tw_isa_level level)
{
    pthread_once(&once, fill_tables);
    return level <= highest ? &tables[level] : NULL;
}

const tw_kernels *tw_kernels_best(void)
{
    const tw_kernels *table = tw_kernels_at(tw_isa_best());
    return table ? table : &tw_kernels_scalar;
}
