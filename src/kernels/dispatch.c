/* One table a level, filled once: the rows of the level below, then what this level overwrites. */
#include "levels.h"

#include <pthread.h>

static tw_kernels tables[TW_ISA_LEVELS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill_tables(void)
{
    tables[TW_ISA_SCALAR] = tw_kernels_scalar;
    tables[TW_ISA_SCALAR].moments = tw_moments_scalar;
    tables[TW_ISA_SCALAR].chunks = tw_chunks_scalar;
    tables[TW_ISA_SCALAR].quantise = tw_quantise_scalar;
    tables[TW_ISA_SCALAR].lowrank = tw_lowrank_scalar;
    tables[TW_ISA_SCALAR].fp16 = tw_fp16_scalar;
    tables[TW_ISA_SCALAR].bf16 = tw_bf16_scalar;
#if defined(TW_KERNELS_X86)
    tables[TW_ISA_AVX2] = tables[TW_ISA_SCALAR];
    tw_kernels_fill_avx2(&tables[TW_ISA_AVX2]);
    tables[TW_ISA_AVX512] = tables[TW_ISA_AVX2];
    tw_kernels_fill_avx512(&tables[TW_ISA_AVX512]);
#elif defined(TW_KERNELS_ARM64)
    tables[TW_ISA_NEON] = tables[TW_ISA_SCALAR];
    tw_kernels_fill_neon(&tables[TW_ISA_NEON]);
#endif
}

const tw_kernels *tw_kernels_at(tw_isa_level level)
{
    pthread_once(&once, fill_tables);
    int is_built = tables[level].add != NULL;
    return tw_isa_supported(level) && is_built ? &tables[level] : NULL;
}

const tw_kernels *tw_kernels_best(void)
{
    const tw_kernels *table = tw_kernels_at(tw_isa_best());
    return table ? table : tw_kernels_at(TW_ISA_SCALAR);
}
