/* adacomp - adaptive residual gradient compression (Chen, Choi, Brand, Agrawal, Zhang, Gopalakrishnan; AAAI 2018,
 * arXiv 1712.02679), from which ScaleCom descends.
 *
 * Per tensor, cut into bins, with g already scaled by 1/N:
 *     G = v + g;  H = G + g                   H doubles the newest gradient
 *     send sign(G) where |H| >= max |G|       the maximum is the bin's: few or many, as residual and gradient agree
 *     scale = mean of the bins' maxima        one magnitude a tensor
 *     v = G - sent                            the error feedback
 * Momentum stays with the optimiser.
 *
 * Our own: an element with G = 0 has no sign and is not sent (in a bin of zeros all of them would pass), and no more
 * than most_density of a tensor is sent, the largest |G| of those selected: packets have a bound. The bins' lengths are
 * the paper's as remembered, not read. */
#include "chunks.h"
#include "kernels.h"
#include "sound.h"
#include "sparse.h"

#include <math.h>
#include <stdio.h>

enum { CONVOLUTION_DIMS = 4, CONVOLUTION_BIN = 50, OTHER_BIN = 500, RUN = 1024, LEAST_ROOM = 16 };
_Static_assert((int)TW_RISING_MOST <= (int)TW_SELECT_ROOM, "no run is longer than a bin or RUN");

typedef struct adacomp {
    tw_sparse sparse;
    int64_t bin;
    double most_density;
} adacomp;

static const tw_option options[] = {
    {"bin", TW_OPTION_INTEGER, offsetof(adacomp, bin), "0", 0, TW_RISING_MOST, NULL,
     "elements of a bin; 0: 50 in tensors of 4 dimensions (convolutions), 500 in others"},
    {"most_density", TW_OPTION_REAL, offsetof(adacomp, most_density), "0.05", 1e-7, 1, NULL,
     "fraction of each tensor that is sent at most"},
    TW_OPTIONS_INDICES,
};

static size_t bin_of(const adacomp *self, size_t tensor)
{
    if (self->bin) return (size_t)self->bin;
    return self->sparse.scheme.tensors[tensor].dims == CONVOLUTION_DIMS ? CONVOLUTION_BIN : OTHER_BIN;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Takes elements of a residual, up to `end`, out that the step before sent. Returns how many are out. */
static size_t take_out(float *residual, const tw_support *sent, size_t out, size_t end)
{
    for (; out < sent->count && sent->index[out] < end; out++) residual[sent->index[out]] -= sent->value[out];
    return out;
}

/* Updates the residual and collects what its bins select, or the largest of it; returns the sum of the bins' maxima.
 * Each run is looked at, up to the end of its last group, and taken in while it is in the cache; so is taken out what
 * the step before sent of it, whose residual is then far away from any cache. */
static double adacomp_collect(adacomp *self, size_t tensor)
{
    tw_scheme *scheme = &self->sparse.scheme;
    tw_support *support = &self->sparse.support[tensor];
    tw_selector *selector = &self->sparse.selector;
    float *residual = tw_sparse_residual(&self->sparse, tensor);
    float *gradient = scheme->gradients[tensor];
    double largest = 0;
    size_t n = scheme->tensors[tensor].count, bin = bin_of(self, tensor), looked = 0;
    size_t out = support->open ? 0 : support->count;
    size_t run = bin < RUN ? RUN / bin * bin : bin;
    selector->count = 0;
    selector->wanted = support->most;
    for (size_t first = 0; first < n; first += run) {
        size_t length = n - first < run ? n - first : run;
        if (selector->capacity - selector->count < length) tw_select_prune(selector);
        looked = tw_sound_silence(scheme, gradient, n, looked, first + length);
        out = take_out(residual, support, out, first + length);
        selector->count += tw_kernels_best()->chunks->accumulate_rising(
            residual + first, gradient + first, length, scheme->scale, bin, (uint32_t)first,
            selector->index + selector->count, selector->value + selector->count, &largest);
    }
    support->count = tw_select_hand_over(selector, support->index, support->value);
    return largest;
}

static void adacomp_take(tw_sparse *sparse, size_t tensor)
{
    adacomp *self = (adacomp *)sparse;
    tw_support *support = &sparse->support[tensor];
    size_t bin = bin_of(self, tensor), bins = (sparse->scheme.tensors[tensor].count + bin - 1) / bin;
    float scale = (float)(adacomp_collect(self, tensor) / (double)bins);
    tw_values_round(&scale, 1, TW_VALUES_SIGN); /* as many of that magnitude are rounded */
    if (scale == 0) support->count = 0;
    for (size_t j = 0; j < support->count; j++) support->value[j] = copysignf(scale, support->value[j]);
    support->open = 1;
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

/* How many will be selected is not known before; two in a bin is about what training a small network settled at. */
static double expected_density(const adacomp *self)
{
    const tw_scheme *scheme = &self->sparse.scheme;
    double expected = 0, count = 0;
    for (size_t i = 0; i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        expected += 2 * (double)scheme->tensors[i].count / (double)bin_of(self, i);
        count += (double)scheme->tensors[i].count;
    }
    expected /= count;
    return expected < self->most_density ? expected : self->most_density;
}

static tw_status adacomp_create(tw_scheme *scheme)
{
    adacomp *self = (adacomp *)scheme;
    tw_sparse_settings settings = {
        .density = expected_density(self), .most_density = self->most_density, .spread = 1, .take = adacomp_take};
    self->sparse.min_sent = LEAST_ROOM;
    self->sparse.feedback = 1;
    self->sparse.values = TW_VALUES_SIGN;
    return tw_sparse_create(scheme, &settings);
}

static void adacomp_plan(const tw_scheme *scheme, size_t tensor, char *text, size_t capacity)
{
    const adacomp *self = (const adacomp *)scheme;
    snprintf(text, capacity, "adacomp: what stands out in bins of %zu, at most %zu of %zu elements%s",
             bin_of(self, tensor), self->sparse.support[tensor].most, scheme->tensors[tensor].count,
             tw_gather_road(&self->sparse.gather));
}

/* The residual is read and written, the gradient read. */
const tw_scheme_ops tw_scheme_adacomp = {
    .name = "adacomp",
    .one_pass = 1,
    .summary = "what stands out in each bin, as a sign and one magnitude; the rest kept for later",
    .floor_bytes = 12,
    .struct_size = sizeof(adacomp),
    TW_OPTIONS(options),
    .create = adacomp_create,
    .settle = tw_sparse_settle,
    .plan = adacomp_plan,
    TW_SPARSE_STEPS,
};
