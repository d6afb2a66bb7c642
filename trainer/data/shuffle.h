/* shuffle.h - the order of an epoch. Every draw has a place of its own in a counter-based generator, so no draw depends
 * on another, nor on which worker makes it. */
#ifndef TRAINER_SHUFFLE_H
#define TRAINER_SHUFFLE_H

#include <stddef.h>
#include <stdint.h>

/* The order of one epoch: a permutation of 0 .. count-1 that depends on (seed, epoch) alone, into order[0 .. count). */
void data_shuffle(uint32_t *order, size_t count, uint64_t seed, uint64_t epoch);

/* A 64-bit fraction, in two random words, times the bound: what remains of bias is below bound / 2^64. */
static inline uint32_t data_scale(uint32_t high, uint32_t low, uint32_t bound)
{
    return (uint32_t)(((uint64_t)high * bound + ((uint64_t)low * bound >> 32)) >> 32);
}

#endif
