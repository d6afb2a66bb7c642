#include "tempo.h"

#include <math.h>
#include <thinwire/thinwire_plugin.h>

static const uint64_t tempo_stream = (uint64_t)0x5445 << 32; /* of the generator; the low half is the epoch */

size_t tempo_frames(double most, uint64_t seed, uint64_t epoch, uint32_t utterance, size_t frames)
{
    uint32_t words[4];
    tw_random(seed, tempo_stream + epoch, utterance, words);
    double change = most * (2 * ((double)words[0] + 0.5) / 0x1p32 - 1);
    return (size_t)fmax(1, round((double)frames * (1 + change)));
}

void tempo_change(const float *rows, size_t frames, size_t width, float *dst, size_t count)
{
    double pace = count > 1 ? (double)(frames - 1) / (double)(count - 1) : 0;
    for (size_t t = 0; t < count; t++, dst += width) {
        double place = (double)t * pace;
        size_t before = (size_t)place, after = before + 1 < frames ? before + 1 : before;
        float share = (float)(place - (double)before);
        const float *a = rows + before * width, *b = rows + after * width;
        for (size_t i = 0; i < width; i++) dst[i] = a[i] + share * (b[i] - a[i]);
    }
}
