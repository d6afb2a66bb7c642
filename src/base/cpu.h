/* cpu.h - what this processor can do; it, or the system on its behalf, is asked here and nowhere else. */
#ifndef TW_BASE_CPU_H
#define TW_BASE_CPU_H

#include <thinwire/thinwire.h>

/* Levels of the kernels; of those a processor has, the last is the fastest. */
typedef enum tw_isa_level { TW_ISA_SCALAR, TW_ISA_NEON, TW_ISA_AVX2, TW_ISA_AVX512, TW_ISA_LEVELS } tw_isa_level;

/* 1 if this processor has the level, whatever the environment says. */
int tw_isa_supported(tw_isa_level level);
/* The level to use: the last that is supported, or the one THINWIRE_ISA names (an unknown or unsupported name is
 * ignored here and refused by tw_isa_check). The environment is read once. */
tw_isa_level tw_isa_best(void);
const char *tw_isa_name(tw_isa_level level);
/* TW_ERROR_UNSUPPORTED when THINWIRE_ISA names a level this processor lacks, or none at all. */
tw_status tw_isa_check(void);
/* 1 if the processor has instructions for CRC-32C (x86: SSE4.2; ARM: the CRC32 extension). */
int tw_cpu_has_crc32(void);

#endif
