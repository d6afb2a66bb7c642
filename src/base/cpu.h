/* cpu.h - what this processor can do; cpuid is asked here and nowhere else. */
#ifndef TW_BASE_CPU_H
#define TW_BASE_CPU_H

#include <thinwire/thinwire.h>

/* Levels of the kernels, lowest first; each includes the ones before it. */
typedef enum tw_isa_level { TW_ISA_SCALAR = 0, TW_ISA_AVX2 = 1, TW_ISA_AVX512 = 2, TW_ISA_LEVELS = 3 } tw_isa_level;

/* The highest level of this processor, whatever the environment says. */
tw_isa_level tw_isa_supported(void);
/* The level to use: tw_isa_supported(), or the one THINWIRE_ISA names (an unknown or unsupported name is ignored here
 * and refused by tw_isa_check). The environment is read once. */
tw_isa_level tw_isa_best(void);
const char *tw_isa_name(tw_isa_level level);
/* TW_ERROR_UNSUPPORTED when THINWIRE_ISA names a level this processor lacks, or none at all. */
tw_status tw_isa_check(void);
/* 1 if the processor has the crc32 instruction (SSE4.2). */
int tw_cpu_has_crc32(void);

#endif
