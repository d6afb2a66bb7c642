#include "dense.h"

#include "error.h"
#include "half.h"
#include "kernels.h"
#include "memory.h"
#include "smaller.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 2048 /* elements: the scratch of a conversion stays in the first-level cache */ };

static int takes(const tw_dense *dense, size_t tensor)
{
    return dense->scheme->tensors[tensor].compressed == dense->settings.compressed;
}

static int is_half(const tw_dense *dense)
{
    return dense->settings.dtype != TW_F32;
}

size_t tw_dense_bytes(const tw_dense *dense)
{
    return dense->count * tw_dense_width(dense->settings.dtype);
}

/* ---- what values travel as --------------------------------------------------------------------------------------- */

tw_dtype tw_dense_dtype(int choice)
{
    static const tw_dtype choices[] = {TW_F32, TW_F16, TW_BF16};
    return choices[choice];
}

size_t tw_dense_width(tw_dtype dtype)
{
    return dtype == TW_F32 ? sizeof(float) : sizeof(uint16_t);
}

void tw_dense_put(tw_dtype dtype, void *values, size_t at, const float *src, size_t n)
{
    const tw_kernels *kernels = tw_kernels_best();
    if (dtype == TW_F32)
        memcpy((float *)values + at, src, n * sizeof *src);
    else
        (dtype == TW_F16 ? kernels->to_fp16 : kernels->to_bf16)((uint16_t *)values + at, src, n);
}

void tw_dense_get(tw_dtype dtype, const void *values, size_t at, float *dst, size_t n)
{
    const tw_kernels *kernels = tw_kernels_best();
    if (dtype == TW_F32)
        memcpy(dst, (const float *)values + at, n * sizeof *dst);
    else
        (dtype == TW_F16 ? kernels->from_fp16 : kernels->from_bf16)(dst, (const uint16_t *)values + at, n);
}

float tw_dense_largest_share(tw_dtype dtype, int size)
{
    if (dtype != TW_F16) return INFINITY;
    uint16_t half = tw_to_fp16(65504.0F / (float)size);
    while (tw_from_fp16(half) * (float)size > 65504) half--;
    return tw_from_fp16(half);
}

tw_status tw_dense_create(tw_dense *dense, tw_scheme *scheme, tw_dense_settings settings)
{
    *dense = (tw_dense){.scheme = scheme, .settings = settings};
    dense->largest = tw_dense_largest_share(settings.dtype, scheme->size);
    for (size_t i = 0; i < scheme->count; i++)
        if (takes(dense, i)) dense->count += scheme->tensors[i].count;
    TW_TRY(tw_allocate(tw_dense_bytes(dense), 1, &dense->values));
    if (!is_half(dense) || !settings.feedback) return TW_OK;
    if (settings.residual)
        dense->residual = settings.residual;
    else
        TW_TRY(tw_allocate(dense->count, sizeof *dense->residual, &dense->residual));
    return tw_allocate(dense->count, sizeof *dense->own, &dense->own);
}

void tw_dense_destroy(tw_dense *dense)
{
    tw_free(dense->values);
    if (!dense->settings.residual) tw_free(dense->residual);
    tw_free(dense->own);
}

/* ---- pack -------------------------------------------------------------------------------------------------------- */

static const tw_half_rows *half_rows(tw_dtype dtype)
{
    const tw_kernels *kernels = tw_kernels_best();
    return dtype == TW_F16 ? kernels->fp16 : kernels->bf16;
}

static void pack_halves(tw_dense *dense, size_t at, const float *gradient, size_t n, float scale)
{
    const tw_half_rows *rows = half_rows(dense->settings.dtype);
    uint16_t *halves = (uint16_t *)dense->values + at;
    if (!dense->residual) {
        rows->share(halves, gradient, n, scale);
        return;
    }
    rows->share_and_keep(halves, dense->residual + at, gradient, n, scale, dense->largest);
    memcpy(dense->own + at, halves, n * sizeof *halves);
}

/* The residual plus what was sent of it. Taking that out was exact, and so is this: every bit is restored, as what
 * rounding loses has fewer digits than the number that was rounded. (A value beyond `largest` may be an ulp off.) */
static void dense_put_back(const tw_dense *dense, size_t at, size_t n)
{
    float sent[BLOCK];
    tw_dense_get(dense->settings.dtype, dense->own, at, sent, n);
    tw_kernels_best()->add(dense->residual + at, sent, n);
}

static void pack_floats(tw_dense *dense, size_t at, const float *gradient, size_t n, float scale)
{
    float *values = (float *)dense->values + at;
    memcpy(values, gradient, n * sizeof *values);
    if (scale != 1) tw_kernels_best()->scale(values, scale, n);
}

/* -0 is the number that changes no sum, in no bit: x + -0 = x even of 0. So it is what a rank sends that has nothing to
 * say, and what is put back of it. */
static void pack_nothing(const tw_dense *dense, size_t at, size_t n)
{
    float nothing[BLOCK];
    for (size_t i = 0; i < n; i++) nothing[i] = -0.0F;
    tw_dense_put(dense->settings.dtype, dense->values, at, nothing, n);
    if (dense->residual) tw_dense_put(dense->settings.dtype, dense->own, at, nothing, n);
}

static void pack_tensor(tw_dense *dense, size_t at, size_t tensor, float scale)
{
    const float *gradient = dense->scheme->gradients[tensor];
    size_t count = dense->scheme->tensors[tensor].count;
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t n = tw_smaller(count - first, BLOCK);
        if (dense->scheme->absent[tensor])
            pack_nothing(dense, at + first, n);
        else
            (is_half(dense) ? pack_halves : pack_floats)(dense, at + first, gradient + first, n, scale);
    }
}

static void mark_nonfinite(tw_dense *dense)
{
    static const float nan = NAN;
    tw_dense_put(dense->settings.dtype, dense->place ? dense->place : dense->values, 0, &nan, 1);
}

/* A tensor is absent on every rank if its sum is -0, to begin with: so no rank that has it may send that there. */
static void tell_presence(const tw_dense *dense)
{
    const tw_scheme *scheme = dense->scheme;
    void *values = dense->place ? dense->place : dense->values;
    float first;
    for (size_t i = 0, at = 0; dense->tells && i < scheme->count; i++) {
        if (!takes(dense, i)) continue;
        tw_dense_get(dense->settings.dtype, values, at, &first, 1);
        first += 0.0F;
        if (!scheme->absent[i]) tw_dense_put(dense->settings.dtype, values, at, &first, 1);
        at += scheme->tensors[i].count;
    }
}

/* Whether a tensor whose sum is in the gradient is absent on every rank, if the dense tells. */
static int is_nobodys(const tw_dense *dense, size_t tensor)
{
    float first = dense->scheme->gradients[tensor][0];
    return dense->tells && first == 0 && signbit(first);
}

/* 1 if the gradients lie one behind the other, as fp32 may be summed where it lies; *place receives where. */
static int find_place(const tw_dense *dense, float **place)
{
    const tw_scheme *scheme = dense->scheme;
    const float *end = NULL;
    *place = NULL;
    if (is_half(dense)) return 0;
    for (size_t i = 0; i < scheme->count; i++) {
        float *gradient = scheme->gradients[i];
        if (!takes(dense, i)) continue;
        if (scheme->absent[i] || (end && gradient != end)) return 0;
        if (!end) *place = gradient;
        end = gradient + scheme->tensors[i].count;
    }
    return end != NULL;
}

void tw_dense_collect(tw_dense *dense, float scale)
{
    const tw_scheme *scheme = dense->scheme;
    dense->place = NULL;
    for (size_t i = 0, at = 0; i < scheme->count; i++) {
        if (!takes(dense, i)) continue;
        pack_tensor(dense, at, i, scale);
        at += scheme->tensors[i].count;
    }
    tell_presence(dense);
    dense->packed = scheme->begun;
}

void tw_dense_pack(tw_dense *dense, float scale, tw_round *round)
{
    float *place;
    dense->place = find_place(dense, &place) ? place : NULL;
    if (!dense->scheme->finite) {
        mark_nonfinite(dense);
    } else if (!dense->place) {
        tw_dense_collect(dense, scale);
    } else {
        if (scale != 1) tw_kernels_best()->scale(dense->place, scale, dense->count);
        tell_presence(dense);
    }
    round->kind = TW_ROUND_ALLREDUCE;
    round->values = dense->place ? dense->place : dense->values;
    round->count = dense->count;
    round->dtype = dense->settings.dtype;
}

/* ---- unpack ------------------------------------------------------------------------------------------------------ */

static int unpack_block(const tw_dense *dense, size_t at, float *gradient, size_t n)
{
    if (!dense->place) tw_dense_get(dense->settings.dtype, dense->values, at, gradient, n);
    return tw_kernels_best()->all_finite(gradient, n);
}

static int add_block(const tw_dense *dense, size_t at, float *gradient, size_t n)
{
    float value[BLOCK];
    int finite = unpack_block(dense, at, value, n);
    tw_kernels_best()->add(gradient, value, n);
    return finite;
}

static int round_block(const tw_dense *dense, size_t at, float *gradient, size_t n)
{
    tw_dense_put(dense->settings.dtype, dense->values, at, gradient, n);
    return unpack_block(dense, at, gradient, n);
}

/* Takes the values to the gradients, block by block. 1 if every block says so. */
static int visit_blocks(const tw_dense *dense,
                        int (*visit)(const tw_dense *dense, size_t at, float *gradient, size_t n))
{
    const tw_scheme *scheme = dense->scheme;
    size_t at = 0;
    int finite = 1;
    for (size_t i = 0; i < scheme->count; i++) {
        size_t count = scheme->tensors[i].count;
        if (!takes(dense, i)) continue;
        for (size_t first = 0; first < count; first += BLOCK)
            finite &= visit(dense, at + first, scheme->gradients[i] + first, tw_smaller(count - first, BLOCK));
        at += count;
    }
    return finite;
}

int tw_dense_unpack(const tw_dense *dense)
{
    return visit_blocks(dense, unpack_block);
}

int tw_dense_add(const tw_dense *dense)
{
    return visit_blocks(dense, add_block);
}

int tw_dense_round(const tw_dense *dense)
{
    return visit_blocks(dense, round_block);
}

void tw_dense_revert(tw_dense *dense)
{
    if (!dense->residual || dense->packed != dense->scheme->begun) return;
    for (size_t at = 0; at < dense->count; at += BLOCK) dense_put_back(dense, at, tw_smaller(dense->count - at, BLOCK));
}

/* Visits an array laid out like the values, a tensor at a time. */
static tw_status walk_array(const tw_dense *dense, tw_walk *walk, const tw_remembered *like, float *array)
{
    const tw_scheme *scheme = dense->scheme;
    for (size_t i = 0; i < scheme->count; i++) {
        const tw_scheme_tensor *tensor = &scheme->tensors[i];
        if (!takes(dense, i)) continue;
        tw_remembered entry = *like;
        entry.tensor = tensor->name;
        entry.dtype = TW_F32;
        entry.count = tensor->count;
        entry.data = array;
        TW_TRY(walk->visit(walk, &entry));
        array += tensor->count;
    }
    return TW_OK;
}

tw_status tw_dense_walk(tw_dense *dense, tw_walk *walk)
{
    tw_remembered like = {.what = "rounding", .kind = TW_STATE_ADDS, .joins = "residual", .is_rounding = 1};
    return dense->residual ? walk_array(dense, walk, &like, dense->residual) : TW_OK;
}

/* ---- velocity ---------------------------------------------------------------------------------------------------- */

static size_t velocity_bytes(const tw_velocity *velocity)
{
    return velocity->dense->count * sizeof(float);
}

tw_status tw_velocity_create(tw_velocity *velocity, tw_dense *dense, int adapts)
{
    velocity->dense = dense;
    dense->tells = 1;
    TW_TRY(tw_allocate(dense->count, sizeof(float), &velocity->now));
    TW_TRY(tw_allocate(dense->count, sizeof(float), &velocity->before));
    if (!adapts) return TW_OK;
    TW_TRY(tw_allocate(dense->count, sizeof(float), &velocity->squares_now));
    return tw_allocate(dense->count, sizeof(float), &velocity->squares_before);
}

void tw_velocity_destroy(tw_velocity *velocity)
{
    tw_free(velocity->now);
    tw_free(velocity->before);
    tw_free(velocity->squares_now);
    tw_free(velocity->squares_before);
}

void tw_velocity_mark(tw_velocity *velocity)
{
    velocity->taken = TW_VELOCITY_NO_STEP;
}

static void velocity_note(const tw_velocity *velocity, size_t at, size_t n)
{
    memcpy(velocity->before + at, velocity->now + at, n * sizeof(float));
    if (velocity->squares_now) memcpy(velocity->squares_before + at, velocity->squares_now + at, n * sizeof(float));
}

typedef struct velocity_rule {
    float momentum;
    int nesterov;
    const tw_adam_step *adam; /* in the place of these; NULL: none */
} velocity_rule;

static void velocity_advance(const tw_velocity *velocity, const velocity_rule *rule, size_t at, float *gradient,
                             size_t n)
{
    float *now = velocity->now + at;
    velocity_note(velocity, at, n);
    if (rule->adam)
        tw_kernels_best()->directions->adapt(rule->adam, now, velocity->squares_now + at, gradient, n);
    else
        tw_kernels_best()->velocity(now, gradient, n, rule->momentum, rule->nesterov);
}

/* Moments are noted block by block, while they are in the cache. */
static void velocity_advance_all(const tw_velocity *velocity, const velocity_rule *rule, size_t at, float *gradient,
                                 size_t count)
{
    for (size_t first = 0; first < count; first += BLOCK)
        velocity_advance(velocity, rule, at + first, gradient + first, tw_smaller(count - first, BLOCK));
}

static void velocity_stay(const tw_velocity *velocity, size_t at, float *gradient, size_t count)
{
    velocity_note(velocity, at, count);
    memset(gradient, 0, count * sizeof *gradient);
}

static void velocity_step(tw_velocity *velocity, const velocity_rule *rule)
{
    velocity->taken = TW_VELOCITY_IN_PLACE;
    const tw_scheme *scheme = velocity->dense->scheme;
    for (size_t i = 0, at = 0; i < scheme->count; i++) {
        size_t count = scheme->tensors[i].count;
        if (!takes(velocity->dense, i)) continue;
        if (is_nobodys(velocity->dense, i))
            velocity_stay(velocity, at, scheme->gradients[i], count);
        else
            velocity_advance_all(velocity, rule, at, scheme->gradients[i], count);
        at += count;
    }
}

void tw_velocity_apply(tw_velocity *velocity, float momentum, int nesterov)
{
    velocity_step(velocity, &(velocity_rule){.momentum = momentum, .nesterov = nesterov});
}

void tw_velocity_adapt(tw_velocity *velocity, const tw_adam_step *step)
{
    velocity_step(velocity, &(velocity_rule){.adam = step});
}

int tw_dense_is_zero(const float *x, size_t n)
{
    size_t at = 0;
    while (at < n && tw_kernels_best()->quantise->peak(x + at, tw_smaller(n - at, BLOCK)) == 0) at += BLOCK;
    return at >= n;
}

/* The new velocity goes where that of the step before last is. Of a tensor that is absent everywhere it is the old one.
 */
static void replace_velocity(const tw_velocity *velocity, const tw_shared_step *step, const float *divisor, size_t at,
                             float *gradient, size_t n)
{
    float *next = velocity->before + at;
    int is_past = velocity->dense->count >= TW_PAST_CACHE;
    tw_kernels_best()->directions->adopt(step, next, divisor, gradient, n, is_past);
    if (!tw_dense_is_zero(next, n)) return;
    memcpy(gradient, next, n * sizeof *gradient);
    memcpy(next, velocity->now + at, n * sizeof *next);
}

static void exchange_places(tw_velocity *velocity)
{
    float *next = velocity->before;
    velocity->before = velocity->now;
    velocity->now = next;
}

void tw_velocity_replace(tw_velocity *velocity, const tw_shared_step *step, const float *divisor)
{
    const tw_scheme *scheme = velocity->dense->scheme;
    for (size_t i = 0, at = 0; i < scheme->count; i++) {
        if (!takes(velocity->dense, i)) continue;
        replace_velocity(velocity, step, divisor ? divisor + at : NULL, at, scheme->gradients[i],
                         scheme->tensors[i].count);
        at += scheme->tensors[i].count;
    }
    tw_kernels_best()->drain();
    exchange_places(velocity);
    velocity->taken = TW_VELOCITY_ELSEWHERE;
}

void tw_velocity_revert(tw_velocity *velocity)
{
    if (velocity->taken == TW_VELOCITY_ELSEWHERE) exchange_places(velocity);
    if (velocity->taken == TW_VELOCITY_IN_PLACE) {
        memcpy(velocity->now, velocity->before, velocity_bytes(velocity));
        if (velocity->squares_now) memcpy(velocity->squares_now, velocity->squares_before, velocity_bytes(velocity));
    }
    velocity->taken = TW_VELOCITY_NO_STEP;
}

tw_status tw_velocity_walk(tw_velocity *velocity, tw_walk *walk)
{
    tw_remembered momentum = {.what = "momentum", .kind = TW_STATE_SAME};
    tw_remembered squares = {.what = "second_moment", .kind = TW_STATE_SAME};
    TW_TRY(walk_array(velocity->dense, walk, &momentum, velocity->now));
    return velocity->squares_now ? walk_array(velocity->dense, walk, &squares, velocity->squares_now) : TW_OK;
}
