/* bytes.h - numbers in little-endian order. */
#ifndef TW_COMM_SHARED_BYTES_H
#define TW_COMM_SHARED_BYTES_H

#include <stddef.h>
#include <stdint.h>

static inline void tw_put(unsigned char *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) at[i] = (unsigned char)(value >> 8 * i);
}

static inline uint64_t tw_get(const unsigned char *at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) value |= (uint64_t)at[i] << 8 * i;
    return value;
}

#endif
