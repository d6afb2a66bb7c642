/* Saving and loading what the schemes of a reducer remember, keyed by tensor name: fusion does not matter. */
#include "error.h"
#include "reducer.h"

#include <stdio.h>
#include <string.h>

enum { MAX_KEY = 1024 };

/* What a walk carries: where to, or where from. */
typedef struct state_walk {
    tw_walk walk; /* first, so that the visitor finds the rest */
    const char *prefix;
    tw_state *dst;
    const tw_state *src;
} state_walk;

static void make_key(char *key, const char *prefix, const char *kind, const char *tensor)
{
    snprintf(key, MAX_KEY, "%s%s/%s", prefix, kind, tensor);
}

static tw_status save(tw_walk *walk, const char *kind, const char *tensor, tw_dtype dtype, size_t count, void *data)
{
    const state_walk *self = (const state_walk *)walk;
    char key[MAX_KEY];
    make_key(key, self->prefix, kind, tensor);
    return tw_state_put(self->dst, key, dtype, 1, &count, data);
}

/* Finds an entry and compares it, without copying. */
static tw_status check_entry(const tw_state *state, const char *key, tw_dtype dtype, size_t bytes)
{
    tw_state_entry entry;
    for (size_t i = 0; i < tw_state_count(state); i++) {
        TW_TRY(tw_state_at(state, i, &entry));
        if (strcmp(entry.name, key) != 0) continue;
        if (entry.dtype == dtype && entry.bytes == bytes) return TW_OK;
        return tw_fail(TW_ERROR_STATE, "%s has %zu bytes in the saved state; this reducer needs %zu", key, entry.bytes,
                       bytes);
    }
    return tw_fail(TW_ERROR_STATE, "%s is missing from the saved state: another scheme, or other tensors", key);
}

static size_t element_bytes(tw_dtype dtype)
{
    return dtype == TW_F64 || dtype == TW_I64 || dtype == TW_U64 ? 8 : dtype == TW_U8 ? 1 : 4;
}

static tw_status check(tw_walk *walk, const char *kind, const char *tensor, tw_dtype dtype, size_t count, void *data)
{
    const state_walk *self = (const state_walk *)walk;
    char key[MAX_KEY];
    (void)data;
    make_key(key, self->prefix, kind, tensor);
    return check_entry(self->src, key, dtype, count * element_bytes(dtype));
}

static tw_status load(tw_walk *walk, const char *kind, const char *tensor, tw_dtype dtype, size_t count, void *data)
{
    const state_walk *self = (const state_walk *)walk;
    char key[MAX_KEY];
    make_key(key, self->prefix, kind, tensor);
    return tw_state_get(self->src, key, dtype, count, data);
}

static tw_status walk_messages(const tw_reducer *reducer, state_walk *walk)
{
    for (size_t m = 0; m < reducer->message_count; m++)
        TW_TRY(tw_scheme_walk(reducer->messages[m].scheme, &walk->walk));
    return TW_OK;
}

static tw_status check_idle(const tw_reducer *reducer, const char *prefix)
{
    if (reducer->missing != reducer->count)
        return tw_fail(TW_ERROR_ORDER, "a step is under way; save and load between steps");
    if (strlen(prefix) > 255) return tw_fail(TW_ERROR_ARGUMENT, "the prefix has more than 255 bytes");
    return TW_OK;
}

tw_status tw_reducer_save_state(const tw_reducer *reducer, const char *prefix, tw_state *state)
{
    char key[MAX_KEY];
    state_walk walk = {.walk = {.visit = save}, .prefix = prefix, .dst = state};
    TW_TRY(check_idle(reducer, prefix));
    make_key(key, prefix, "reducer", "steps");
    TW_TRY(tw_state_put(state, key, TW_U64, 0, NULL, &reducer->messages[0].scheme->step));
    return walk_messages(reducer, &walk);
}

tw_status tw_reducer_load_state(tw_reducer *reducer, const char *prefix, const tw_state *state)
{
    char key[MAX_KEY];
    uint64_t step;
    state_walk walk = {.walk = {.visit = check}, .prefix = prefix, .src = state};
    TW_TRY(check_idle(reducer, prefix));
    make_key(key, prefix, "reducer", "steps");
    TW_TRY(check_entry(state, key, TW_U64, sizeof step));
    TW_TRY(walk_messages(reducer, &walk)); /* everything is checked before anything changes */
    walk.walk.visit = load;
    TW_TRY(tw_state_get(state, key, TW_U64, 1, &step));
    TW_TRY(walk_messages(reducer, &walk));
    for (size_t m = 0; m < reducer->message_count; m++) reducer->messages[m].scheme->step = step;
    return TW_OK;
}
