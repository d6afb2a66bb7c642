#include "optimiser.h"
#include "error.h"
#include "muon.h"
#include "pages.h"
#include "tensor_table.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EPSILON 1e-8f

/* What all parameters of a step have in common. */
typedef struct pass {
    optimiser_settings settings;
    float rate;
    const float *gradients;
    float fresh, fresh_square;        /* 1 - beta1, 1 - beta2 */
    float correction, correct_square; /* 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
} pass;

struct optimiser {
    optimiser_settings settings;
    const tw_tensor *tensors;
    size_t tensor_count;
    size_t parameter_count;
    size_t held;                     /* tensors */
    float *momentum, *second_moment; /* behind Adam both */
    float *shown[2];                 /* where they stand for others */
    float steps;                     /* of Adam; exact up to 2^24, when the corrections are long 1 */
    pass now;
    muon muon; /* room, with it */
};

/* A run of parameters that decay alike. */
typedef struct stretch {
    size_t begin, end;
    float decay;
} stretch;

static const char *optimiser_name_of(optimiser_kind kind)
{
    static const char *const names[] = {"sgd", "adam", "adamw", "muon"};
    return names[kind];
}

tw_status optimiser_check(const optimiser_settings *s, const char *sync)
{
    int adaptive = s->kind != OPTIMISER_SGD, scheme = (int)strcspn(sync, ":");
    if (adaptive && s->nesterov)
        return tw_fail(TW_ERROR_ARGUMENT, "--nesterov is a form of SGD's momentum; leave it out with --optimizer %s",
                       optimiser_name_of(s->kind));
    if (s->adapted && s->kind != OPTIMISER_ADAMW)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--optimizer %s: scheme %.*s gives Adam's direction, to which nothing but a decay of its own is "
                       "added; write --optimizer adamw",
                       optimiser_name_of(s->kind), scheme, sync);
    if (!s->directed || s->adapted) return TW_OK;
    if (!adaptive) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--optimizer %s: scheme %.*s applies momentum before it sends, so what arrives is a direction "
                   "for SGD, and no gradient to take moments of; write --optimizer sgd, or, beside %s, --sync "
                   "%spowersgd:rank=16, qsgd or fp8",
                   optimiser_name_of(s->kind), scheme, sync, optimiser_name_of(s->kind),
                   s->kind == OPTIMISER_ADAMW ? "dgc-adam, " : "");
}

tw_status optimiser_create(const optimiser_settings *settings, const tw_tensor *tensors, size_t count, optimiser **out)
{
    optimiser *o = calloc(1, sizeof *o);
    if (!o) return tw_fail(TW_ERROR_MEMORY, "no memory for the optimiser");
    *o = (optimiser){.settings = *settings, .tensors = tensors, .tensor_count = count};
    if (settings->epsilon == 0) o->settings.epsilon = EPSILON;
    for (size_t i = 0; i < count; i++) o->parameter_count += tw_tensor_count(&tensors[i]);
    o->shown[0] = o->momentum = pages_take(o->parameter_count);
    if (settings->kind != OPTIMISER_SGD) o->shown[1] = o->second_moment = pages_take(o->parameter_count);
    if (!o->momentum || (settings->kind != OPTIMISER_SGD && !o->second_moment)) {
        tw_status status = tw_fail(TW_ERROR_MEMORY, "no memory for what the optimiser remembers of %zu parameters",
                                   o->parameter_count);
        optimiser_destroy(o);
        return status;
    }
    tw_status status = settings->kind == OPTIMISER_MUON ? muon_create(tensors, count, &o->muon) : TW_OK;
    if (status == TW_OK)
        *out = o;
    else
        optimiser_destroy(o);
    return status;
}

void optimiser_destroy(optimiser *o)
{
    if (!o) return;
    pages_give(o->momentum, o->parameter_count);
    pages_give(o->second_moment, o->parameter_count);
    muon_free(&o->muon);
    free(o);
}

void optimiser_hold(optimiser *o, size_t tensors)
{
    o->held = tensors;
}

/* What step number o->steps needs of Adam's constants: SGD, and before the first step anybody, none. */
static pass corrected(const optimiser *o)
{
    const optimiser_settings s = o->settings;
    if (s.kind == OPTIMISER_SGD || o->steps == 0) return (pass){.settings = s};
    const double beta1 = s.momentum, beta2 = s.beta2;
    return (pass){.settings = s,
                  .fresh = (float)(1 - beta1),
                  .fresh_square = (float)(1 - beta2),
                  .correction = (float)(1 / (1 - pow(beta1, o->steps))),
                  .correct_square = (float)(1 / sqrt(1 - pow(beta2, o->steps)))};
}

void optimiser_begin(optimiser *o, float rate)
{
    if (o->settings.kind != OPTIMISER_SGD) o->steps += 1;
    o->now = corrected(o);
    o->now.rate = rate;
}

/* Where to go from w, for one parameter. */
static inline float descend(optimiser_settings s, float decay, float gradient, float w, float *buffer)
{
    float force = decay * w + (s.directed ? 0.0f : gradient);
    *buffer = s.momentum * *buffer + force;
    float direction = s.nesterov ? force + s.momentum * *buffer : *buffer;
    return s.directed ? gradient + direction : direction;
}

static inline float adapt(const pass *p, float decay, float gradient, float w, float *first, float *second)
{
    float coupled = p->settings.kind == OPTIMISER_ADAM ? decay : 0, force = gradient + coupled * w;
    *first = p->settings.momentum * *first + p->fresh * force;
    *second = p->settings.beta2 * *second + p->fresh_square * (force * force);
    float direction = p->correction * *first / (p->correct_square * sqrtf(*second) + p->settings.epsilon);
    return direction + (decay - coupled) * w;
}

/* `dst` gets the parameters after the step where it is taken, else the step. */
static inline void run_sgd(const optimiser *o, const pass p, stretch all, const float *parameters, float *dst,
                           int taken)
{
    float *buffer = o->momentum;
    for (size_t i = all.begin; i < all.end; i++) {
        float w = parameters[i];
        float step = p.rate * descend(p.settings, all.decay, p.gradients[i], w, &buffer[i]);
        dst[i] = taken ? w - step : -step;
    }
}

static inline void run_adam(const optimiser *o, const pass p, stretch all, const float *parameters, float *dst,
                            int taken)
{
    float *first = o->momentum, *second = o->second_moment;
    for (size_t i = all.begin; i < all.end; i++) {
        float w = parameters[i];
        float step = p.rate * adapt(&p, all.decay, p.gradients[i], w, &first[i], &second[i]);
        dst[i] = taken ? w - step : -step;
    }
}

/* All of a matrix. */
static tw_status run_muon(optimiser *o, const pass p, stretch all, const tw_tensor *tensor, const float *parameters,
                          float *dst, int taken)
{
    const size_t rows = tensor->shape[0], columns = tensor->shape[1];
    const float length = muon_length(rows, columns);
    for (size_t i = all.begin; i < all.end; i++) {
        float *first = &o->momentum[i];
        *first = p.settings.momentum * *first + p.fresh * p.gradients[i];
        o->muon.matrix[i - all.begin] = p.fresh * p.gradients[i] + p.settings.momentum * *first;
    }
    TW_TRY(muon_orthogonalise(&o->muon, rows, columns));
    for (size_t i = all.begin; i < all.end; i++) {
        const float w = parameters[i], step = p.rate * (length * o->muon.matrix[i - all.begin] + all.decay * w);
        dst[i] = taken ? w - step : -step;
    }
    return TW_OK;
}

/* What of a tensor is in the range. */
static stretch cut(const optimiser *o, size_t tensor, size_t first, const stretch *range)
{
    const size_t end = first + tw_tensor_count(&o->tensors[tensor]);
    return (stretch){.begin = first > range->begin ? first : range->begin,
                     .end = end < range->end ? end : range->end,
                     .decay = o->tensors[tensor].dims >= 2 ? o->settings.weight_decay : 0.0f};
}

static inline tw_status optimiser_run(optimiser *o, const pass p, const stretch *range, const float *parameters,
                                      float *dst, int taken)
{
    size_t first = 0;
    for (size_t t = 0; t < o->tensor_count && first < range->end; first += tw_tensor_count(&o->tensors[t++])) {
        const stretch all = cut(o, t, first, range);
        if (t < o->held || all.begin >= all.end) continue;
        if (p.settings.kind == OPTIMISER_SGD)
            run_sgd(o, p, all, parameters, dst, taken);
        else if (p.settings.kind == OPTIMISER_MUON && muon_takes(&o->tensors[t]))
            TW_TRY(run_muon(o, p, all, &o->tensors[t], parameters, dst, taken));
        else
            run_adam(o, p, all, parameters, dst, taken);
    }
    return TW_OK;
}

static pass pass_with(const optimiser *o, const float *gradients)
{
    pass p = o->now;
    p.gradients = gradients;
    return p;
}

tw_status optimiser_step_range(optimiser *o, size_t begin, size_t end, const float *gradients, float *parameters)
{
    const stretch range = {.begin = begin, .end = end};
    return optimiser_run(o, pass_with(o, gradients), &range, parameters, parameters, 1);
}

tw_status optimiser_step(optimiser *o, float rate, const float *gradients, float *parameters)
{
    optimiser_begin(o, rate);
    return optimiser_step_range(o, 0, o->parameter_count, gradients, parameters);
}

tw_status optimiser_propose(optimiser *o, float rate, const float *parameters, float *gradients)
{
    const stretch range = {.end = o->parameter_count};
    optimiser_begin(o, rate);
    return optimiser_run(o, pass_with(o, gradients), &range, parameters, gradients, 0);
}

/* Where parameter i goes with a gradient that leaves the moments as they are. */
static float heading(const optimiser *o, const pass *p, float decay, float w, size_t i)
{
    const optimiser_settings s = o->settings;
    if (s.kind == OPTIMISER_SGD) return o->momentum[i];
    const float direction =
        p->correction * o->momentum[i] / (p->correct_square * sqrtf(o->second_moment[i]) + s.epsilon);
    return s.kind == OPTIMISER_ADAM ? direction : direction + decay * w;
}

void optimiser_foresee(const optimiser *o, float rate, size_t steps, size_t begin, size_t end, const float *parameters,
                       float *later)
{
    const pass p = corrected(o);
    const stretch range = {.begin = begin, .end = end};
    const int knows = o->settings.kind == OPTIMISER_SGD ? o->settings.momentum > 0 : o->steps > 0;
    const float far = knows ? rate * (float)steps : 0;
    size_t first = 0;
    memcpy(later, parameters + begin, (end - begin) * sizeof *later);
    for (size_t t = 0; t < o->tensor_count && first < end && far > 0; first += tw_tensor_count(&o->tensors[t++])) {
        const stretch all = cut(o, t, first, &range);
        if (t < o->held || (o->settings.kind == OPTIMISER_MUON && muon_takes(&o->tensors[t]))) continue;
        for (size_t i = all.begin; i < all.end; i++)
            later[i - begin] -= far * heading(o, &p, all.decay, parameters[i], i);
    }
}

size_t optimiser_arrays(optimiser *o, float *arrays[OPTIMISER_BUFFERS])
{
    arrays[0] = o->momentum;
    arrays[1] = o->second_moment;
    return o->settings.kind == OPTIMISER_SGD ? 1 : 2;
}

void optimiser_show(optimiser *o, float *const *shown)
{
    memcpy(o->shown, shown, optimiser_arrays(o, (float *[OPTIMISER_BUFFERS]){0}) * sizeof *shown);
}

size_t optimiser_buffers(optimiser *o, optimiser_buffer buffers[OPTIMISER_BUFFERS])
{
    static const tw_tensor steps = {.name = "steps"};
    buffers[0] = (optimiser_buffer){"momentum.", o->tensors, o->tensor_count, o->shown[0], o->parameter_count};
    if (o->settings.kind == OPTIMISER_SGD) return 1;
    buffers[1] = (optimiser_buffer){"second_moment.", o->tensors, o->tensor_count, o->shown[1], o->parameter_count};
    buffers[2] = (optimiser_buffer){"", &steps, 1, &o->steps, 1};
    return 3;
}

/* A buffer's names: OPTIMISER_PREFIX, then its own prefix. */
enum { PREFIX = 64 };

static const char *prefix_of(const optimiser_buffer *b, char prefix[PREFIX])
{
    snprintf(prefix, PREFIX, OPTIMISER_PREFIX "%s", b->prefix);
    return prefix;
}

tw_status optimiser_save(optimiser *o, tw_state *state)
{
    char prefix[PREFIX];
    optimiser_buffer buffers[OPTIMISER_BUFFERS];
    size_t count = optimiser_buffers(o, buffers);
    for (const optimiser_buffer *b = buffers; b < buffers + count; b++)
        TW_TRY(tensor_table_put(state, prefix_of(b, prefix), b->tensors, b->tensor_count, b->values));
    return TW_OK;
}

tw_status optimiser_load(optimiser *o, const tw_state *state)
{
    char prefix[PREFIX];
    optimiser_buffer buffers[OPTIMISER_BUFFERS];
    size_t count = optimiser_buffers(o, buffers);
    for (const optimiser_buffer *b = buffers; b < buffers + count; b++)
        TW_TRY(tensor_table_get(state, prefix_of(b, prefix), b->tensors, b->tensor_count, b->values));
    return TW_OK;
}
