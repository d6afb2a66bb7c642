/* tw_scheme_save_state, tw_scheme_load_state: one walk over what a scheme remembers, with three visitors. Entries are
 * named after tensors, so how tensors were fused into messages does not matter; the count of steps, which all messages
 * of a reducer share, has one name for all of them. */
#include "compress.h"

#include "error.h"
#include "kernels.h"
#include "state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PREFIX = 255, MAX_KEY = 1024 };

/* What a walk carries: where to, or where from. */
typedef struct state_walk {
    tw_walk walk; /* first, so that the visitor finds the rest */
    const char *prefix;
    tw_state *dst;
    const tw_state *src;
} state_walk;

static void make_key(char key[MAX_KEY], const state_walk *walk, const char *kind, const char *tensor)
{
    snprintf(key, MAX_KEY, "%s%s/%s", walk->prefix, kind, tensor);
}

static tw_status save(tw_walk *walk, const char *kind, const char *tensor, tw_dtype dtype, size_t count, void *data)
{
    const state_walk *self = (const state_walk *)walk;
    char key[MAX_KEY];
    make_key(key, self, kind, tensor);
    return tw_state_put(self->dst, key, dtype, 1, &count, data);
}

/* A NaN in a residual would never leave it, nor what is as good as infinite. */
static int all_sound(tw_dtype dtype, const void *data, size_t count)
{
    const tw_kernels *kernels = tw_kernels_best();
    int sound = 1;
    if (dtype == TW_F32)
        return kernels->all_finite(data, count) && (double)kernels->quantise->peak(data, count) <= TW_LARGEST_KEPT;
    for (size_t i = 0; dtype == TW_F64 && i < count; i++) sound &= fabs(((const double *)data)[i]) <= TW_LARGEST_KEPT;
    return sound;
}

static tw_status check(tw_walk *walk, const char *kind, const char *tensor, tw_dtype dtype, size_t count, void *data)
{
    const state_walk *self = (const state_walk *)walk;
    const tw_state_tensor *entry = NULL;
    char key[MAX_KEY];
    (void)data;
    make_key(key, self, kind, tensor);
    if (walk->or_zero && !tw_state_has(self->src, key)) return TW_OK;
    TW_TRY(tw_state_find(self->src, key, dtype, count, &entry));
    if (!all_sound(dtype, entry->data, count))
        return tw_fail(TW_ERROR_STATE, "tensor '%s' of the saved state holds NaN, infinity or a value beyond %g", key,
                       TW_LARGEST_KEPT);
    return TW_OK;
}

static tw_status load(tw_walk *walk, const char *kind, const char *tensor, tw_dtype dtype, size_t count, void *data)
{
    const state_walk *self = (const state_walk *)walk;
    char key[MAX_KEY];
    make_key(key, self, kind, tensor);
    if (walk->or_zero && !tw_state_has(self->src, key)) {
        memset(data, 0, count * sizeof(float));
        return TW_OK;
    }
    return tw_state_get(self->src, key, dtype, count, data);
}

static tw_status check_call(const tw_scheme *scheme, const char *prefix, const tw_state *state)
{
    TW_TRY(tw_need(scheme, "scheme"));
    TW_TRY(tw_need(prefix, "prefix"));
    TW_TRY(tw_need(state, "state"));
    if (scheme->open) return tw_fail(TW_ERROR_ORDER, "a step is under way; save and load between steps");
    if (strlen(prefix) > MAX_PREFIX) return tw_fail(TW_ERROR_ARGUMENT, "the prefix has more than %d bytes", MAX_PREFIX);
    return TW_OK;
}

static tw_status visit_steps(tw_scheme *scheme, state_walk *walk)
{
    return walk->walk.visit(&walk->walk, "scheme", "steps", TW_U64, 1, &scheme->step);
}

/* For visitors that read or write what is remembered. */
static tw_status visit_all(tw_scheme *scheme, state_walk *walk)
{
    scheme->settled = 1;
    TW_TRY(visit_steps(scheme, walk));
    return tw_scheme_walk(scheme, &walk->walk);
}

tw_status tw_scheme_save_state(tw_scheme *scheme, const char *prefix, tw_state *state)
{
    state_walk walk = {.walk = {.visit = save}, .prefix = prefix, .dst = state};
    TW_TRY(check_call(scheme, prefix, state));
    return visit_all(scheme, &walk);
}

/* Nothing is settled: a load that is refused leaves even the last step as it was. */
tw_status tw_scheme_check_state(tw_scheme *scheme, const char *prefix, const tw_state *state)
{
    state_walk walk = {.walk = {.visit = check}, .prefix = prefix, .src = state};
    TW_TRY(check_call(scheme, prefix, state));
    TW_TRY(visit_steps(scheme, &walk));
    return scheme->ops->walk ? scheme->ops->walk(scheme, &walk.walk) : TW_OK;
}

tw_status tw_scheme_load_state(tw_scheme *scheme, const char *prefix, const tw_state *state)
{
    state_walk walk = {.walk = {.visit = load}, .prefix = prefix, .src = state};
    TW_TRY(tw_scheme_check_state(scheme, prefix, state)); /* all of it, before anything changes */
    TW_TRY(visit_all(scheme, &walk));
    scheme->revertible = 0; /* the last step here is not the one the state comes from */
    return TW_OK;
}
