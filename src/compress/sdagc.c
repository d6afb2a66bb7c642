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
#include "error.h"
#include "kernels.h"
#include "memory.h"

#include <math.h>
#include <string.h>

/* Of what is wanted of a tensor, the most that is sent. */
#define MOST_TIMES 4

/* How far the guard may move lambda. Up: 1 / sqrt(density) times for a layer of which only a few rows are alive, 1 /
 * ((1-m) * sqrt(density)) for a residual measured against the deviation of single gradients: 32 and 316 at the
 * defaults. Down: a layer that has died must not sink so deep that it bursts for long when it comes back. */
#define LEAST_CORRECTION 0x1p-10
#define MOST_CORRECTION 0x1p14

/* How far from the edge the guard sees, to either side alike: else it would drift. */
#define LEAST_RATIO 0.9
#define MOST_RATIO (1 / LEAST_RATIO)

/* The most by which one change of the rate scales a residual: a schedule that ends at nothing must not blow it up. */
#define MOST_REVISION 1024.0F

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
    double correction;      /* the guard's factor on lambda */
    double mean, deviation; /* of the last step; as a prediction for the next they cost or save time, no more */
    float share;            /* revision=density: of the values, what is sent */
    float rate;             /* under which the residual was collected; 0: unknown */
    uint32_t *silent_since; /* revision=age: the step after an element was sent last */
    undone *undone;         /* one an element of the support */
} layer;

typedef struct sdagc {
    tw_corrected corrected;
    double lambda, kappa, damping;
    int statistics, criterion, guard, revision;
    layer *layer;
} sdagc;

static const tw_option options[] = {
    {"density", TW_OPTION_REAL, offsetof(tw_corrected, density), "0.001", 1e-7, 1, NULL,
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
    l->correction = 1;
    if (self->revision == REVISION_AGE) TW_TRY(tw_allocate(count, sizeof *l->silent_since, &l->silent_since));
    return tw_allocate(self->corrected.sparse.support[tensor].most, sizeof *l->undone, &l->undone);
}

static void take(tw_sparse *sparse, size_t tensor);

static tw_status create(tw_scheme *scheme)
{
    sdagc *self = (sdagc *)scheme;
    TW_TRY(tw_corrected_create(scheme, MOST_TIMES, take));
    TW_TRY(tw_allocate(scheme->count, sizeof *self->layer, &self->layer));
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed) TW_TRY(create_layer(self, i));
    return TW_OK;
}

/* ---- the threshold ----------------------------------------------------------------------------------------------- */

/* The magnitude that a fraction `density` of a standard Gaussian exceeds: exact at powers of two, between them along a
 * line, within 0.5 %; the same on every machine, whatever its mathematics library. */
static double gaussian_quantile(double density)
{
    static const double at_power[] = {0,      0.6745, 1.1503, 1.5341, 1.8627, 2.1539, 2.4176, 2.6601, 2.8856,
                                      3.0973, 3.2972, 3.4871, 3.6683, 3.8419, 4.0088, 4.1696, 4.3249, 4.4753,
                                      4.6212, 4.7630, 4.9010, 5.0354, 5.1666, 5.2947, 5.4200};
    enum { LAST = sizeof at_power / sizeof *at_power - 1 };
    int exponent;
    double mantissa = frexp(density, &exponent); /* density = mantissa * 2^exponent, mantissa in [1/2, 1) */
    int power = 1 - exponent < LAST ? 1 - exponent : LAST;
    if (power <= 0) return 0;
    return at_power[power] + (at_power[power - 1] - at_power[power]) * (2 * mantissa - 1);
}

static double lambda_now(const sdagc *self, const layer *l)
{
    int is_final =
        !tw_warmup_is_on(&self->corrected.warmup, self->corrected.sparse.scheme.step, self->corrected.density);
    double lambda =
        is_final && self->lambda > 0 ? self->lambda : gaussian_quantile(tw_corrected_density(&self->corrected));
    return lambda * l->correction;
}

/* An element is above the threshold only if its magnitude is above this. */
static double edge(const sdagc *self, double lambda, const layer *l)
{
    double offset = fabs(l->mean);
    return lambda * l->deviation + (self->criterion == CRITERION_CENTRED ? -offset : offset);
}

/* A magnitude somewhat below the edge: above it is all that the guard needs to know of. */
static float candidate_magnitude(const sdagc *self, double lambda, const layer *l)
{
    double magnitude = LEAST_RATIO * edge(self, lambda, l);
    return magnitude > 0 ? nextafterf((float)magnitude, 0) : 0;
}

/* Keeps of a support what is above the threshold. */
static void filter(const sdagc *self, tw_support *support, double lambda, const layer *l)
{
    double tau = lambda * l->deviation, offset = 0;
    if (self->criterion == CRITERION_CENTRED)
        offset = l->mean;
    else
        tau += fabs(l->mean);
    size_t kept = 0;
    for (size_t j = 0; j < support->count; j++) {
        support->index[kept] = support->index[j];
        support->value[kept] = support->value[j];
        kept += fabs((double)support->value[j] - offset) > tau;
    }
    support->count = kept;
}

/* How far lambda should move, as a fraction of it. Near the mark the count tells: its mean is what must be right. But
 * just below the edge a residual is thin, since what stands there crosses within a few steps; a step bridges about
 * sqrt(density) of the way from 0. A move wider than that lets many steps' worth out at once and nothing for as long.
 * Far from the mark it is safe to move towards the lambda that would have let exactly the wanted pass: `last` is the
 * magnitude of the least of those, 0 if it is below all candidates. */
static double error_of_lambda(double passed, double wanted, double density, double last, double edge)
{
    if (passed * MOST_TIMES > wanted && passed < wanted * MOST_TIMES)
        return sqrt(density) * (passed - wanted) / (passed + wanted);
    if (edge <= 0) return passed > wanted ? MOST_RATIO - 1 : LEAST_RATIO - 1; /* no edge: only the side is known */
    return fmin(fmax(last / edge, LEAST_RATIO), MOST_RATIO) - 1;
}

static void steer(const sdagc *self, layer *l, double error)
{
    l->correction *= 1 + self->kappa * error;
    l->correction = fmin(fmax(l->correction, LEAST_CORRECTION), MOST_CORRECTION);
}

/* ---- selection --------------------------------------------------------------------------------------------------- */

/* One tensor under way. */
typedef struct pass_context {
    tw_correction correction;
    float revision;
    int of_gradient; /* the moments */
    tw_moments moments;
} pass_context;

/* All of it while the block is in the cache: memory is streamed through once. */
static size_t pass(void *context, size_t first, size_t n, float threshold, uint32_t *index, float *value)
{
    pass_context *tensor = context;
    const tw_correction *t = &tensor->correction;
    const tw_kernels *kernels = tw_kernels_best();
    const float *gradient = t->gradient + first;
    float *u = t->momentum_buffer + first, *v = t->residual + first;
    if (tensor->revision != 1) kernels->scale(v, tensor->revision, n);
    if (!tensor->of_gradient)
        return kernels->moments.momentum_select(&tensor->moments, u, v, gradient, n, t->scale, t->momentum, t->nesterov,
                                                threshold, (uint32_t)first, index, value);
    kernels->moments.add(&tensor->moments, gradient, n);
    return kernels->momentum_select(u, v, gradient, n, t->scale, t->momentum, t->nesterov, threshold, (uint32_t)first,
                                    index, value);
}

/* The residual as it is, once it is updated. */
static size_t look(void *context, size_t first, size_t n, float threshold, uint32_t *index, float *value)
{
    const float *residual = context;
    return tw_kernels_best()->select(residual + first, n, threshold, (uint32_t)first, index, value);
}

static void peek(void *context, size_t first, size_t n, float *dst)
{
    const float *residual = context;
    memcpy(dst, residual + first, n * sizeof *dst);
}

/* By how much the residual is scaled because the learning rate is another one than it was collected under. */
static float revise_rate(const sdagc *self, layer *l)
{
    float before = l->rate, now = self->corrected.sparse.scheme.rate;
    if (self->revision != REVISION_RATE || now == 0) return 1;
    l->rate = now;
    if (before == 0) return 1;
    return fminf(fmaxf(before / now, 1 / MOST_REVISION), MOST_REVISION);
}

/* Updates a tensor's residual and takes into the support whatever is above `threshold`, at most the `most` largest. */
static void update(sdagc *self, size_t tensor, float revision, float threshold, size_t most)
{
    tw_sparse *sparse = &self->corrected.sparse;
    layer *l = &self->layer[tensor];
    tw_support *support = &sparse->support[tensor];
    size_t n = sparse->scheme.tensors[tensor].count;
    pass_context context = {.correction = tw_correction_make(&self->corrected, tensor),
                            .revision = revision,
                            .of_gradient = self->statistics == STATISTICS_GRADIENT};
    tw_select_source source = {.context = &context, .pass = pass};
    support->count = tw_select_above(&sparse->selector, &source, n, most, threshold, support->index, support->value);
    tw_moments_finish(&context.moments, n, &l->mean, &l->deviation);
    if (!context.of_gradient) return;
    l->mean *= sparse->scheme.scale; /* the moments of a share of the mean */
    l->deviation *= sparse->scheme.scale;
}

/* Takes candidates into the support, the `most` largest at most. The threshold is known only when all elements have
 * been looked at, so the pass goes by the last step's moments; should these have promised too much, the residual is
 * read once more. */
static void collect(sdagc *self, size_t tensor, double lambda, size_t most)
{
    const float MARGIN = 0.95F; /* moments change little from step to step */
    layer *l = &self->layer[tensor];
    tw_support *support = &self->corrected.sparse.support[tensor];
    float revision = revise_rate(self, l);
    float foretold = MARGIN * revision * candidate_magnitude(self, lambda, l);
    update(self, tensor, revision, foretold, most);
    float needed = candidate_magnitude(self, lambda, l);
    if (foretold <= needed) return;
    tw_select_source source = {.context = tw_sparse_residual(&self->corrected.sparse, tensor), .pass = look};
    support->count =
        tw_select_above(&self->corrected.sparse.selector, &source, self->corrected.sparse.scheme.tensors[tensor].count,
                        most, needed, support->index, support->value);
}

/* Takes the `wanted` largest, whatever the threshold. */
static void collect_largest(sdagc *self, size_t tensor, size_t wanted)
{
    tw_support *support = &self->corrected.sparse.support[tensor];
    float *residual = tw_sparse_residual(&self->corrected.sparse, tensor);
    tw_select_source source = {residual, look, peek, residual};
    support->count =
        tw_select_top(&self->corrected.sparse.selector, &source, self->corrected.sparse.scheme.tensors[tensor].count,
                      wanted, support->index, support->value);
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
static undone let_go(const sdagc *self, layer *l, uint32_t index, float sent, float *residual)
{
    undone note = {0};
    float share = share_sent(self, l, index);
    if (share != 1) {
        float kept = share * (*residual + sent) - sent; /* what rounding lost */
        note.dropped = *residual - kept;
        *residual = kept;
    }
    if (self->revision != REVISION_AGE) return note;
    note.silent_since = l->silent_since[index];
    l->silent_since[index] = (uint32_t)self->corrected.sparse.scheme.step + 1;
    return note;
}

static void send(sdagc *self, size_t tensor)
{
    tw_sparse *sparse = &self->corrected.sparse;
    layer *l = &self->layer[tensor];
    tw_support *support = &sparse->support[tensor];
    float *residual = tw_sparse_residual(sparse, tensor);
    for (size_t j = 0; j < support->count; j++) support->value[j] *= share_sent(self, l, support->index[j]);
    tw_sparse_send(sparse, tensor);
    for (size_t j = 0; j < support->count; j++) {
        uint32_t i = support->index[j];
        l->undone[j] = let_go(self, l, i, support->value[j], &residual[i]);
    }
    tw_corrected_mask(&self->corrected, tensor);
}

static void take(tw_sparse *sparse, size_t tensor)
{
    sdagc *self = (sdagc *)sparse;
    layer *l = &self->layer[tensor];
    tw_support *support = &self->corrected.sparse.support[tensor];
    double density = tw_corrected_density(&self->corrected), lambda = lambda_now(self, l);
    size_t n = self->corrected.sparse.scheme.tensors[tensor].count,
           least = tw_sparse_wanted(n, 0, (size_t)self->corrected.min_sent);
    size_t wanted = tw_sparse_wanted(n, density, least),
           most = tw_sparse_wanted(n, tw_corrected_most(&self->corrected, density), least);
    collect(self, tensor, lambda, most);
    float last = support->count < wanted
                     ? 0
                     : tw_select_kth(&self->corrected.sparse.selector, support->value, support->count, wanted);
    filter(self, support, lambda, l);
    double passed = (double)support->count, mark = (double)wanted;
    l->share = (float)fmin(fmax(passed / mark, 1.0 / MOST_TIMES), 1);
    if (support->count < least) collect_largest(self, tensor, least);
    send(self, tensor);
    if (self->guard && l->deviation > 0)
        steer(self, l, error_of_lambda(passed, mark, density, last, edge(self, lambda, l)));
}

static void take_back(sdagc *self, size_t tensor)
{
    layer *l = &self->layer[tensor];
    const tw_support *support = &self->corrected.sparse.support[tensor];
    float *residual = tw_sparse_residual(&self->corrected.sparse, tensor);
    for (size_t j = 0; j < support->count; j++) {
        uint32_t i = support->index[j];
        residual[i] += l->undone[j].dropped;
        if (l->silent_since) l->silent_since[i] = l->undone[j].silent_since;
    }
}

static void revert(tw_scheme *scheme)
{
    tw_corrected_revert(scheme);
    for (size_t i = 0; scheme->finite && i < scheme->count; i++)
        if (scheme->tensors[i].compressed) take_back((sdagc *)scheme, i);
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static tw_status walk_layer(const sdagc *self, tw_walk *visitor, size_t tensor)
{
    layer *l = &self->layer[tensor];
    const tw_scheme_tensor *t = &self->corrected.sparse.scheme.tensors[tensor];
    if (self->guard) TW_TRY(visitor->visit(visitor, "correction", t->name, TW_F64, 1, &l->correction));
    if (self->revision == REVISION_RATE) TW_TRY(visitor->visit(visitor, "rate", t->name, TW_F32, 1, &l->rate));
    if (!l->silent_since) return TW_OK;
    return visitor->visit(visitor, "silent_since", t->name, TW_U32, t->count, l->silent_since);
}

static tw_status walk(tw_scheme *scheme, tw_walk *visitor)
{
    sdagc *self = (sdagc *)scheme;
    if (self->revision == REVISION_RATE) TW_TRY(visitor->visit(visitor, "scheme", "rate", TW_F32, 1, &scheme->rate));
    TW_TRY(tw_sparse_walk(scheme, visitor));
    TW_TRY(tw_sparse_walk_like(&self->corrected.sparse, visitor, "momentum", self->corrected.momentum_buffer));
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed) TW_TRY(walk_layer(self, visitor, i));
    return tw_velocity_walk(&self->corrected.velocity, visitor);
}

static void destroy(tw_scheme *scheme)
{
    sdagc *self = (sdagc *)scheme;
    for (size_t i = 0; self->layer && i < scheme->count; i++) {
        tw_free(self->layer[i].silent_since);
        tw_free(self->layer[i].undone);
    }
    tw_free(self->layer);
    tw_corrected_destroy(scheme);
}

const tw_scheme_ops tw_scheme_sdagc = {
    .name = "sdagc",
    .summary = "a threshold from each layer's standard deviation, with momentum compensation (reconstruction)",
    .floor_bytes = 20,
    .struct_size = sizeof(sdagc),
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .create = create,
    .next = tw_corrected_next,
    .revert = revert,
    .walk = walk,
    .momentum = tw_corrected_momentum,
    .clip = tw_corrected_clip,
    .plan = tw_sparse_plan,
    .destroy = destroy,
};
