/* threshold - fixed-threshold quantisation (Strom, Interspeech 2015: Scalable Distributed DNN Training Using Commodity
 * GPU Cloud Computing).
 *
 * Per tensor, with g already scaled by 1/N and t = tau/N:
 *     v += g
 *     send t * sign(v), v -= t * sign(v)     where |v| > t
 * One bit a value and its position: an element that has gathered more than 2t sends again in the next step. tau is in
 * units of the mean gradient, so that a given tau means the same for any number of ranks. How much is sent follows from
 * the gradients; should more than most_density of a tensor stand out, only the largest are sent, the others wait: that
 * bounds the packet. Momentum stays with the optimiser. */
#include "sparse.h"

#include <math.h>
#include <stdio.h>

typedef struct threshold {
    tw_scheme scheme;
    double tau, most_density;
    int indices;
    tw_sparse sparse;
} threshold;

static const tw_option options[] = {
    {"tau", TW_OPTION_REAL, offsetof(threshold, tau), "0.005", 1e-30, 1e30, NULL,
     "threshold, and what is sent of an element above it, in units of the mean gradient"},
    {"most_density", TW_OPTION_REAL, offsetof(threshold, most_density), "0.1", 1e-7, 1, NULL,
     "fraction of each tensor that is sent at most: the largest"},
    TW_OPTION_INDICES(threshold),
};

static void take(tw_scheme *scheme);

static tw_status create(tw_scheme *scheme)
{
    threshold *self = (threshold *)scheme;
    tw_sparse_settings settings = {.most_density = self->most_density,
                                   .least = 1,
                                   .feedback = 1,
                                   .coding = {TW_VALUES_SIGN, (tw_index_choice)self->indices},
                                   .take = take};
    return tw_sparse_create(&self->sparse, scheme, &settings);
}

static void take_tensor(threshold *self, size_t tensor, float tau)
{
    tw_support *support = &self->sparse.support[tensor];
    tw_accumulation accumulation;
    tw_select_source source = tw_sparse_accumulate(&self->sparse, tensor, &accumulation);
    self->sparse.selector.hint = &support->hint;
    support->count = tw_select_above(&self->sparse.selector, &source, self->scheme.tensors[tensor].count, support->most,
                                     tau, support->index, support->value);
    for (size_t j = 0; j < support->count; j++) support->value[j] = copysignf(tau, support->value[j]);
    tw_sparse_send(&self->sparse, tensor); /* the mean of equal magnitudes is that magnitude: nothing is rounded */
}

static void take(tw_scheme *scheme)
{
    threshold *self = (threshold *)scheme;
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed) take_tensor(self, i, (float)(self->tau / scheme->size));
}

static tw_status next(tw_scheme *scheme, tw_round *round)
{
    threshold *self = (threshold *)scheme;
    return tw_sparse_next(&self->sparse, self->most_density, self->most_density, round);
}

static void revert(tw_scheme *scheme)
{
    tw_sparse_revert(&((threshold *)scheme)->sparse);
}

static tw_status walk(tw_scheme *scheme, tw_walk *visitor)
{
    return tw_sparse_walk(&((threshold *)scheme)->sparse, visitor);
}

static void plan(const tw_scheme *scheme, size_t tensor, char *text, size_t capacity)
{
    const threshold *self = (const threshold *)scheme;
    snprintf(text, capacity, "threshold: those above %g, at most %zu of %zu elements", self->tau,
             self->sparse.support[tensor].most, scheme->tensors[tensor].count);
}

static void destroy(tw_scheme *scheme)
{
    tw_sparse_destroy(&((threshold *)scheme)->sparse);
}

const tw_scheme_ops tw_scheme_threshold = {
    .name = "threshold",
    .summary = "the sign of every element above a fixed threshold, the rest kept for later",
    .floor_bytes = 12,
    .struct_size = sizeof(threshold),
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .create = create,
    .next = next,
    .revert = revert,
    .walk = walk,
    .plan = plan,
    .destroy = destroy,
};
