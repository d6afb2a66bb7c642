/* The arithmetic of a round. Each array streams through memory once: what is done to an element is done at once, four
 * by four, which every processor can. Sums and digests are lane by lane. */
#include "outer.h"

#include <math.h>
#include <string.h>

enum { LANES = 4, BLOCK = 2048 /* elements whose sums stay in fp32 */ };

/* Operators of vectors act lane by lane: an extension of gcc and clang. */
typedef float vector __attribute__((vector_size(4 * LANES)));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));

/* What is beyond `count` is 0. */
static inline vector load(const float *from, size_t count)
{
    vector x = {0};
    memcpy(&x, from, count * sizeof *from);
    return x;
}

static inline void store(vector x, size_t count, float *to)
{
    memcpy(to, &x, count * sizeof *to);
}

/* ---- digests ----------------------------------------------------------------------------------------------------- */

/* Fletcher's sums of the bits, modulo 2^32: one word that differs changes the first, and two that make up for each
 * other there the second. Sums carry upwards alone: of signs or exponents that differ in many places nothing would be
 * left, unless the upper half of a word went into its lower one, too. A processor adds faster than it makes a better
 * checksum. */
typedef struct digest {
    words first, second;
} digest;

static inline void take_in(digest *of, vector values)
{
    words bits = (words)values;
    of->first += bits ^ bits >> 16;
    of->second += of->first;
}

static uint32_t digest_word(const digest *of)
{
    return tw_crc32c(0, of, sizeof *of);
}

static uint32_t digest_of(const float *values, size_t count)
{
    digest of = {{0}, {0}};
    size_t whole = count - count % LANES;
    for (size_t i = 0; i < whole; i += LANES) take_in(&of, load(values + i, LANES));
    if (whole < count) take_in(&of, load(values + whole, count - whole));
    return digest_word(&of);
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

/* `nesterov` and `copies` are constants wherever these are called, so that no loop has a branch. */
typedef struct pace {
    float rate, momentum;
    int nesterov, copies;
} pace;

typedef struct tally {
    vector mean, momentum, both;
    digest theta, v;
} tally;

static inline void descend_few(pace by, const float *mean, const tw_outer_arrays *at, size_t i, size_t count, tally *of)
{
    vector d = load(mean + i, count), before = load(at->v + i, count), v = by.momentum * before + d;
    vector theta = load(at->theta + i, count) - by.rate * (by.nesterov ? d + by.momentum * v : v);
    of->mean += d * d;
    of->momentum += before * before;
    of->both += d * before;
    take_in(&of->theta, theta);
    take_in(&of->v, v);
    store(v, count, at->v + i);
    store(theta, count, at->theta + i);
    if (by.copies) store(theta, count, at->weights + i);
}

static void add_up(tally *of, tw_outer_sums *sums)
{
    for (size_t j = 0; j < LANES; j++) {
        sums->mean += (double)of->mean[j];
        sums->momentum += (double)of->momentum[j];
        sums->both += (double)of->both[j];
    }
    of->mean = of->momentum = of->both = (vector){0};
}

static inline tally descend_all(pace by, const float *mean, size_t count, const tw_outer_arrays *at,
                                tw_outer_sums *sums)
{
    tally of = {0};
    size_t whole = count - count % LANES;
    for (size_t i = 0; i < whole; i += LANES) {
        if (i % BLOCK == 0) add_up(&of, sums);
        descend_few(by, mean, at, i, LANES, &of);
    }
    if (whole < count) descend_few(by, mean, at, whole, count - whole, &of);
    add_up(&of, sums);
    return of;
}

static void mix(float mixing, const float *theta, size_t count, float *weights)
{
    for (size_t i = 0; i < count; i++) weights[i] = mixing * weights[i] + (1.0F - mixing) * theta[i];
}

void tw_outer_descend(const tw_outer_options *options, const float *mean, size_t count, const tw_outer_arrays *arrays,
                      uint32_t digests[2], tw_outer_sums *sums)
{
    const float rate = (float)options->rate, momentum = (float)options->momentum;
    const int copies = arrays->mixing == 0;
    tally of;
    if (options->nesterov && copies)
        of = descend_all((pace){rate, momentum, 1, 1}, mean, count, arrays, sums);
    else if (options->nesterov)
        of = descend_all((pace){rate, momentum, 1, 0}, mean, count, arrays, sums);
    else
        of = descend_all((pace){rate, momentum, 0, copies}, mean, count, arrays, sums);
    if (!copies) mix(arrays->mixing, arrays->theta, count, arrays->weights);
    digests[0] = digest_word(&of.theta);
    digests[1] = digest_word(&of.v);
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

static inline int subtract_all(const float *restrict began, const float *restrict weights,
                               const float *restrict own_part, size_t count, float most, float *restrict delta)
{
    int far = 0;
    for (size_t i = 0; i < count; i++) {
        float moved = began[i] - weights[i];
        delta[i] = own_part ? moved + own_part[i] : moved;
        far |= !(fabsf(delta[i]) <= most);
    }
    return far;
}

int tw_outer_subtract(const float *began, const float *weights, const float *own_part, size_t count, float most,
                      float *delta)
{
    return own_part ? subtract_all(began, weights, own_part, count, most, delta)
                    : subtract_all(began, weights, NULL, count, most, delta);
}
