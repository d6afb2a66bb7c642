/* Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC 2011). The key is the
 * seed; the counter is (counter, stream). */
#include <thinwire/thinwire_plugin.h>

static void philox_round(uint32_t x[4], const uint32_t key[2])
{
    uint64_t a = (uint64_t)0xD2511F53u * x[0];
    uint64_t b = (uint64_t)0xCD9E8D57u * x[2];
    uint32_t y0 = (uint32_t)(b >> 32) ^ x[1] ^ key[0];
    uint32_t y2 = (uint32_t)(a >> 32) ^ x[3] ^ key[1];
    x[0] = y0;
    x[1] = (uint32_t)b;
    x[2] = y2;
    x[3] = (uint32_t)a;
}

void tw_random(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t words[4])
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t x[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
    for (int round = 0; round < 10; round++) {
        philox_round(x, key);
        key[0] += 0x9E3779B9u; /* the golden ratio and sqrt(3) - 1: Weyl sequences for the key */
        key[1] += 0xBB67AE85u;
    }
    for (int i = 0; words && i < 4; i++) words[i] = x[i];
}
