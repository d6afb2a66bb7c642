/* fuzz.h - what libFuzzer, or replay.c in its place, calls. */
#ifndef TW_FUZZ_FUZZ_H
#define TW_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the program, which is how a fuzzer learns of a fault. */
static inline void must(int condition)
{
    if (!condition) abort();
}

#endif
