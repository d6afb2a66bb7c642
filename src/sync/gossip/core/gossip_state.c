/* What a gossip remembers, and saving and loading it. */
#include "error.h"
#include "gossip.h"
#include "gossip_host.h"
#include "gossip_pass.h"
#include "kernels.h"
#include "memory.h"

#include <stdio.h>
#include <string.h>

tw_status tw_gossip_remember_other(tw_gossip *gossip, const char *what, const char *of, int whose, float **values)
{
    if (gossip->memory_count == TW_MOST_MEMORIES)
        return tw_fail(TW_ERROR_UNSUPPORTED, "a gossip remembers at most %d things", TW_MOST_MEMORIES);
    TW_TRY(tw_allocate(gossip->elements, sizeof **values, values));
    gossip->memories[gossip->memory_count++] = (tw_memory){what, *values, of, whose};
    return TW_OK;
}

tw_status tw_gossip_remember(tw_gossip *gossip, const char *what, float **values)
{
    return tw_gossip_remember_other(gossip, what, NULL, 0, values);
}

/* A walk over what is remembered, of which the counter belongs to no tensor; saving, loading and showing it are three
 * visitors. */
typedef struct state_walk state_walk;
struct state_walk {
    tw_status (*visit)(const state_walk *walk, const tw_remembered *entry, const tw_tensor *tensor);
    const char *prefix;
    tw_state *dst;
    const tw_state *src;
    float *read;       /* of all that is remembered: what comes from src, */
    uint64_t *counted; /* and the counter */
    tw_state_visit show;
    void *context;
};

static tw_status walk_memory(const tw_gossip *gossip, const tw_memory *memory, state_walk *walk)
{
    float *values = memory->values;
    for (size_t i = 0; i < gossip->count; i++) {
        const tw_tensor *tensor = &gossip->tensors[i];
        size_t count = tw_tensor_count(tensor);
        tw_remembered entry = {.what = memory->what,
                               .tensor = tensor->name,
                               .kind = memory->of ? TW_STATE_OWN : TW_STATE_AVERAGES,
                               .dtype = TW_F32,
                               .count = count,
                               .data = values};
        TW_TRY(walk->visit(walk, &entry, tensor));
        values += count;
        if (walk->read) walk->read += count;
    }
    return TW_OK;
}

static tw_status walk_memories(const tw_gossip *gossip, state_walk walk)
{
    for (size_t m = 0; m < gossip->memory_count; m++) TW_TRY(walk_memory(gossip, &gossip->memories[m], &walk));
    if (!gossip->counter) return TW_OK;
    tw_remembered entry = {.what = "steps",
                           .tensor = gossip->ops->name,
                           .kind = TW_STATE_SAME,
                           .dtype = TW_U64,
                           .count = 1,
                           .data = gossip->counter};
    return walk.visit(&walk, &entry, NULL);
}

enum { NAME = 1024 };

static tw_status name_entry(const char *prefix, const char *what, const char *whose, char name[NAME])
{
    size_t length = (size_t)snprintf(name, NAME, "%s%s/%s", prefix, what, whose);
    if (length < NAME) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "the prefix of %zu bytes is too long", strlen(prefix));
}

tw_status tw_gossip_get(const tw_state *state, const char *prefix, const char *what, const char *whose, tw_dtype dtype,
                        size_t count, void *values)
{
    char name[NAME];
    TW_TRY(name_entry(prefix, what, whose, name));
    TW_TRY(tw_state_get(state, name, dtype, count, values));
    if (dtype != TW_F32 || tw_kernels_best()->all_finite(values, count)) return TW_OK;
    return tw_fail(TW_ERROR_STATE, "%s holds NaN or infinity", name);
}

static tw_status gossip_state_put(const state_walk *walk, const tw_remembered *entry, const tw_tensor *tensor)
{
    char name[NAME];
    TW_TRY(name_entry(walk->prefix, entry->what, entry->tensor, name));
    return tw_state_put(walk->dst, name, entry->dtype, tensor ? tensor->dims : 0, tensor ? tensor->shape : NULL,
                        entry->data);
}

static tw_status get(const state_walk *walk, const tw_remembered *entry, const tw_tensor *tensor)
{
    return tw_gossip_get(walk->src, walk->prefix, entry->what, entry->tensor, entry->dtype, entry->count,
                         tensor ? (void *)walk->read : walk->counted);
}

static tw_status gossip_state_show(const state_walk *walk, const tw_remembered *entry, const tw_tensor *tensor)
{
    (void)tensor;
    return walk->show(walk->context, entry);
}

static tw_status gossip_state_check_call(const tw_gossip *gossip, const char *prefix, const tw_state *state)
{
    TW_TRY(tw_gossip_need(gossip));
    TW_TRY(tw_need(prefix, "prefix"));
    return tw_need(state, "state");
}

/* Nobody else works on what is remembered for as long as it lasts. */
static tw_status walk_alone(tw_gossip *gossip, state_walk walk)
{
    tw_pass pass;
    tw_mutex_lock(&gossip->lock);
    tw_status status = gossip->ops->remembers_exchange ? tw_gossip_await(gossip) : TW_OK;
    tw_pass_begin(gossip, &pass);
    tw_pass_alone(gossip, &pass);
    tw_mutex_unlock(&gossip->lock);
    if (status == TW_OK) status = walk_memories(gossip, walk);
    tw_pass_break(gossip, &pass);
    return status;
}

tw_status tw_gossip_save_state(tw_gossip *gossip, const char *prefix, tw_state *state)
{
    TW_TRY(gossip_state_check_call(gossip, prefix, state));
    return walk_alone(gossip, (state_walk){.visit = gossip_state_put, .prefix = prefix, .dst = state});
}

tw_status tw_gossip_visit_state(tw_gossip *gossip, tw_state_visit visit, void *context)
{
    TW_TRY(tw_gossip_need(gossip));
    if (!visit) return tw_fail(TW_ERROR_ARGUMENT, "visit is NULL");
    return walk_alone(gossip, (state_walk){.visit = gossip_state_show, .show = visit, .context = context});
}

/* Everything is read before anything changes. */
static tw_status gossip_state_load(tw_gossip *gossip, const char *prefix, const tw_state *state, float *read)
{
    uint64_t counted = 0;
    TW_TRY(walk_memories(
        gossip, (state_walk){.visit = get, .prefix = prefix, .src = state, .read = read, .counted = &counted}));
    for (size_t m = 0; m < gossip->memory_count; m++)
        memcpy(gossip->memories[m].values, read + m * gossip->elements, gossip->elements * sizeof *read);
    if (gossip->counter) *gossip->counter = counted;
    gossip->loaded = 1;
    return TW_OK;
}

static tw_status load_alone(tw_gossip *gossip, const char *prefix, const tw_state *state)
{
    float *read;
    if (gossip->begun) return tw_fail(TW_ERROR_ORDER, "load the state before the first read, add or finish");
    TW_TRY(tw_allocate(gossip->memory_count * gossip->elements, sizeof *read, &read));
    tw_status status = gossip_state_load(gossip, prefix, state, read);
    tw_free(read);
    return status;
}

tw_status tw_gossip_load_state(tw_gossip *gossip, const char *prefix, const tw_state *state)
{
    TW_TRY(gossip_state_check_call(gossip, prefix, state));
    tw_status status = load_alone(gossip, prefix, state);
    return gossip->host.members ? tw_host_show(gossip, status) : status;
}
