/* pulse - the elements that would change the weights as bf16 has them, in full; the rest is kept (PULSE, 2026, arXiv
 * 2602.03839). Per tensor, with g already scaled by 1/N and w the weights that all ranks share:
 *     v += g
 *     send v, v = 0     where bf16(w) != bf16(w - N v)
 * Who computes in bf16 would not notice the others. The weights are what the outer loop tells of them; where nobody
 * does they count as zero, next to which everything is noticed. How much is sent follows from the gradients. */
#include "sparse.h"

#include <stdio.h>

typedef struct pulse {
    tw_sparse sparse;
    double density;
} pulse;

static const tw_option options[] = {
    {"density", TW_OPTION_REAL, offsetof(pulse, density), "0.05", 1e-7, 1, NULL,
     "fraction that is expected to be sent: where packets of so many would outweigh an all-reduce, that is taken"},
    TW_OPTION_VALUES("fp32"),
    TW_OPTIONS_INDICES,
};

static const tw_preset presets[] = {{"min_dims", "1"}, {NULL, NULL}};

static float as_bf16(float x)
{
    return tw_from_bf16(tw_to_bf16(x));
}

static void pulse_take(tw_sparse *sparse, size_t tensor)
{
    const tw_scheme *scheme = &sparse->scheme;
    const float *g = scheme->gradients[tensor], *weights = scheme->weights ? scheme->weights[tensor] : NULL;
    float *v = tw_sparse_residual(sparse, tensor), size = (float)scheme->size;
    tw_support *support = &sparse->support[tensor];
    support->count = 0;
    for (size_t i = 0; i < scheme->tensors[tensor].count; i++) {
        float w = weights ? weights[i] : 0;
        v[i] += scheme->scale * g[i];
        support->index[support->count] = (uint32_t)i;
        support->value[support->count] = v[i];
        support->count += as_bf16(w) != as_bf16(w - size * v[i]);
    }
    tw_sparse_send(sparse, tensor);
}

/* All of it, if need be. */
static tw_status pulse_create(tw_scheme *scheme)
{
    pulse *self = (pulse *)scheme;
    tw_sparse_settings settings = {.density = self->density, .most_density = 1, .take = pulse_take};
    self->sparse.min_sent = self->sparse.feedback = 1;
    return tw_sparse_create(scheme, &settings);
}

static void pulse_plan(const tw_scheme *scheme, size_t tensor, char *text, size_t capacity)
{
    snprintf(text, capacity, "pulse: of %zu elements those that bf16 would notice%s", scheme->tensors[tensor].count,
             tw_gather_road(&((const pulse *)scheme)->sparse.gather));
}

const tw_scheme_ops tw_scheme_pulse = {
    .name = "pulse",
    .summary = "what would change the weights in bf16, the rest kept for later",
    .floor_bytes = 16,
    .struct_size = sizeof(pulse),
    TW_OPTIONS(options),
    .preset = presets,
    .create = pulse_create,
    .plan = pulse_plan,
    TW_SPARSE_STEPS,
};
