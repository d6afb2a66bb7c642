/* dgc - Deep Gradient Compression (Lin, Han, Mao, Wang, Dally; ICLR 2018, arXiv 1712.01887).
 *
 * Per tensor, with g already scaled by 1/N and clipped:
 *     u = m*u + g;  v += u          momentum correction (with nesterov: v += m*u + g)
 *     send the k largest |v|        exactly k, chosen from candidates that the update itself collects
 *     v = 0, u = 0 where sent       the residual; momentum factor masking
 * The optimiser takes plain steps on the sum: the momentum is in here. Tensors that are not compressed are reduced
 * exactly and go through momentum afterwards, alike on every rank. Local clipping is at clip * N^-1/2, because g
 * carries the 1/N (section 3.3 and appendix C). During warm-up the density falls by fours from warmup_density. */
#include "error.h"
#include "kernels.h"
#include "memory.h"
#include "sparse.h"
#include "warmup.h"

typedef struct dgc {
    tw_sparse sparse; /* v, and what is sent of it */
    double density, momentum, clip;
    tw_warmup warmup;
    long min_sent;
    int nesterov, masking, values, indices;
    float *momentum_buffer; /* u, laid out as v */
    float **masked;         /* u where it was zeroed in this step, one list a tensor, as its support */
    tw_velocity velocity;   /* momentum of the tensors that are not compressed */
} dgc;

static const tw_option options[] = {
    {"density", TW_OPTION_REAL, offsetof(dgc, density), "0.001", 1e-7, 1, NULL, "fraction of each tensor that is sent"},
    TW_OPTION_MIN_SENT(dgc),
    {"momentum", TW_OPTION_REAL, offsetof(dgc, momentum), "0.9", 0, 0.9999, NULL,
     "momentum correction; the optimiser's own momentum must then be 0"},
    {"nesterov", TW_OPTION_SWITCH, offsetof(dgc, nesterov), "off", 0, 0, NULL, "Nesterov's form of it"},
    {"masking", TW_OPTION_SWITCH, offsetof(dgc, masking), "on", 0, 0, NULL,
     "forget the momentum of what was just sent"},
    {"clip", TW_OPTION_REAL, offsetof(dgc, clip), "0", 0, 1e9, NULL,
     "clip the global gradient norm here, before it enters the residual; 0: do not"},
    TW_OPTIONS_WARMUP(dgc, "400"),
    TW_OPTION_VALUES(dgc),
    TW_OPTION_INDICES(dgc),
};

static double density_now(const dgc *self)
{
    return tw_warmup_density(&self->warmup, self->sparse.scheme.step, self->density);
}

static tw_status create_masked(dgc *self)
{
    TW_TRY(tw_allocate(self->sparse.scheme.count, sizeof *self->masked, &self->masked));
    for (size_t i = 0; i < self->sparse.scheme.count; i++)
        TW_TRY(tw_allocate(self->sparse.support[i].most, sizeof **self->masked, &self->masked[i]));
    return TW_OK;
}

static void take(tw_sparse *sparse, size_t tensor);
static void settle(tw_sparse *sparse);

static tw_status create(tw_scheme *scheme)
{
    dgc *self = (dgc *)scheme;
    tw_sparse_settings settings = {.density = self->density,
                                   .most_density = tw_warmup_most(&self->warmup, self->density),
                                   .least = self->min_sent,
                                   .feedback = 1,
                                   .coding = {(tw_value_code)self->values, (tw_index_choice)self->indices},
                                   .take = take,
                                   .settle = settle};
    TW_TRY(tw_sparse_create(scheme, &settings));
    TW_TRY(tw_allocate(self->sparse.count, sizeof(float), &self->momentum_buffer));
    TW_TRY(create_masked(self));
    return tw_velocity_create(&self->velocity, &self->sparse.gather.leftovers);
}

/* One tensor under way. */
typedef struct pass_context {
    float *momentum_buffer, *residual;
    const float *gradient;
    float scale, momentum;
    int nesterov;
} pass_context;

static size_t pass(void *context, size_t first, size_t n, float threshold, uint32_t *index, float *value)
{
    const pass_context *t = context;
    return tw_kernels_best()->momentum_select(t->momentum_buffer + first, t->residual + first, t->gradient + first, n,
                                              t->scale, t->momentum, t->nesterov, threshold, (uint32_t)first, index,
                                              value);
}

static void peek(void *context, size_t first, size_t n, float *dst)
{
    const pass_context *t = context;
    for (size_t i = first; i < first + n; i++) {
        float g = t->scale * t->gradient[i], u = t->momentum * t->momentum_buffer[i] + g;
        *dst++ = t->residual[i] + (t->nesterov ? t->momentum * u + g : u);
    }
}

/* Momentum factor masking: stale momentum would push again what has just been sent. */
static void mask_momentum(dgc *self, size_t tensor, float *momentum_buffer)
{
    const tw_support *support = &self->sparse.support[tensor];
    for (size_t j = 0; j < support->count; j++) {
        self->masked[tensor][j] = momentum_buffer[support->index[j]];
        momentum_buffer[support->index[j]] = 0;
    }
}

static void take(tw_sparse *sparse, size_t tensor)
{
    dgc *self = (dgc *)sparse;
    pass_context update = {.momentum_buffer = self->momentum_buffer + sparse->offset[tensor],
                           .residual = tw_sparse_residual(sparse, tensor),
                           .gradient = sparse->scheme.gradients[tensor],
                           .scale = sparse->scheme.scale,
                           .momentum = (float)self->momentum,
                           .nesterov = self->nesterov};
    tw_select_source source = {&update, pass, peek, update.residual};
    tw_sparse_send_top(sparse, tensor, &source);
    if (self->masking) mask_momentum(self, tensor, update.momentum_buffer);
}

static void settle(tw_sparse *sparse)
{
    dgc *self = (dgc *)sparse;
    tw_velocity_apply(&self->velocity, (float)self->momentum, self->nesterov);
}

static tw_status next(tw_scheme *scheme, tw_round *round)
{
    dgc *self = (dgc *)scheme;
    double density = density_now(self);
    if (scheme->phase == 0) tw_velocity_mark(&self->velocity);
    scheme->account.warmup = tw_warmup_is_on(&self->warmup, scheme->step, self->density);
    self->sparse.density = density;
    self->sparse.most_density = density;
    return tw_sparse_next(scheme, round);
}

static void unmask_momentum(dgc *self, size_t tensor)
{
    const tw_support *support = &self->sparse.support[tensor];
    float *momentum_buffer = self->momentum_buffer + self->sparse.offset[tensor];
    for (size_t j = 0; j < support->count; j++) momentum_buffer[support->index[j]] = self->masked[tensor][j];
}

static void revert(tw_scheme *scheme)
{
    dgc *self = (dgc *)scheme;
    tw_velocity_revert(&self->velocity);
    tw_sparse_revert(scheme);
    if (!scheme->finite || !self->masking) return;
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed) unmask_momentum(self, i);
}

static tw_status walk(tw_scheme *scheme, tw_walk *visitor)
{
    dgc *self = (dgc *)scheme;
    TW_TRY(tw_sparse_walk(scheme, visitor));
    TW_TRY(tw_sparse_walk_like(&self->sparse, visitor, "momentum", self->momentum_buffer));
    return tw_velocity_walk(&self->velocity, visitor);
}

static float momentum(const tw_scheme *scheme, int *nesterov)
{
    const dgc *self = (const dgc *)scheme;
    *nesterov = self->nesterov;
    return (float)self->momentum;
}

static double clip(const tw_scheme *scheme)
{
    return ((const dgc *)scheme)->clip;
}

static void destroy(tw_scheme *scheme)
{
    dgc *self = (dgc *)scheme;
    for (size_t i = 0; self->masked && i < scheme->count; i++) tw_free(self->masked[i]);
    tw_free(self->masked);
    tw_free(self->momentum_buffer);
    tw_velocity_destroy(&self->velocity);
    tw_sparse_destroy(scheme);
}

const tw_scheme_ops tw_scheme_dgc = {
    .name = "dgc",
    .summary = "Deep Gradient Compression: top-k with momentum correction, masking, clipping and warm-up",
    .floor_bytes = 20,
    .struct_size = sizeof(dgc),
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .create = create,
    .next = next,
    .revert = revert,
    .walk = walk,
    .momentum = momentum,
    .clip = clip,
    .plan = tw_sparse_plan,
    .destroy = destroy,
};
