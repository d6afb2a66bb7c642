/* Which table is whose. The linker fills them, so that of a level's code nothing runs before the processor was asked.
 */
#include "levels.h"

const tw_kernels *const tw_kernels_tables[TW_ISA_LEVELS] = {
    [TW_ISA_SCALAR] = &tw_kernels_scalar,
#if defined(TW_KERNELS_X86)
    [TW_ISA_AVX2] = &tw_kernels_avx2,
    [TW_ISA_AVX512] = &tw_kernels_avx512,
#elif defined(TW_KERNELS_ARM64)
    [TW_ISA_NEON] = &tw_kernels_neon,
#endif
};

const tw_kernels *tw_kernels_at(tw_isa_level level)
{
    return tw_isa_supported(level) ? tw_kernels_tables[level] : NULL;
}

const tw_kernels *tw_kernels_best(void)
{
    const tw_kernels *table = tw_kernels_at(tw_isa_best());
    return table ? table : &tw_kernels_scalar;
}
