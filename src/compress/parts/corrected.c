#include "corrected.h"

#include "error.h"
#include "kernels.h"
#include "memory.h"
#include "sound.h"

#include <math.h>

/* The most by which one change of the rate scales a residual: a schedule that ends at nothing must not blow it up. */
#define MOST_REVISION 1024.0F

const tw_preset tw_corrected_bold[] = {
    {"density", "0.001"}, {"warmup_steps", "400"}, {"values", "sign"}, {"min_elements", "1"}, {"min_dims", "1"}, {NULL},
};

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

static double most_density(const tw_corrected *corrected, double density)
{
    return density * corrected->most_times < 1 ? density * corrected->most_times : 1;
}

static void corrected_complete(tw_sparse *sparse)
{
    tw_corrected *corrected = (tw_corrected *)sparse;
    tw_velocity *velocity = &corrected->velocity;
    if (!corrected->second_moment) {
        tw_velocity_apply(velocity, (float)corrected->momentum, corrected->nesterov);
        return;
    }
    tw_adam_step step = tw_adam_begin(&corrected->adam, corrected->nesterov, sparse->scheme.step, 1);
    tw_velocity_adapt(velocity, &step);
}

static tw_status create_masked(tw_corrected *corrected)
{
    const tw_sparse *sparse = &corrected->sparse;
    TW_TRY(tw_allocate(sparse->scheme.count, sizeof *corrected->masked, &corrected->masked));
    for (size_t i = 0; i < sparse->scheme.count; i++)
        TW_TRY(tw_allocate_unset(sparse->support[i].most * sizeof **corrected->masked, &corrected->masked[i]));
    return TW_OK;
}

static tw_status create_rates(tw_corrected *corrected)
{
    size_t count = corrected->sparse.scheme.count;
    TW_TRY(tw_allocate(count, sizeof *corrected->rate, &corrected->rate));
    return tw_allocate(count, sizeof *corrected->revision, &corrected->revision);
}

tw_status tw_corrected_create(tw_scheme *scheme, double most_times, int follows_rate,
                              void (*take)(tw_sparse *sparse, size_t tensor))
{
    tw_corrected *corrected = (tw_corrected *)scheme;
    corrected->most_times = most_times;
    double highest = tw_warmup_most(&corrected->warmup, corrected->density);
    tw_sparse_settings settings = {.density = corrected->density,
                                   .most_density = most_density(corrected, highest),
                                   .take = take,
                                   .complete = corrected_complete};
    corrected->sparse.feedback = 1;
    TW_TRY(tw_sparse_create(scheme, &settings));
    TW_TRY(tw_kept_create(&corrected->momentum_buffer, corrected->sparse.state, corrected->sparse.count));
    if (corrected->masking) TW_TRY(create_masked(corrected));
    if (follows_rate) TW_TRY(create_rates(corrected));
    corrected->adam.beta1 = corrected->momentum;
    int adapts = corrected->adam.beta2 > 0;
    if (adapts)
        TW_TRY(tw_allocate(corrected->sparse.count, sizeof *corrected->second_moment, &corrected->second_moment));
    return tw_velocity_create(&corrected->velocity, &corrected->sparse.gather.leftovers, adapts);
}

void tw_corrected_destroy(tw_scheme *scheme)
{
    tw_corrected *corrected = (tw_corrected *)scheme;
    for (size_t i = 0; corrected->masked && i < scheme->count; i++) tw_free(corrected->masked[i]);
    tw_free(corrected->masked);
    tw_free(corrected->rate);
    tw_free(corrected->revision);
    tw_free(corrected->second_moment);
    tw_kept_destroy(&corrected->momentum_buffer);
    tw_velocity_destroy(&corrected->velocity);
    tw_sparse_destroy(scheme);
}

/* ---- the update -------------------------------------------------------------------------------------------------- */

static tw_kept momentum_buffer_of(const tw_corrected *corrected, size_t tensor)
{
    return tw_kept_from(corrected->momentum_buffer, corrected->sparse.offset[tensor]);
}

static float next_revision(tw_corrected *corrected, size_t tensor)
{
    float before = corrected->rate[tensor], now = tw_scheme_rate_of(&corrected->sparse.scheme, tensor);
    if (now == 0) return 1;
    corrected->rate[tensor] = now;
    if (before == 0) return 1;
    return fminf(fmaxf(before / now, 1 / MOST_REVISION), MOST_REVISION);
}

/* Once a step, for each compressed tensor and whatever becomes of the step: what ranks hold back of one is of the same
 * rate on all of them. A residual that takes the gradient in is scaled on the way. */
static void revise(tw_corrected *corrected)
{
    tw_sparse *sparse = &corrected->sparse;
    const tw_scheme *scheme = &sparse->scheme;
    for (size_t i = 0; corrected->rate && i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        float revision = corrected->revision[i] = next_revision(corrected, i);
        tw_sparse_scale_sums(sparse, i, revision);
        if (revision == 1 || (scheme->finite && !scheme->absent[i])) continue;
        tw_noise rounding = tw_sparse_rounding(sparse, i, TW_ROUNDING_REVISION);
        tw_kept_scale(tw_sparse_kept(sparse, i), 0, scheme->tensors[i].count, revision, &rounding);
    }
}

tw_correction tw_correction_make(tw_corrected *corrected, size_t tensor)
{
    tw_sparse *sparse = &corrected->sparse;
    float *second_moment = corrected->second_moment ? corrected->second_moment + sparse->offset[tensor] : NULL;
    return (tw_correction){
        .scheme = &sparse->scheme,
        .momentum_buffer = momentum_buffer_of(corrected, tensor),
        .residual = tw_sparse_kept(sparse, tensor),
        .rounding = tw_sparse_rounding(sparse, tensor, TW_ROUNDING_UPDATE),
        .revision_rounding = tw_sparse_rounding(sparse, tensor, TW_ROUNDING_REVISION),
        .second_moment = second_moment,
        .adam = tw_adam_begin(&corrected->adam, corrected->nesterov, sparse->scheme.step, sparse->scheme.size),
        .gradient = sparse->scheme.gradients[tensor],
        .scale = sparse->scheme.scale,
        .momentum = (float)corrected->momentum,
        .revision = corrected->revision ? corrected->revision[tensor] : 1,
        .nesterov = corrected->nesterov};
}

static size_t adapt_row(const tw_correction_block *block, size_t at, size_t n, size_t listed, size_t *done)
{
    const tw_correction *t = block->of;
    size_t first = block->first + at;
    tw_kept u = tw_kept_from(t->momentum_buffer, first), v = tw_kept_from(t->residual, first);
    float *second = t->second_moment + first, *g = t->gradient + first, *value = block->value + listed;
    uint32_t *index = block->index + listed;
    if (v.bf16)
        return tw_kernels_best()->rounded->adapt_select(&t->adam, u.bf16, second, v.bf16, g, n, t->scale,
                                                        block->threshold, tw_rounding_from(&t->rounding, first), index,
                                                        value, done);
    return tw_kernels_best()->directions->adapt_select(&t->adam, u.fp32, second, v.fp32, g, n, t->scale,
                                                       block->threshold, (uint32_t)first, index, value, done);
}

size_t tw_correction_row(const tw_correction_block *block, tw_moments *moments, size_t at, size_t n, size_t listed,
                         size_t *done)
{
    const tw_correction *t = block->of;
    const tw_kernels *kernels = tw_kernels_best();
    size_t first = block->first + at;
    if (t->second_moment) return adapt_row(block, at, n, listed, done);
    tw_kept u = tw_kept_from(t->momentum_buffer, first), v = tw_kept_from(t->residual, first);
    float *g = t->gradient + first, *value = block->value + listed;
    uint32_t *index = block->index + listed;
    if (v.bf16)
        return kernels->rounded->momentum_select(moments, u.bf16, v.bf16, g, n, t->scale, t->momentum, t->nesterov,
                                                 block->threshold, tw_rounding_from(&t->rounding, first), index, value,
                                                 done);
    if (moments)
        return kernels->moments->momentum_select(moments, u.fp32, v.fp32, g, n, t->scale, t->momentum, t->nesterov,
                                                 block->threshold, (uint32_t)first, index, value, done);
    return kernels->momentum_select(u.fp32, v.fp32, g, n, t->scale, t->momentum, t->nesterov, block->threshold,
                                    (uint32_t)first, index, value, done);
}

static size_t update_row(void *context, size_t at, size_t n, size_t listed, size_t *done)
{
    return tw_correction_row(context, NULL, at, n, listed, done);
}

/* All of it while the block is in the cache. */
size_t tw_correction_pass(tw_correction_block *block, size_t n, tw_sound_row row)
{
    const tw_correction *t = block->of;
    if (t->revision != 1) tw_kept_scale(t->residual, block->first, n, t->revision, &t->revision_rounding);
    return tw_sound_pass(t->scheme, t->gradient + block->first, n, row, block);
}

static size_t corrected_pass(void *context, size_t first, size_t n, float threshold, uint32_t *index, float *value)
{
    tw_correction_block block = {context, first, threshold, index, value};
    return tw_correction_pass(&block, n, update_row);
}

/* What enters the residual, of which nothing is noted. */
static float corrected_direction(const tw_correction *t, size_t i)
{
    float g = t->scale * t->gradient[i], u = tw_kept_get(t->momentum_buffer, i);
    if (t->second_moment) {
        float squares = t->second_moment[i];
        return tw_adam_take(&t->adam, g, &u, &squares);
    }
    u = t->momentum * u + g;
    return t->nesterov ? t->momentum * u + g : u;
}

static void corrected_peek(void *context, size_t first, size_t n, float *dst)
{
    const tw_correction *t = context;
    for (size_t i = first; i < first + n; i++)
        *dst++ = t->revision * tw_kept_get(t->residual, i) + corrected_direction(t, i);
}

static size_t corrected_look(void *context, size_t first, size_t n, float threshold, uint32_t *index, float *value)
{
    return tw_kept_look(((const tw_correction *)context)->residual, first, n, threshold, index, value);
}

tw_select_source tw_correction_source(tw_correction *correction)
{
    return (tw_select_source){correction, corrected_pass, corrected_peek, corrected_look};
}

/* ---- masking ----------------------------------------------------------------------------------------------------- */

/* Stale momentum would push again what has just been sent. But momentum that is masked after w steps has done only
 * 1 - (1 - m^w)/(w(1 - m)) of its work: a third where w is as long as it lasts, 1/(1 - m) steps, and nine tenths at ten
 * times that. So only elements that wait as long are masked: none in the first steps of a warm-up, in runs so short
 * that their density is high, and in tensors that are not much more than min_sent. */
static int is_masked(const tw_corrected *corrected, size_t tensor)
{
    const double LASTING = 10;
    size_t count = corrected->sparse.scheme.tensors[tensor].count;
    size_t sent = tw_sparse_wanted(count, corrected->sparse.density, (size_t)corrected->sparse.min_sent);
    return corrected->masking && (double)count * (1 - corrected->momentum) > LASTING * (double)sent;
}

void tw_corrected_mask(tw_corrected *corrected, size_t tensor)
{
    const tw_support *support = &corrected->sparse.support[tensor];
    const tw_noise exact = {{0}, 0}; /* zero stays zero */
    tw_kept momentum_buffer = momentum_buffer_of(corrected, tensor);
    if (!is_masked(corrected, tensor)) return;
    for (size_t j = 0; j < support->count; j++) {
        tw_kept_fetch(momentum_buffer, support->index, j, support->count);
        corrected->masked[tensor][j] = tw_kept_get(momentum_buffer, support->index[j]);
        tw_kept_put(momentum_buffer, support->index[j], 0, &exact);
    }
}

static void unmask(tw_corrected *corrected, size_t tensor)
{
    const tw_support *support = &corrected->sparse.support[tensor];
    const tw_noise exact = {{0}, 0}; /* as does what came from there */
    tw_kept momentum_buffer = momentum_buffer_of(corrected, tensor);
    for (size_t j = 0; j < support->count; j++)
        tw_kept_put(momentum_buffer, support->index[j], corrected->masked[tensor][j], &exact);
}

/* ---- the hooks --------------------------------------------------------------------------------------------------- */

unsigned tw_corrected_floor(const tw_scheme *scheme)
{
    const tw_corrected *corrected = (const tw_corrected *)scheme;
    return tw_kept_floor(corrected->sparse.state, 2) + (corrected->adam.beta2 > 0 ? 2 * sizeof(float) : 0);
}

tw_status tw_corrected_next(tw_scheme *scheme, tw_round *round)
{
    tw_corrected *corrected = (tw_corrected *)scheme;
    if (scheme->phase == 0) {
        tw_velocity_mark(&corrected->velocity);
        revise(corrected);
    }
    scheme->account.warmup = tw_warmup_is_on(&corrected->warmup, scheme->step, corrected->density);
    corrected->sparse.density = tw_warmup_density(&corrected->warmup, scheme->step, corrected->density);
    corrected->sparse.most_density = most_density(corrected, corrected->sparse.density);
    return tw_sparse_next(scheme, round);
}

void tw_corrected_revert(tw_scheme *scheme)
{
    tw_corrected *corrected = (tw_corrected *)scheme;
    tw_velocity_revert(&corrected->velocity);
    tw_sparse_revert(scheme);
    for (size_t i = 0; scheme->taken && i < scheme->count; i++)
        if (scheme->tensors[i].compressed && is_masked(corrected, i)) unmask(corrected, i);
}

static tw_status walk_rates_of(tw_scheme *scheme, tw_walk *walk, const char *what, float *rates)
{
    for (size_t i = 0; i < scheme->count; i++) {
        const tw_scheme_tensor *t = &scheme->tensors[i];
        tw_remembered rate = {
            .what = what, .tensor = t->name, .kind = TW_STATE_SAME, .dtype = TW_F32, .count = 1, .data = &rates[i]};
        if (t->compressed) TW_TRY(walk->visit(walk, &rate));
    }
    return TW_OK;
}

static tw_status walk_rates(tw_corrected *corrected, tw_walk *walk)
{
    tw_scheme *scheme = &corrected->sparse.scheme;
    TW_TRY(walk_rates_of(scheme, walk, "rate", corrected->rate));
    TW_TRY(walk_rates_of(scheme, walk, "told", scheme->rates));
    tw_remembered rate = {
        .what = "scheme", .tensor = "rate", .kind = TW_STATE_SAME, .dtype = TW_F32, .count = 1, .data = &scheme->rate};
    return walk->visit(walk, &rate);
}

tw_status tw_corrected_walk(tw_scheme *scheme, tw_walk *walk)
{
    tw_corrected *corrected = (tw_corrected *)scheme;
    TW_TRY(tw_sparse_walk(scheme, walk));
    TW_TRY(tw_sparse_walk_like(&corrected->sparse, walk, "momentum", corrected->momentum_buffer));
    if (corrected->second_moment)
        TW_TRY(tw_sparse_walk_like(&corrected->sparse, walk, "second_moment",
                                   (tw_kept){.fp32 = corrected->second_moment}));
    if (corrected->rate) TW_TRY(walk_rates(corrected, walk));
    return tw_velocity_walk(&corrected->velocity, walk);
}

static void owe(tw_corrected *corrected, size_t tensor)
{
    tw_sparse *sparse = &corrected->sparse;
    tw_adam_step step = tw_adam_begin(&corrected->adam, 0, sparse->scheme.step, 1);
    tw_kept momentum = momentum_buffer_of(corrected, tensor), residual = tw_sparse_kept(sparse, tensor);
    tw_noise rounding = tw_sparse_rounding(sparse, tensor, TW_ROUNDING_MOMENTUM), exact = {{0}, 0};
    const float *second = corrected->second_moment + sparse->offset[tensor];
    for (size_t i = 0; i < sparse->scheme.tensors[tensor].count; i++) {
        float owed = tw_adam_owed(&step, tw_kept_get(residual, i), second[i]);
        tw_kept_put(momentum, i, tw_kept_get(momentum, i) + owed, &rounding);
        tw_kept_put(residual, i, 0, &exact);
    }
}

void tw_corrected_give_moments(tw_scheme *scheme)
{
    tw_corrected *corrected = (tw_corrected *)scheme;
    for (size_t i = 0; corrected->second_moment && i < scheme->count; i++)
        if (scheme->tensors[i].compressed) owe(corrected, i);
}

float tw_corrected_momentum(const tw_scheme *scheme, int *nesterov)
{
    const tw_corrected *corrected = (const tw_corrected *)scheme;
    *nesterov = corrected->nesterov;
    return (float)corrected->momentum;
}

double tw_corrected_clip(const tw_scheme *scheme)
{
    return ((const tw_corrected *)scheme)->clip;
}
