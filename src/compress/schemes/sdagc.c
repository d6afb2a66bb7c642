/* sdagc - Standard Deviation based Adaptive Gradient Compression (Chen, Yan, Ren, Wu; CCGrid 2020).
 *
 * A RECONSTRUCTION: only the abstract could be read. It names a threshold from the standard deviation of each layer's
 * gradients that follows the training process, residual accumulation, local clipping, adaptive learning rate revision
 * and momentum compensation. The formulas below are ours. Per tensor, with g already scaled by 1/N and clipped:
 *
 *     u = m*u + g;  v += u             momentum compensation (with nesterov: v += m*u + g)
 *     mu, sigma = moments of v         over all elements, in double (statistics=gradient: of g)
 *     tau = lambda * sigma
 *     send v where |v - mu| > tau      criterion=magnitude: where |v| > |mu| + tau
 *     v = 0 where sent                 the residual; with masking, u too: as in DGC, but the abstract does not name it
 *
 * lambda is the Gaussian quantile of the density wanted (3.29 at 0.001), which falls by fours during warm-up as DGC's
 * does. Tails are heavier than Gaussian and a residual's lighter, since it is cut where it is sent: with guard=on (the
 * default) a factor on lambda, tensor by tensor, follows what passed. Whatever the threshold, at least min_sent
 * elements are sent, the largest, and never more than 4 times the wanted: of more, only the largest are looked at.
 *
 * Adaptive learning rate revision can be read in three ways:
 *     rate     what was held back is sent as if under the rate it was computed with: v *= old/new when the rate changes
 *              (tw_scheme_set_rate). The steps it makes add up to those of dense momentum SGD, whatever the schedule.
 *     age      an element silent for a steps acts like a rate a times as high: its value is divided by
 *              1 + damping*(a-1), and the rest of it dropped.
 *     density  the same for a whole tensor: values are multiplied by passed/wanted where fewer than wanted passed, down
 *              to 1/4, and the rest dropped.
 * The optimiser takes plain steps on the sum; tensors that are not compressed go through momentum after their exact
 * reduction, alike on every rank. */
#include "corrected.h"
#include "deviation.h"
#include "error.h"
#include "kernels.h"
#include "memory.h"

#include <math.h>
#include <string.h>

enum { MOST_TIMES = TW_DEVIATION_FAR }; /* of what is wanted of a tensor, the most that is sent */
enum { REVISION_RATE, REVISION_AGE, REVISION_DENSITY, REVISION_OFF };
enum { STATISTICS_RESIDUAL, STATISTICS_GRADIENT };
enum { CRITERION_CENTRED, CRITERION_MAGNITUDE };

/* Of an element that was sent: what revert gives back beside the value itself. */
typedef struct undone {
    float dropped; /* from the residual */
    uint32_t silent_since;
} undone;

/* One compressed tensor. */
typedef struct layer {
    tw_deviation threshold;
    double correction_before; /* the guard's factor, when the step began */
    float share;              /* revision=density: of the values, what is sent */
    uint32_t *silent_since;   /* revision=age: the step after an element was sent last */
    undone *undone;           /* one an element of the support */
} layer;

typedef struct sdagc {
    tw_corrected corrected;
    double lambda, kappa, damping;
    int statistics, criterion, guard, revision;
    layer *layer;
} sdagc;

static const tw_option options[] = {
    {"density", TW_OPTION_REAL, offsetof(tw_corrected, density), "0.04", 1e-7, 1, NULL,
     "fraction of each tensor that should pass the threshold"},
    {"lambda", TW_OPTION_REAL, offsetof(sdagc, lambda), "0", 0, 1e6, NULL,
     "threshold in standard deviations, where the guard begins; 0: the density's Gaussian quantile"},
    {"guard", TW_OPTION_SWITCH, offsetof(sdagc, guard), "on", 0, 0, NULL,
     "steer lambda, tensor by tensor, to the density; off: keep it"},
    {"kappa", TW_OPTION_REAL, offsetof(sdagc, kappa), "0.5", 0.001, 1, NULL, "how fast the guard steers"},
    {"statistics", TW_OPTION_CHOICE, offsetof(sdagc, statistics), "residual", 0, 0, "residual|gradient",
     "whose mean and standard deviation"},
    {"criterion", TW_OPTION_CHOICE, offsetof(sdagc, criterion), "centred", 0, 0, "centred|magnitude",
     "send where |v - mean| > threshold, or where |v| > |mean| + threshold"},
    {"revision", TW_OPTION_CHOICE, offsetof(sdagc, revision), "rate", 0, 0, "rate|age|density|off",
     "how the residual answers for the learning rate"},
    {"damping", TW_OPTION_REAL, offsetof(sdagc, damping), "0.001", 0, 1, NULL,
     "revision=age: a value silent for a steps is divided by 1 + damping*(a-1)"},
    TW_OPTIONS_CORRECTED("compensation", "off"),
};

/* ---- create ------------------------------------------------------------------------------------------------------ */

static tw_status create_layer(const sdagc *self, size_t tensor)
{
    layer *l = &self->layer[tensor];
    size_t count = self->corrected.sparse.scheme.tensors[tensor].count;
    l->threshold = (tw_deviation){.is_centred = self->criterion == CRITERION_CENTRED, .correction = 1};
    if (self->revision == REVISION_AGE) TW_TRY(tw_allocate(count, sizeof *l->silent_since, &l->silent_since));
    return tw_allocate_unset(self->corrected.sparse.support[tensor].most * sizeof *l->undone, &l->undone);
}

static void sdagc_take(tw_sparse *sparse, size_t tensor);

static tw_status sdagc_create(tw_scheme *scheme)
{
    sdagc *self = (sdagc *)scheme;
    TW_TRY(tw_corrected_create(scheme, MOST_TIMES, self->revision == REVISION_RATE, sdagc_take));
    TW_TRY(tw_allocate(scheme->count, sizeof *self->layer, &self->layer));
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed) TW_TRY(create_layer(self, i));
    return TW_OK;
}

/* ---- selection --------------------------------------------------------------------------------------------------- */

/* One tensor under way. */
typedef struct pass_context {
    tw_correction correction;
    int of_gradient; /* the moments */
    tw_moments moments;
} pass_context;

/* A block of it. */
typedef struct pass_block {
    tw_correction_block base;
    pass_context *tensor;
} pass_block;

/* Moments of the new residual. Those of the gradient are taken before it is cleared, of a group at a time: what follows
 * may not be sound. */
static size_t pass_row(void *context, size_t at, size_t n, size_t listed, size_t *done)
{
    const tw_correction_block *block = context;
    pass_context *tensor = ((pass_block *)context)->tensor;
    float copy[TW_GROUP];
    if (!tensor->of_gradient) return tw_correction_row(block, &tensor->moments, at, n, listed, done);
    if (n > TW_GROUP) n = TW_GROUP;
    memcpy(copy, block->of->gradient + block->first + at, n * sizeof *copy);
    size_t count = tw_correction_row(block, NULL, at, n, listed, done);
    tw_kernels_best()->moments->add(&tensor->moments, copy, done ? *done : n);
    return count;
}

/* All of it while the block is in the cache: memory is streamed through once. */
static size_t sdagc_pass(void *context, size_t first, size_t n, float threshold, uint32_t *index, float *value)
{
    pass_context *tensor = context;
    pass_block block = {{&tensor->correction, first, threshold, index, value}, tensor};
    return tw_correction_pass(&block.base, n, pass_row);
}

/* Updates a tensor's residual and takes into the support whatever is above `threshold`, at most the `most` largest. */
static void update(sdagc *self, size_t tensor, const tw_correction *correction, float threshold, size_t most)
{
    tw_sparse *sparse = &self->corrected.sparse;
    layer *l = &self->layer[tensor];
    tw_support *support = &sparse->support[tensor];
    size_t n = sparse->scheme.tensors[tensor].count;
    pass_context context = {.correction = *correction, .of_gradient = self->statistics == STATISTICS_GRADIENT};
    tw_select_source source = {.context = &context, .pass = sdagc_pass};
    support->count = tw_select_above(&sparse->selector, &source, n, most, threshold, support->index, support->value);
    tw_moments_finish(&context.moments, n, &l->threshold.mean, &l->threshold.deviation);
    if (!context.of_gradient) return;
    l->threshold.mean *= sparse->scheme.scale; /* the moments of a share of the mean */
    l->threshold.deviation *= sparse->scheme.scale;
}

/* Takes candidates into the support, the `most` largest at most. The threshold is known only when all elements have
 * been looked at, so the pass goes by the last step's moments; should these have promised too much, the residual is
 * read once more. */
static void sdagc_collect(sdagc *self, size_t tensor, size_t most)
{
    const float MARGIN = 0.95F; /* moments change little from step to step */
    layer *l = &self->layer[tensor];
    tw_sparse *sparse = &self->corrected.sparse;
    tw_support *support = &sparse->support[tensor];
    tw_correction correction = tw_correction_make(&self->corrected, tensor);
    float foretold = MARGIN * correction.revision * tw_deviation_candidate(&l->threshold);
    update(self, tensor, &correction, foretold, most);
    float needed = tw_deviation_candidate(&l->threshold);
    if (foretold <= needed) return;
    tw_kept residual = tw_sparse_kept(sparse, tensor);
    tw_select_source source = tw_kept_source(&residual);
    source.peek = NULL; /* the threshold is known */
    support->count = tw_select_above(&sparse->selector, &source, sparse->scheme.tensors[tensor].count, most, needed,
                                     support->index, support->value);
}

/* Takes the `wanted` largest, whatever the threshold. */
static void collect_largest(tw_sparse *sparse, size_t tensor, size_t wanted)
{
    tw_support *support = &sparse->support[tensor];
    tw_kept residual = tw_sparse_kept(sparse, tensor);
    tw_select_source source = tw_kept_source(&residual);
    support->count = tw_select_top(&sparse->selector, &source, sparse->scheme.tensors[tensor].count, wanted,
                                   support->index, support->value);
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

/* The fraction of an element's value that is sent; the rest is dropped. */
static float share_sent(const sdagc *self, const layer *l, uint32_t index)
{
    if (self->revision == REVISION_DENSITY) return l->share;
    if (self->revision != REVISION_AGE) return 1;
    uint32_t silent = (uint32_t)self->corrected.sparse.scheme.step - l->silent_since[index]; /* steps before this one */
    return (float)(1 / (1 + self->damping * silent));
}

/* After an element was sent: the rest of it and its age go, and are noted for revert. */
static undone sdagc_let_go(const sdagc *self, layer *l, uint32_t index, float sent, tw_kept residual,
                           const tw_noise *rounding)
{
    undone note = {0};
    float share = share_sent(self, l, index), before = tw_kept_get(residual, index);
    if (share != 1) {
        tw_kept_put(residual, index, share * (before + sent) - sent, rounding); /* what rounding lost */
        note.dropped = before - tw_kept_get(residual, index);
    }
    if (self->revision != REVISION_AGE) return note;
    note.silent_since = l->silent_since[index];
    l->silent_since[index] = (uint32_t)self->corrected.sparse.scheme.step + 1;
    return note;
}

static void sdagc_send(sdagc *self, size_t tensor)
{
    tw_sparse *sparse = &self->corrected.sparse;
    layer *l = &self->layer[tensor];
    tw_support *support = &sparse->support[tensor];
    tw_kept residual = tw_sparse_kept(sparse, tensor);
    tw_noise rounding = tw_sparse_rounding(sparse, tensor, TW_ROUNDING_DROPPED);
    for (size_t j = 0; j < support->count; j++) support->value[j] *= share_sent(self, l, support->index[j]);
    tw_sparse_send(sparse, tensor);
    for (size_t j = 0; j < support->count; j++) {
        uint32_t i = support->index[j];
        l->undone[j] = sdagc_let_go(self, l, i, support->value[j], residual, &rounding);
    }
    tw_corrected_mask(&self->corrected, tensor);
}

/* Standard deviations in the threshold, before the guard. */
static double lambda_now(const sdagc *self)
{
    const tw_corrected *head = &self->corrected;
    int is_final = !tw_warmup_is_on(&head->warmup, head->sparse.scheme.step, head->density);
    return is_final && self->lambda > 0 ? self->lambda : tw_gaussian_quantile(head->sparse.density);
}

static void sdagc_take(tw_sparse *sparse, size_t tensor)
{
    sdagc *self = (sdagc *)sparse;
    layer *l = &self->layer[tensor];
    tw_support *support = &sparse->support[tensor];
    size_t n = sparse->scheme.tensors[tensor].count, least = tw_sparse_wanted(n, 0, (size_t)sparse->min_sent);
    size_t wanted = tw_sparse_wanted(n, sparse->density, least);
    tw_passage passage = {.density = sparse->density, .wanted = (double)wanted};
    l->correction_before = l->threshold.correction;
    l->threshold.lambda = lambda_now(self) * l->threshold.correction;
    sdagc_collect(self, tensor, tw_sparse_wanted(n, sparse->most_density, least));
    if (support->count >= wanted)
        passage.last = tw_select_kth(&sparse->selector, support->value, support->count, wanted);
    tw_deviation_filter(&l->threshold, support);
    passage.passed = (double)support->count;
    l->share = (float)fmin(fmax(passage.passed / passage.wanted, 1.0 / MOST_TIMES), 1);
    if (support->count < least) collect_largest(sparse, tensor, least);
    sdagc_send(self, tensor);
    if (self->guard) tw_deviation_steer(&l->threshold, self->kappa, &passage);
}

static void sdagc_take_back(sdagc *self, size_t tensor)
{
    layer *l = &self->layer[tensor];
    const tw_support *support = &self->corrected.sparse.support[tensor];
    tw_kept residual = tw_sparse_kept(&self->corrected.sparse, tensor);
    tw_noise rounding = tw_sparse_rounding(&self->corrected.sparse, tensor, TW_ROUNDING_DROPPED);
    if (!self->corrected.sparse.scheme.absent[tensor]) l->threshold.correction = l->correction_before;
    for (size_t j = 0; j < support->count; j++) {
        uint32_t i = support->index[j];
        tw_kept_put(residual, i, tw_kept_get(residual, i) + l->undone[j].dropped, &rounding);
        if (l->silent_since) l->silent_since[i] = l->undone[j].silent_since;
    }
}

static void sdagc_revert(tw_scheme *scheme)
{
    tw_corrected_revert(scheme);
    for (size_t i = 0; scheme->taken && i < scheme->count; i++)
        if (scheme->tensors[i].compressed) sdagc_take_back((sdagc *)scheme, i);
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static tw_status walk_layer(const sdagc *self, tw_walk *visitor, size_t tensor)
{
    layer *l = &self->layer[tensor];
    const tw_scheme_tensor *t = &self->corrected.sparse.scheme.tensors[tensor];
    tw_remembered correction = {.what = "correction",
                                .tensor = t->name,
                                .kind = TW_STATE_OWN,
                                .dtype = TW_F64,
                                .count = 1,
                                .data = &l->threshold.correction};
    tw_remembered silence = {.what = "silent_since",
                             .tensor = t->name,
                             .kind = TW_STATE_OWN,
                             .dtype = TW_U32,
                             .count = t->count,
                             .data = l->silent_since};
    if (self->guard) TW_TRY(visitor->visit(visitor, &correction));
    return l->silent_since ? visitor->visit(visitor, &silence) : TW_OK;
}

static tw_status sdagc_walk(tw_scheme *scheme, tw_walk *visitor)
{
    sdagc *self = (sdagc *)scheme;
    TW_TRY(tw_corrected_walk(scheme, visitor));
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed) TW_TRY(walk_layer(self, visitor, i));
    return TW_OK;
}

static void sdagc_destroy(tw_scheme *scheme)
{
    sdagc *self = (sdagc *)scheme;
    for (size_t i = 0; self->layer && i < scheme->count; i++) {
        tw_free(self->layer[i].silent_since);
        tw_free(self->layer[i].undone);
    }
    tw_free(self->layer);
    tw_corrected_destroy(scheme);
}

#define SDAGC                                                                                                          \
    .one_pass = 1, .floor = tw_corrected_floor, .struct_size = sizeof(sdagc), TW_OPTIONS(options),                     \
    .create = sdagc_create, .next = tw_corrected_next, .revert = sdagc_revert, .walk = sdagc_walk,                     \
    .momentum = tw_corrected_momentum, .clip = tw_corrected_clip, .plan = tw_sparse_plan, .destroy = sdagc_destroy

const tw_scheme_ops tw_scheme_sdagc = {
    .name = "sdagc",
    .summary = "a threshold from each layer's standard deviation, with momentum compensation (reconstruction)",
    .of_run = tw_warmup_of_run,
    SDAGC,
};

const tw_scheme_ops tw_scheme_sdagc_bold = {
    .name = "sdagc-bold",
    .summary = "sdagc with one bit a value of a thousandth of everything: the smallest message, for long runs",
    .preset = tw_corrected_bold,
    SDAGC,
};
