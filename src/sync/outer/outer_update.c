/* The arithmetic of a round. Each array streams through memory once: what is done to an element is done at once, by the
 * kernels. */
#include "outer.h"

#include "kernels.h"

enum { BLOCK = 2048 /* elements whose sums stay in fp32, and which stay in the cache */ };

static size_t block_at(size_t i, size_t count)
{
    return count - i < BLOCK ? count - i : BLOCK;
}

/* ---- digests ----------------------------------------------------------------------------------------------------- */

static uint32_t digest_word(const tw_digest *digest)
{
    return tw_crc32c(0, digest, sizeof *digest);
}

static uint32_t digest_of(const float *values, size_t count)
{
    tw_digest digest = {{0}, {0}};
    tw_kernels_best()->descent->digest(&digest, values, count);
    return digest_word(&digest);
}

void tw_outer_digest(const tw_outer *outer)
{
    for (size_t i = 0; i < outer->count; i++) {
        size_t place = outer->places[i], count = outer->places[i + 1] - place;
        outer->digests[2 * i] = digest_of(outer->theta + place, count);
        outer->digests[2 * i + 1] = digest_of(outer->v + place, count);
    }
}

/* ---- an outer step ----------------------------------------------------------------------------------------------- */

static double take_sum(float sums[16])
{
    double sum = 0;
    for (size_t lane = 0; lane < 16; lane++) {
        sum += (double)sums[lane];
        sums[lane] = 0;
    }
    return sum;
}

static void mix(float mixing, const float *theta, size_t count, float *weights)
{
    for (size_t i = 0; i < count; i++) weights[i] = mixing * weights[i] + (1.0F - mixing) * theta[i];
}

void tw_outer_descend(const tw_outer_options *options, const float *mean, size_t count, const tw_outer_arrays *at,
                      uint32_t digests[2], tw_outer_sums *sums)
{
    const tw_kernels *kernels = tw_kernels_best();
    const int copies = at->mixing == 0;
    tw_descent descent = {.rate = (float)options->rate,
                          .momentum = (float)options->momentum,
                          .nesterov = options->nesterov,
                          .past_cache = count >= TW_PAST_CACHE};
    for (size_t i = 0; i < count; i += BLOCK) {
        float *theta = at->theta + i, *weights = at->weights + i;
        const size_t n = block_at(i, count);
        kernels->descent->descend(&descent, mean + i, at->v + i, theta, copies ? weights : NULL, n);
        if (!copies) mix(at->mixing, theta, n, weights);
        sums->mean += take_sum(descent.mean);
        sums->momentum += take_sum(descent.before);
        sums->both += take_sum(descent.both);
    }
    if (descent.past_cache) kernels->drain();
    digests[0] = digest_word(&descent.theta);
    digests[1] = digest_word(&descent.v);
}

void tw_outer_go_on(const tw_outer_options *options, int parts, const float *part, const float *theta, size_t count,
                    const float *own_v, float *began)
{
    const float rate = (float)(options->rate / parts), momentum = (float)options->momentum;
    for (size_t i = 0; i < count; i++) {
        const float v = momentum * own_v[i] + part[i];
        began[i] = theta[i] - rate * (options->nesterov ? part[i] + momentum * v : v);
    }
}

void tw_outer_count_own(const tw_outer_options *options, const float *part, size_t count, float *own_v)
{
    const float momentum = (float)options->momentum;
    for (size_t i = 0; i < count; i++) own_v[i] = momentum * own_v[i] + (part ? part[i] : 0);
}

/* ---- what local steps did ---------------------------------------------------------------------------------------- */

int tw_outer_subtract(const float *began, const float *weights, const float *own_part, size_t count, float most,
                      float *delta)
{
    const tw_kernels *kernels = tw_kernels_best();
    int near = 1;
    if (!own_part) return !kernels->averaging->difference(delta, began, weights, count, most, count >= TW_PAST_CACHE);
    for (size_t i = 0; i < count; i += BLOCK) {
        const size_t n = block_at(i, count);
        kernels->averaging->difference(delta + i, began + i, weights + i, n, most, 0);
        kernels->add(delta + i, own_part + i, n);
        near &= kernels->all_below(delta + i, n, most);
    }
    return !near;
}
