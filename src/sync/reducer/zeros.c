#include "zeros.h"

#include <stdint.h>
#include <string.h>

enum { BLOCK = 64 }; /* values, as a word has bits */

typedef struct block {
    uint32_t bits[BLOCK];
} block;

static uint64_t mask_of(const block *values)
{
    uint32_t any = 0;
    uint64_t mask = 0;
    for (int i = 0; i < BLOCK; i++) any |= values->bits[i];
    if (!any) return 0; /* nearly always, and found in a few instructions */
    for (int i = 0; i < BLOCK; i++) mask |= (uint64_t)(values->bits[i] != 0) << i;
    return mask;
}

static size_t zeros_length_of(size_t start, size_t count)
{
    return count - start < BLOCK ? count - start : BLOCK;
}

size_t tw_zeros_pack(const float *values, size_t count, unsigned char *dst, size_t capacity)
{
    size_t written = 0;
    for (size_t start = 0; start < count; start += BLOCK) {
        block one = {{0}};
        memcpy(&one, values + start, zeros_length_of(start, count) * sizeof *values);
        uint64_t mask = mask_of(&one);
        if (capacity - written < sizeof mask + sizeof one) return 0;
        memcpy(dst + written, &mask, sizeof mask);
        written += sizeof mask;
        for (; mask; mask &= mask - 1, written += sizeof *one.bits)
            memcpy(dst + written, &one.bits[__builtin_ctzll(mask)], sizeof *one.bits);
    }
    return written;
}

/* Returns the bytes that a block's values took; *sound becomes 0 where they do not fit. */
static size_t unpack_block(const unsigned char *src, size_t size, uint64_t mask, float *values, size_t length,
                           int *sound)
{
    size_t bytes = (size_t)__builtin_popcountll(mask) * sizeof *values, read = 0;
    *sound &= bytes <= size && (length == BLOCK || !(mask >> length));
    memset(values, 0, length * sizeof *values);
    for (; *sound && mask; mask &= mask - 1, read += sizeof *values)
        memcpy(values + __builtin_ctzll(mask), src + read, sizeof *values);
    return bytes;
}

int tw_zeros_unpack(const unsigned char *src, size_t size, float *values, size_t count)
{
    size_t read = 0;
    int sound = 1;
    for (size_t start = 0; sound && start < count; start += BLOCK) {
        uint64_t mask = 0;
        if (size - read < sizeof mask) return 0;
        memcpy(&mask, src + read, sizeof mask);
        read += sizeof mask;
        read += unpack_block(src + read, size - read, mask, values + start, zeros_length_of(start, count), &sound);
    }
    return sound && read == size;
}
