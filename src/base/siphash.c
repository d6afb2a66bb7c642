#include "siphash.h"

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void mix(uint64_t v[4], int rounds)
{
    for (; rounds > 0; rounds--) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32) + v[3];
        v[2] += v[1];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

static void siphash_absorb(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    mix(v, 2);
    v[0] ^= word;
}

/* Up to eight bytes, the first the lowest, on a machine of either order. */
static uint64_t read_word(const unsigned char *src, size_t bytes)
{
    uint64_t word = 0;
    for (size_t i = 0; i < bytes; i++) word |= (uint64_t)src[i] << 8 * i;
    return word;
}

uint64_t tw_siphash(const uint64_t key[2], const void *data, size_t size)
{
    uint64_t v[4] = {key[0] ^ 0x736F6D6570736575u, key[1] ^ 0x646F72616E646F6Du, key[0] ^ 0x6C7967656E657261u,
                     key[1] ^ 0x7465646279746573u}; /* "somepseudorandomlygeneratedbytes" */
    const unsigned char *at = data;
    size_t left = size;
    for (; left >= 8; left -= 8, at += 8) siphash_absorb(v, read_word(at, 8));
    siphash_absorb(v, (uint64_t)size << 56 | read_word(at, left));
    v[2] ^= 0xFF;
    mix(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
