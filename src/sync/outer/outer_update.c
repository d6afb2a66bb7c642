/* The arithmetic of a round. Blocks are small enough to stay in the first cache while several things are done to them,
 * so that each array streams through memory once. */
#include "outer.h"

#include <string.h>

enum { BLOCK = 2048, LANES = 16 };

static size_t block_at(size_t start, size_t count)
{
    return count - start < BLOCK ? count - start : BLOCK;
}

/* Sixteen sums in fp32 of a block, then one in fp64: the same bits whatever the compiler makes of it. */
static double product(const float *a, const float *b, size_t count)
{
    float lanes[LANES] = {0};
    double sum = 0;
    size_t whole = count - count % LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t j = 0; j < LANES; j++) lanes[j] += a[i + j] * b[i + j];
    for (size_t i = whole; i < count; i++) lanes[i - whole] += a[i] * b[i];
    for (size_t j = 0; j < LANES; j++) sum += lanes[j];
    return sum;
}

static void outer_update_descend(float rate, float momentum, int nesterov, const float *mean, size_t count, float *v,
                                 float *theta)
{
    for (size_t i = 0; i < count; i++) v[i] = momentum * v[i] + mean[i];
    if (nesterov)
        for (size_t i = 0; i < count; i++) theta[i] -= rate * (mean[i] + momentum * v[i]);
    else
        for (size_t i = 0; i < count; i++) theta[i] -= rate * v[i];
}

void tw_outer_descend(const tw_outer_options *options, const float *mean, size_t count, float *v, float *theta,
                      uint32_t digests[2], tw_outer_sums *sums)
{
    digests[0] = digests[1] = 0;
    for (size_t start = 0; start < count; start += BLOCK) {
        size_t block = block_at(start, count);
        const float *d = mean + start;
        float *velocity = v + start, *weights = theta + start;
        sums->mean += product(d, d, block);
        sums->momentum += product(velocity, velocity, block);
        sums->both += product(d, velocity, block);
        outer_update_descend((float)options->rate, (float)options->momentum, options->nesterov, d, block, velocity,
                             weights);
        digests[0] = tw_crc32c(digests[0], weights, block * sizeof *weights);
        digests[1] = tw_crc32c(digests[1], velocity, block * sizeof *velocity);
    }
}

void tw_outer_go_on(const tw_outer_options *options, int parts, const float *part, const float *theta, size_t count,
                    float *own_v, float *began)
{
    float rate = (float)(options->rate / parts);
    for (size_t start = 0; start < count; start += BLOCK) {
        size_t block = block_at(start, count);
        memcpy(began + start, theta + start, block * sizeof *began);
        outer_update_descend(rate, (float)options->momentum, options->nesterov, part + start, block, own_v + start,
                             began + start);
    }
}

void tw_outer_mix(float mixing, const float *theta, size_t count, float *weights)
{
    if (mixing == 0.0F)
        memcpy(weights, theta, count * sizeof *weights);
    else
        for (size_t i = 0; i < count; i++) weights[i] = mixing * weights[i] + (1.0F - mixing) * theta[i];
}

void tw_outer_digest(const tw_outer *outer)
{
    for (size_t i = 0; i < outer->count; i++) {
        size_t place = outer->places[i], bytes = (outer->places[i + 1] - place) * sizeof *outer->theta;
        outer->digests[2 * i] = tw_crc32c(0, outer->theta + place, bytes);
        outer->digests[2 * i + 1] = tw_crc32c(0, outer->v + place, bytes);
    }
}
