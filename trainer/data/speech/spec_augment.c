#include "spec_augment.h"

#include <string.h>
#include <thinwire/thinwire_plugin.h>

static const uint64_t augment_stream = (uint64_t)0x5341 << 32; /* of the generator; the low half is the epoch */

typedef struct mask {
    size_t first, length;
} mask;

static size_t below(uint32_t word, size_t bound)
{
    return (size_t)((uint64_t)word * bound >> 32);
}

/* The utterance's masks stand one behind the other in the generator's counter. */
static mask spec_augment_draw(uint64_t seed, uint64_t epoch, uint32_t utterance, int index, size_t longest, size_t size)
{
    uint32_t words[4];
    tw_random(seed, augment_stream + epoch, (uint64_t)utterance << 16 | (uint32_t)index, words);
    if (longest > size) longest = size;
    size_t length = below(words[0], longest + 1);
    return (mask){below(words[1], size - length + 1), length};
}

static void mask_band(const feature_settings *settings, mask band, float *rows, size_t count)
{
    size_t bins = (size_t)settings->bins, groups = count * feature_width(settings) / bins;
    for (size_t i = 0; i < groups; i++) memset(rows + i * bins + band.first, 0, band.length * sizeof *rows);
}

void spec_augment(const spec_augmentation *augment, const feature_settings *settings, uint64_t seed, uint64_t epoch,
                  uint32_t utterance, float *rows, size_t count)
{
    size_t width = feature_width(settings), longest = (size_t)(augment->most_of_it * (double)count);
    int index = 0;
    if (longest > (size_t)augment->longest_span) longest = (size_t)augment->longest_span;
    for (int i = 0; i < augment->frequency_masks; i++) {
        mask band =
            spec_augment_draw(seed, epoch, utterance, index++, (size_t)augment->widest_band, (size_t)settings->bins);
        mask_band(settings, band, rows, count);
    }
    for (int i = 0; i < augment->time_masks; i++) {
        mask span = spec_augment_draw(seed, epoch, utterance, index++, longest, count);
        memset(rows + span.first * width, 0, span.length * width * sizeof *rows);
    }
}
