#include "shuffle.h"

#include <thinwire/thinwire_plugin.h>

/* The streams of the generator, one an epoch: the high half says what for. */
static const uint64_t shuffle_stream = (uint64_t)0x5348 << 32;

/* Fisher and Yates, from the last place to the first. */
void data_shuffle(uint32_t *order, size_t count, uint64_t seed, uint64_t epoch)
{
    for (size_t i = 0; i < count; i++) order[i] = (uint32_t)i;
    for (size_t i = count; i > 1; i--) {
        uint32_t words[4];
        tw_random(seed, shuffle_stream + epoch, i, words);
        uint32_t other = data_scale(words[0], words[1], (uint32_t)i);
        uint32_t moved = order[i - 1];
        order[i - 1] = order[other];
        order[other] = moved;
    }
}
