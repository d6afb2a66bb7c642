/* Schemes from outside that choose elements: what they choose goes the way of the library's own sparse ones. */
#include "outside.h"

#include "error.h"
#include "kernels.h"
#include "sparse.h"

#include <math.h>
#include <stdio.h>

enum { BLOCK = 1024 };

typedef struct chosen {
    tw_sparse sparse;
    tw_velocity velocity; /* of the leftovers, where the definition has a momentum */
    uint64_t chose;       /* the last step in which it chose of a tensor, by scheme->begun */
    char fault[192];      /* the first thing that the definition did and must not */
} chosen;

static const tw_option options[] = {
    TW_OPTION_FEEDBACK(tw_sparse, "on"),
    TW_OPTION_VALUES("log8"),
    TW_OPTIONS_INDICES,
};

static int has_momentum(const chosen *self)
{
    return tw_outside_definition(&self->sparse.scheme)->momentum != NULL;
}

/* All of the gradient, in the pass that looks at it; nothing stands out beyond infinity. */
static void accumulate_plainly(tw_sparse *sparse, size_t tensor)
{
    uint32_t index[BLOCK];
    float value[BLOCK];
    tw_accumulation accumulation;
    tw_select_source source = tw_sparse_accumulate(sparse, tensor, &accumulation);
    size_t n = sparse->scheme.tensors[tensor].count;
    for (size_t first = 0; first < n; first += BLOCK)
        source.pass(source.context, first, n - first < BLOCK ? n - first : BLOCK, INFINITY, index, value);
}

static void outside_chosen_accumulate(tw_sparse *sparse, size_t tensor)
{
    tw_scheme *scheme = &sparse->scheme;
    const tw_scheme_definition *definition = tw_outside_definition(scheme);
    if (definition->accumulate)
        definition->accumulate(tw_outside_self(scheme), scheme, tensor, scheme->scale, scheme->gradients[tensor],
                               tw_sparse_residual(sparse, tensor));
    else
        accumulate_plainly(sparse, tensor);
}

static int is_sound(const tw_support *support, size_t n)
{
    int sound = support->count <= support->most && (!support->count || support->index[0] < n);
    for (size_t j = 0; sound && j < support->count; j++) {
        if (j && (support->index[j] <= support->index[j - 1] || support->index[j] >= n)) sound = 0;
        if (!isfinite(support->value[j])) sound = 0;
    }
    return sound;
}

static void note_fault(chosen *self, size_t tensor)
{
    const tw_scheme *scheme = &self->sparse.scheme;
    tw_support *support = &self->sparse.support[tensor];
    if (!*self->fault)
        snprintf(self->fault, sizeof self->fault,
                 "scheme %s: choose returned %zu elements of %.64s; they must be at most %zu, ascend and be finite",
                 scheme->ops->name, support->count, scheme->tensors[tensor].name, support->most);
    support->count = 0;
}

static void outside_chosen_take(tw_sparse *sparse, size_t tensor)
{
    tw_scheme *scheme = &sparse->scheme;
    tw_support *support = &sparse->support[tensor];
    ((chosen *)sparse)->chose = scheme->begun;
    outside_chosen_accumulate(sparse, tensor);
    support->count = tw_outside_definition(scheme)->choose(tw_outside_self(scheme), scheme, tensor,
                                                           tw_sparse_residual(sparse, tensor), support->most,
                                                           support->index, support->value);
    if (!is_sound(support, scheme->tensors[tensor].count)) note_fault((chosen *)sparse, tensor);
    tw_sparse_send(sparse, tensor);
}

static void outside_chosen_complete(tw_sparse *sparse)
{
    chosen *self = (chosen *)sparse;
    int nesterov = 0;
    if (!has_momentum(self)) return;
    float momentum = sparse->scheme.ops->momentum(&sparse->scheme, &nesterov);
    tw_velocity_apply(&self->velocity, momentum, nesterov);
}

static tw_status outside_chosen_create(tw_scheme *scheme)
{
    chosen *self = (chosen *)scheme;
    double density = tw_outside_definition(scheme)->density(tw_outside_self(scheme));
    if (!(density > 0 && density <= 1))
        return tw_fail(TW_ERROR_ARGUMENT, "scheme %s: its density is %g, not above 0 and at most 1", scheme->ops->name,
                       density);
    tw_sparse_settings settings = {
        .density = density, .most_density = density, .take = outside_chosen_take, .complete = outside_chosen_complete};
    self->sparse.min_sent = 1;
    TW_TRY(tw_sparse_create(scheme, &settings));
    if (has_momentum(self)) TW_TRY(tw_velocity_create(&self->velocity, &self->sparse.gather.leftovers, 0));
    return tw_outside_create(scheme);
}

static tw_status outside_chosen_next(tw_scheme *scheme, tw_round *round)
{
    chosen *self = (chosen *)scheme;
    if (has_momentum(self) && scheme->phase == 0) tw_velocity_mark(&self->velocity);
    tw_status status = tw_sparse_next(scheme, round);
    return *self->fault ? tw_fail(TW_ERROR_ARGUMENT, "%s", self->fault) : status;
}

static void outside_chosen_revert(tw_scheme *scheme)
{
    if (has_momentum((chosen *)scheme)) tw_velocity_revert(&((chosen *)scheme)->velocity);
    tw_sparse_revert(scheme);
    if (((chosen *)scheme)->chose == scheme->begun) tw_outside_revert(scheme);
}

static tw_status outside_chosen_walk(tw_scheme *scheme, tw_walk *visitor)
{
    TW_TRY(tw_sparse_walk(scheme, visitor));
    if (has_momentum((chosen *)scheme)) TW_TRY(tw_velocity_walk(&((chosen *)scheme)->velocity, visitor));
    return tw_outside_walk(scheme, visitor);
}

static void outside_chosen_destroy(tw_scheme *scheme)
{
    tw_outside_destroy(scheme);
    tw_velocity_destroy(&((chosen *)scheme)->velocity);
    tw_sparse_destroy(scheme);
}

const tw_scheme_ops tw_outside_chosen = {
    .one_pass = 1,
    .struct_size = sizeof(chosen),
    TW_OPTIONS(options),
    .create = outside_chosen_create,
    .next = outside_chosen_next,
    .revert = outside_chosen_revert,
    .walk = outside_chosen_walk,
    .plan = tw_sparse_plan,
    .destroy = outside_chosen_destroy,
};

size_t tw_scheme_choose_largest(tw_scheme *scheme, size_t tensor, const float *values, size_t most, float above,
                                uint32_t *index, float *value)
{
    int is_chosen = scheme && scheme->ops->create == outside_chosen_create;
    if (!is_chosen || !values || !index || !value || !tw_scheme_is_compressed(scheme, tensor)) return 0;
    tw_sparse *sparse = (tw_sparse *)scheme;
    tw_support *support = &sparse->support[tensor];
    tw_select_source source = tw_select_from((float *)(uintptr_t)values); /* which only reads them */
    sparse->selector.hint = &support->hint;
    if (most > support->most) most = support->most;
    return tw_select_above(&sparse->selector, &source, scheme->tensors[tensor].count, most, above > 0 ? above : 0,
                           index, value);
}
