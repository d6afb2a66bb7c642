/* threshold - fixed-threshold quantisation (Strom, Interspeech 2015: Scalable Distributed DNN Training Using Commodity
 * GPU Cloud Computing).
 *
 * Per tensor, with g already scaled by 1/N and t = tau/N:
 *     v += g
 *     send t * sign(v), v -= t * sign(v)     where |v| > t
 * One bit a value and its position: an element that has gathered more than 2t sends again in the next step. t is sent
 * in bf16, and what rounding it leaves stays in v. tau is in units of the mean gradient, so that a given tau means the
 * same for any number of ranks. How much is sent follows from the gradients; should more than most_density of a tensor
 * stand out, only the largest are sent, the others wait: that bounds the packet. Momentum stays with the optimiser. */
#include "sparse.h"

#include <math.h>
#include <stdio.h>

typedef struct threshold {
    tw_sparse sparse;
    double tau, most_density;
} threshold;

static const tw_option options[] = {
    {"tau", TW_OPTION_REAL, offsetof(threshold, tau), "0.005", 1e-30, 1e30, NULL,
     "threshold, and what is sent of an element above it, in units of the mean gradient"},
    {"most_density", TW_OPTION_REAL, offsetof(threshold, most_density), "0.1", 1e-7, 1, NULL,
     "fraction of each tensor that is sent at most: the largest"},
    TW_OPTIONS_INDICES,
    TW_OPTIONS_STATE,
};

static void threshold_take(tw_sparse *sparse, size_t tensor)
{
    const tw_scheme *scheme = &sparse->scheme;
    float tau = (float)(((const threshold *)sparse)->tau / scheme->size);
    tw_support *support = &sparse->support[tensor];
    tw_accumulation accumulation;
    tw_select_source source = tw_sparse_accumulate(sparse, tensor, &accumulation);
    sparse->selector.hint = &support->hint;
    support->count = tw_select_above(&sparse->selector, &source, scheme->tensors[tensor].count, support->most, tau,
                                     support->index, support->value);
    for (size_t j = 0; j < support->count; j++) support->value[j] = copysignf(tau, support->value[j]);
    tw_sparse_send(sparse, tensor); /* the mean of equal magnitudes is that magnitude, rounded as it travels */
}

static tw_status threshold_create(tw_scheme *scheme)
{
    threshold *self = (threshold *)scheme;
    tw_sparse_settings settings = {
        .density = self->most_density, .most_density = self->most_density, .take = threshold_take};
    self->sparse.min_sent = self->sparse.feedback = 1;
    self->sparse.values = TW_VALUES_SIGN;
    return tw_sparse_create(scheme, &settings);
}

static void threshold_plan(const tw_scheme *scheme, size_t tensor, char *text, size_t capacity)
{
    const threshold *self = (const threshold *)scheme;
    snprintf(text, capacity, "threshold: those above %g, at most %zu of %zu elements%s", self->tau,
             self->sparse.support[tensor].most, scheme->tensors[tensor].count, tw_gather_road(&self->sparse.gather));
}

const tw_scheme_ops tw_scheme_threshold = {
    .name = "threshold",
    .summary = "the sign of every element above a fixed threshold, the rest kept for later",
    .one_pass = 1,
    .floor = tw_sparse_floor,
    .struct_size = sizeof(threshold),
    TW_OPTIONS(options),
    .create = threshold_create,
    .plan = threshold_plan,
    TW_SPARSE_STEPS,
};
