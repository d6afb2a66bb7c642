/* tw_scheme_save_state, tw_scheme_load_state: one walk over what a scheme remembers, with several visitors. Entries are
 * named after tensors, so how tensors were fused into messages does not matter; the count of steps, which all messages
 * of a reducer share, has one name for all of them. */
#include "compress.h"

#include "error.h"
#include "half.h"
#include "kernels.h"
#include "memory.h"
#include "state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PREFIX = 255, MAX_KEY = 1024 };

/* What would be lost, or mean another thing, in a scheme that has no place for it. */
static const struct {
    const char *what, *told;
} owned[] = {{"section", "was held back with exchange=scatter"},
             {"momentum", "is a momentum"},
             {"second_moment", "is a second moment of Adam's"}};
enum { OWNED = sizeof owned / sizeof *owned };

/* What a walk carries: where to, or where from. */
typedef struct state_walk {
    tw_walk walk; /* first, so that the visitor finds the rest */
    const char *prefix;
    tw_state *dst;
    const tw_state *src;
    size_t found[OWNED]; /* in src */
} state_walk;

static void make_key(char key[MAX_KEY], const state_walk *walk, const tw_remembered *entry)
{
    snprintf(key, MAX_KEY, "%s%s/%s", walk->prefix, entry->what, entry->tensor);
}

static tw_status save(tw_walk *walk, const tw_remembered *entry)
{
    const state_walk *self = (const state_walk *)walk;
    char key[MAX_KEY];
    make_key(key, self, entry);
    return tw_state_put(self->dst, key, entry->dtype, 1, &entry->count, entry->data);
}

static int is_kept(double value)
{
    return fabs(value) <= TW_LARGEST_KEPT;
}

/* A NaN in a residual would never leave it, nor what is as good as infinite. */
static int all_sound(tw_dtype dtype, const void *data, size_t count)
{
    int sound = 1;
    if (dtype == TW_F32) return (double)tw_kernels_best()->quantise->peak(data, count) <= TW_LARGEST_KEPT;
    for (size_t i = 0; dtype == TW_F64 && i < count; i++) sound &= is_kept(((const double *)data)[i]);
    for (size_t i = 0; dtype == TW_F16 && i < count; i++) sound &= is_kept(tw_from_fp16(((const uint16_t *)data)[i]));
    for (size_t i = 0; dtype == TW_BF16 && i < count; i++) sound &= is_kept(tw_from_bf16(((const uint16_t *)data)[i]));
    return sound;
}

/* A state from before there were pieces, or rates of single tensors, has none. */
static int is_lacking(const state_walk *walk, const tw_remembered *entry, const char *key)
{
    int is_younger = entry->is_piece || strcmp(entry->what, "told") == 0;
    return is_younger && !tw_state_has(walk->src, key);
}

static tw_status check_sound(const char *key, tw_dtype dtype, const void *data, size_t count)
{
    if (all_sound(dtype, data, count)) return TW_OK;
    return tw_fail(TW_ERROR_STATE, "tensor '%s' of the saved state holds NaN, infinity or a value beyond %g", key,
                   TW_LARGEST_KEPT);
}

static tw_status scheme_state_check(tw_walk *walk, const tw_remembered *entry)
{
    state_walk *self = (state_walk *)walk;
    const tw_state_tensor *stored = NULL;
    char key[MAX_KEY];
    make_key(key, self, entry);
    if (is_lacking(self, entry, key)) return TW_OK;
    for (size_t k = 0; k < OWNED; k++) self->found[k] += strcmp(entry->what, owned[k].what) == 0;
    TW_TRY(tw_state_find(self->src, key, entry->dtype, entry->count, &stored));
    return check_sound(key, entry->dtype, stored->data, entry->count);
}

static tw_status check_own(tw_walk *walk, const tw_remembered *entry)
{
    char key[MAX_KEY];
    make_key(key, (const state_walk *)walk, entry);
    return check_sound(key, entry->dtype, entry->data, entry->count);
}

static tw_status scheme_state_load(tw_walk *walk, const tw_remembered *entry)
{
    const state_walk *self = (const state_walk *)walk;
    char key[MAX_KEY];
    make_key(key, self, entry);
    if (is_lacking(self, entry, key)) {
        memset(entry->data, 0, entry->count * tw_dtypes[entry->dtype].bytes);
        return TW_OK;
    }
    return tw_state_get(self->src, key, entry->dtype, entry->count, entry->data);
}

static tw_status check_open(const tw_scheme *scheme)
{
    if (!scheme->open) return TW_OK;
    return tw_fail(TW_ERROR_ORDER, "a step is under way; save and load between steps");
}

static tw_status scheme_state_check_call(const tw_scheme *scheme, const char *prefix, const tw_state *state)
{
    TW_TRY(tw_need(scheme, "scheme"));
    TW_TRY(tw_need(prefix, "prefix"));
    TW_TRY(tw_need(state, "state"));
    TW_TRY(check_open(scheme));
    if (strlen(prefix) > MAX_PREFIX) return tw_fail(TW_ERROR_ARGUMENT, "the prefix has more than %d bytes", MAX_PREFIX);
    return TW_OK;
}

int tw_scheme_find_elements(const tw_scheme *scheme, const tw_remembered *entry, size_t *tensor)
{
    size_t i = 0;
    while (i < scheme->count && strcmp(scheme->tensors[i].name, entry->tensor) != 0) i++;
    *tensor = i;
    if (i == scheme->count || !tw_remembered_adds_up(entry)) return 0;
    size_t count = scheme->tensors[i].count;
    return entry->first <= count && entry->count <= count - entry->first;
}

int tw_remembered_adds_up(const tw_remembered *entry)
{
    return entry->dtype == TW_F32 || entry->dtype == TW_BF16 || entry->dtype == TW_F64;
}

double tw_remembered_value(const tw_remembered *entry, size_t i)
{
    if (entry->dtype == TW_F64) return ((const double *)entry->data)[i];
    if (entry->dtype == TW_BF16) return tw_from_bf16(((const uint16_t *)entry->data)[i]);
    return ((const float *)entry->data)[i];
}

void tw_remembered_put(const tw_remembered *entry, size_t i, double value)
{
    if (entry->dtype == TW_F64)
        ((double *)entry->data)[i] = value;
    else if (entry->dtype == TW_BF16)
        ((uint16_t *)entry->data)[i] = tw_to_bf16((float)value);
    else
        ((float *)entry->data)[i] = (float)value;
}

tw_status tw_scheme_visit(tw_scheme *scheme, tw_walk *walk)
{
    tw_remembered steps = {
        .what = "scheme", .tensor = "steps", .kind = TW_STATE_SAME, .dtype = TW_U64, .count = 1, .data = &scheme->step};
    TW_TRY(walk->visit(walk, &steps));
    return scheme->ops->walk ? scheme->ops->walk(scheme, walk) : TW_OK;
}

/* For visitors that read or write what is remembered. */
static tw_status visit_settled(tw_scheme *scheme, tw_walk *walk)
{
    scheme->settled = 1;
    if (scheme->ops->settle) scheme->ops->settle(scheme);
    return tw_scheme_visit(scheme, walk);
}

tw_status tw_scheme_save_state(tw_scheme *scheme, const char *prefix, tw_state *state)
{
    state_walk walk = {.walk = {.visit = save}, .prefix = prefix, .dst = state};
    TW_TRY(scheme_state_check_call(scheme, prefix, state));
    return visit_settled(scheme, &walk.walk);
}

/* For a caller's function that reads. */
typedef struct public_walk {
    tw_walk walk;
    tw_state_visit visit;
} public_walk;

static tw_status scheme_state_show(tw_walk *walk, const tw_remembered *entry)
{
    return ((const public_walk *)walk)->visit(walk->context, entry);
}

static tw_status scheme_state_check_visit(const tw_scheme *scheme, tw_state_visit visit, const char *name)
{
    TW_TRY(tw_need(scheme, "scheme"));
    if (!visit) return tw_fail(TW_ERROR_ARGUMENT, "%s is NULL", name);
    return check_open(scheme);
}

tw_status tw_scheme_visit_state(tw_scheme *scheme, tw_state_visit visit, void *context)
{
    public_walk walk = {{scheme_state_show, context}, visit};
    TW_TRY(scheme_state_check_visit(scheme, visit, "visit"));
    return visit_settled(scheme, &walk.walk);
}

/* For one that writes. */
typedef struct asking_walk {
    state_walk into;
    tw_state_visit fill;
    void *context;
} asking_walk;

/* The count of steps, which all messages of a reducer share, is asked for once. */
static tw_status scheme_state_ask(tw_walk *walk, const tw_remembered *entry)
{
    const asking_walk *self = (const asking_walk *)walk;
    tw_remembered asked = *entry;
    char key[MAX_KEY];
    make_key(key, &self->into, entry);
    if (tw_state_has(self->into.dst, key)) return TW_OK;
    TW_TRY(tw_allocate(entry->count, tw_dtypes[entry->dtype].bytes, &asked.data));
    tw_status status = self->fill(self->context, &asked);
    if (status == TW_OK) status = save(walk, &asked);
    tw_free(asked.data);
    return status;
}

tw_status tw_scheme_ask_state(tw_scheme *scheme, tw_state_visit fill, void *context, tw_state *state)
{
    asking_walk walk = {{.walk = {.visit = scheme_state_ask}, .prefix = "", .dst = state}, fill, context};
    TW_TRY(scheme_state_check_visit(scheme, fill, "fill"));
    return tw_scheme_visit(scheme, &walk.into.walk);
}

tw_status tw_scheme_fill_state(tw_scheme *scheme, tw_state_visit fill, void *context)
{
    tw_state *state = NULL;
    TW_TRY(tw_state_create(&state));
    tw_status status = tw_scheme_ask_state(scheme, fill, context, state);
    if (status == TW_OK) status = tw_scheme_load_state(scheme, "", state);
    tw_state_destroy(state);
    return status;
}

static tw_status count_bytes(tw_walk *walk, const tw_remembered *entry)
{
    uint64_t *bytes = walk->context;
    int of_all = strcmp(entry->what, "scheme") == 0; /* all messages have the same, and a reducer saves it once */
    if (!of_all) *bytes += (uint64_t)entry->count * tw_dtypes[entry->dtype].bytes;
    return TW_OK;
}

uint64_t tw_scheme_state_bytes(const tw_scheme *scheme)
{
    uint64_t bytes = 0;
    tw_walk walk = {.visit = count_bytes, .context = &bytes};
    if (scheme && scheme->ops->walk) (void)scheme->ops->walk((tw_scheme *)scheme, &walk);
    return bytes;
}

static tw_status check_owned(const tw_scheme *scheme, const state_walk *walk, size_t k)
{
    char key[MAX_KEY];
    size_t saved = 0;
    for (size_t i = 0; i < scheme->count; i++) {
        make_key(key, walk, &(tw_remembered){.what = owned[k].what, .tensor = scheme->tensors[i].name});
        if (!tw_state_has(walk->src, key) || ++saved <= walk->found[k]) continue;
        return tw_fail(TW_ERROR_STATE,
                       "tensor '%s' of the saved state %s, for which %s has no place; go on with the scheme and the "
                       "options that it was saved with",
                       key, owned[k].told, scheme->ops->name);
    }
    return TW_OK;
}

/* Nothing is settled: a load that is refused leaves even the last step as it was. */
tw_status tw_scheme_check_state(tw_scheme *scheme, const char *prefix, const tw_state *state)
{
    state_walk walk = {.walk = {.visit = scheme_state_check}, .prefix = prefix, .src = state};
    TW_TRY(scheme_state_check_call(scheme, prefix, state));
    TW_TRY(tw_scheme_visit(scheme, &walk.walk));
    for (size_t k = 0; k < OWNED; k++) TW_TRY(check_owned(scheme, &walk, k));
    return TW_OK;
}

tw_status tw_scheme_check_remembered(tw_scheme *scheme, const char *prefix)
{
    state_walk walk = {.walk = {.visit = check_own}, .prefix = prefix};
    return tw_scheme_visit(scheme, &walk.walk);
}

tw_status tw_scheme_load_state(tw_scheme *scheme, const char *prefix, const tw_state *state)
{
    state_walk walk = {.walk = {.visit = scheme_state_load}, .prefix = prefix, .src = state};
    TW_TRY(tw_scheme_check_state(scheme, prefix, state)); /* all of it, before anything changes */
    TW_TRY(visit_settled(scheme, &walk.walk));
    scheme->revertible = 0; /* the last step here is not the one the state comes from */
    return TW_OK;
}
