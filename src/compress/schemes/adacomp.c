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
#include "error.h"
#include "kernels.h"
#include "memory.h"
#include "sound.h"
#include "sparse.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CONVOLUTION_DIMS = 4, CONVOLUTION_BIN = 50, OTHER_BIN = 500, RUN = 1024, LEAST_ROOM = 16 };

typedef struct adacomp {
    tw_sparse sparse;
    int64_t bin;
    double most_density, link;
    int indices;
    uint32_t *index; /* the candidates of the tensor under way */
    float *value;
} adacomp;

static const tw_option options[] = {
    {"bin", TW_OPTION_INTEGER, offsetof(adacomp, bin), "0", 0, TW_RISING_MOST, NULL,
     "elements of a bin; 0: 50 in tensors of 4 dimensions (convolutions), 500 in others"},
    {"most_density", TW_OPTION_REAL, offsetof(adacomp, most_density), "0.05", 1e-7, 1, NULL,
     "fraction of each tensor that is sent at most"},
    TW_OPTIONS_INDICES(adacomp),
};

static size_t bin_of(const adacomp *self, size_t tensor)
{
    if (self->bin) return (size_t)self->bin;
    return self->sparse.scheme.tensors[tensor].dims == CONVOLUTION_DIMS ? CONVOLUTION_BIN : OTHER_BIN;
}

/* ---- at most so many --------------------------------------------------------------------------------------------- */

/* Keeps the largest of `count` candidates, as many as there is room to send. Returns how many. */
static size_t adacomp_prune(adacomp *self, tw_support *support, size_t count)
{
    tw_select_source candidates = tw_select_from(self->value);
    if (count <= support->most) return count;
    size_t kept =
        tw_select_top(&self->sparse.selector, &candidates, count, support->most, support->index, support->value);
    for (size_t j = 0; j < kept; j++) self->index[j] = self->index[support->index[j]]; /* never one before j */
    memcpy(self->value, support->value, kept * sizeof *self->value);
    return kept;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Updates the residual and collects what its bins select; adds the bins' maxima to *largest. Each run is looked at, up
 * to the end of its last group, taken in and cleared while it is in the cache. Pruning once the most has been exceeded
 * by as much again costs little a candidate. */
static size_t adacomp_collect(adacomp *self, size_t tensor, double *largest)
{
    tw_scheme *scheme = &self->sparse.scheme;
    tw_support *support = &self->sparse.support[tensor];
    float *residual = tw_sparse_residual(&self->sparse, tensor);
    float *gradient = scheme->gradients[tensor];
    size_t n = scheme->tensors[tensor].count, bin = bin_of(self, tensor), looked = 0, count = 0;
    size_t run = bin < RUN ? RUN / bin * bin : bin;
    for (size_t first = 0; first < n; first += run) {
        size_t length = n - first < run ? n - first : run;
        looked = tw_sound_silence(scheme, gradient, n, looked, first + length);
        count += tw_kernels_best()->chunks->accumulate_rising(residual + first, gradient + first, length, scheme->scale,
                                                              bin, (uint32_t)first, self->index + count,
                                                              self->value + count, largest);
        memset(gradient + first, 0, length * sizeof *gradient);
        if (count > 2 * support->most) count = adacomp_prune(self, support, count);
    }
    return adacomp_prune(self, support, count);
}

static void adacomp_take(tw_sparse *sparse, size_t tensor)
{
    adacomp *self = (adacomp *)sparse;
    tw_support *support = &sparse->support[tensor];
    size_t bin = bin_of(self, tensor), bins = (sparse->scheme.tensors[tensor].count + bin - 1) / bin;
    double largest = 0;
    support->count = adacomp_collect(self, tensor, &largest);
    float scale = (float)(largest / (double)bins);
    memcpy(support->index, self->index, support->count * sizeof *support->index);
    for (size_t j = 0; j < support->count; j++) support->value[j] = copysignf(scale, self->value[j]);
    tw_sparse_send(sparse, tensor);
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
    size_t most = 0;
    tw_sparse_settings settings = {.density = expected_density(self),
                                   .most_density = self->most_density,
                                   .least = LEAST_ROOM,
                                   .feedback = 1,
                                   .coding = {TW_VALUES_SIGN, (tw_index_choice)self->indices, self->link},
                                   .take = adacomp_take};
    TW_TRY(tw_sparse_create(scheme, &settings));
    for (size_t i = 0; i < scheme->count; i++)
        if (self->sparse.support[i].most > most) most = self->sparse.support[i].most;
    TW_TRY(tw_allocate(2 * most + TW_RISING_MOST, sizeof *self->index, &self->index)); /* no run is longer */
    return tw_allocate(2 * most + TW_RISING_MOST, sizeof *self->value, &self->value);
}

static void adacomp_destroy(tw_scheme *scheme)
{
    adacomp *self = (adacomp *)scheme;
    tw_free(self->index);
    tw_free(self->value);
    tw_sparse_destroy(scheme);
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
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .create = adacomp_create,
    .next = tw_sparse_next,
    .revert = tw_sparse_revert,
    .walk = tw_sparse_walk,
    .plan = adacomp_plan,
    .destroy = adacomp_destroy,
};
