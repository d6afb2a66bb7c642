#include "cpu.h"

#include "error.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

static const char *const names[TW_ISA_LEVELS] = {"scalar", "neon", "avx2", "avx512"};

const char *tw_isa_name(tw_isa_level level)
{
    return names[level];
}

#if defined(__x86_64__)
/* By hand: clang's __builtin_cpu_supports has no name for it. */
static int has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}
#endif

/* Asked once: a hypervisor traps cpuid, which then costs microseconds, and the environment may be written to later. */
static int supported[TW_ISA_LEVELS];
static tw_isa_level most; /* the last that is supported */
static char all[32];      /* their names, with a space between */
static int wish = -1;     /* the level THINWIRE_ISA names; -1 when it is unset, TW_ISA_LEVELS when it names none */
static char wish_name[32];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void detect(void)
{
    supported[TW_ISA_SCALAR] = 1;
#if defined(__aarch64__)
    supported[TW_ISA_NEON] = 1; /* every such processor has it */
#elif defined(__x86_64__)
    /* What the compilers' -mavx2 and -mf16c let them use. The answers for AVX include whether the system keeps the wide
     * registers of a thread. */
    __builtin_cpu_init();
    supported[TW_ISA_AVX2] = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") && has_f16c();
    supported[TW_ISA_AVX512] = supported[TW_ISA_AVX2] && __builtin_cpu_supports("avx512f") &&
                               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                               __builtin_cpu_supports("avx512bw");
#endif
    for (int level = 0; level < TW_ISA_LEVELS; level++) {
        if (!supported[level]) continue;
        most = (tw_isa_level)level;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", *all ? " " : "", names[level]);
    }
}

static void cpu_ask(void)
{
    const char *name = getenv("THINWIRE_ISA");
    detect();
    if (!name || !*name) return;
    snprintf(wish_name, sizeof wish_name, "%s", name);
    for (wish = 0; wish < TW_ISA_LEVELS && strcmp(name, names[wish]) != 0;) wish++;
}

int tw_isa_supported(tw_isa_level level)
{
    pthread_once(&once, cpu_ask);
    return supported[level];
}

/* Is the wish a level that can be had? */
static int wish_is_supported(void)
{
    return wish >= 0 && wish < TW_ISA_LEVELS && supported[wish];
}

tw_isa_level tw_isa_best(void)
{
    pthread_once(&once, cpu_ask);
    return wish_is_supported() ? (tw_isa_level)wish : most;
}

tw_status tw_isa_check(void)
{
    pthread_once(&once, cpu_ask);
    if (wish < 0 || wish_is_supported()) return TW_OK;
    return tw_fail(TW_ERROR_UNSUPPORTED, "THINWIRE_ISA=%s: %s; this processor's best is \"%s\"", wish_name,
                   wish == TW_ISA_LEVELS ? "no such level (scalar, neon, avx2, avx512)" : "not supported here",
                   names[most]);
}

int tw_cpu_has_crc32(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") != 0;
#elif defined(__aarch64__)
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#else
    return 0;
#endif
}

const char *tw_isa(void)
{
    return tw_isa_name(tw_isa_best());
}

const char *tw_isa_levels(void)
{
    pthread_once(&once, cpu_ask);
    return all;
}
