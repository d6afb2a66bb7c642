#include "decode.h"

static uint32_t decode_largest(const float *values, size_t count)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        if (values[i] > values[best]) best = i;
    return (uint32_t)best;
}

size_t decode_greedy(const utterance *u, uint32_t *dst)
{
    size_t count = 0;
    uint32_t last = CTC_BLANK;
    for (size_t t = 0; t < u->frames; t++) {
        uint32_t label = decode_largest(u->values + t * u->stride, u->labels);
        if (label != CTC_BLANK && label != last) dst[count++] = label;
        last = label;
    }
    return count;
}
