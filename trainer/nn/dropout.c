/* dropout.c - a random key for each call, and a hash of key and place for each value. */
#include "dropout.h"

#include "wide.h"

#include <thinwire/thinwire_plugin.h>

/* Far from the streams, counted from 0, that initial values and batches are drawn from. The first 256 places have the
 * streams that they had when there were no more. */
static uint64_t stream_of(const nn_noise *noise, size_t place)
{
    return (uint64_t)1 << 63 | (uint64_t)(place >> 8) << 56 | noise->step << 8 | (place & 255);
}

/* Two multiplications (the constants of Wellons' lowbias32) with a word of the key before each: as good as a mask
 * needs, and as fast as a vector unit allows, which a generator of blocks is not. */
static inline uint32_t hash(uint32_t x, const uint32_t key[2])
{
    x = x * 0x9e3779b9u + key[0];
    x = (x ^ x >> 16) * 0x7feb352du;
    x += key[1];
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

NN_WIDE static void drop(uint32_t first, uint32_t second, uint32_t threshold, float scale, float *values, size_t count)
{
    const uint32_t key[2] = {first, second};
    for (size_t i = 0; i < count; i++) values[i] *= hash((uint32_t)i, key) < threshold ? scale : 0.0f;
}

void nn_dropout(const nn_noise *noise, size_t place, float keep, float *values, size_t count)
{
    uint32_t words[4];
    if (keep >= 1.0f) return;
    tw_random(noise->seed, stream_of(noise, place), 0, words);
    drop(words[0], words[1], (uint32_t)((double)keep * 0x1p32), 1.0f / keep, values, count);
}
