/* What a gossip remembers, and saving and loading it. */
#include "error.h"
#include "gossip.h"
#include "gossip_host.h"
#include "gossip_pass.h"
#include "kernels.h"
#include "memory.h"

#include <stdio.h>
#include <string.h>

tw_status tw_gossip_remember(tw_gossip *gossip, const char *kind, float **values)
{
    if (gossip->memory_count == TW_MOST_MEMORIES)
        return tw_fail(TW_ERROR_UNSUPPORTED, "a gossip remembers at most %d things", TW_MOST_MEMORIES);
    TW_TRY(tw_allocate(gossip->elements, sizeof **values, values));
    gossip->memories[gossip->memory_count++] = (tw_memory){kind, *values};
    return TW_OK;
}

static tw_status entry_name(const char *prefix, const char *kind, const char *tensor, char *name, size_t room)
{
    size_t length = (size_t)snprintf(name, room, "%s%s/%s", prefix, kind, tensor);
    return length < room ? TW_OK : tw_fail(TW_ERROR_ARGUMENT, "the prefix of %zu bytes is too long", strlen(prefix));
}

static tw_status put_memory(const tw_gossip *gossip, const tw_memory *memory, const char *prefix, tw_state *state)
{
    const float *src = memory->values;
    for (size_t i = 0; i < gossip->count; i++) {
        char name[1024];
        const tw_tensor *tensor = &gossip->tensors[i];
        TW_TRY(entry_name(prefix, memory->kind, tensor->name, name, sizeof name));
        TW_TRY(tw_state_put(state, name, TW_F32, tensor->dims, tensor->shape, src));
        src += tw_tensor_count(tensor);
    }
    return TW_OK;
}

static tw_status get_memory(const tw_gossip *gossip, const tw_memory *memory, const char *prefix, const tw_state *state,
                            float *dst)
{
    for (size_t i = 0; i < gossip->count; i++) {
        char name[1024];
        size_t count = tw_tensor_count(&gossip->tensors[i]);
        TW_TRY(entry_name(prefix, memory->kind, gossip->tensors[i].name, name, sizeof name));
        TW_TRY(tw_state_get(state, name, TW_F32, count, dst));
        if (!tw_kernels_best()->all_finite(dst, count))
            return tw_fail(TW_ERROR_STATE, "%s holds NaN or infinity", name);
        dst += count;
    }
    return TW_OK;
}

static tw_status check_call(const tw_gossip *gossip, const char *prefix, const tw_state *state)
{
    TW_TRY(tw_need(gossip, "gossip"));
    TW_TRY(tw_need(prefix, "prefix"));
    return tw_need(state, "state");
}

tw_status tw_gossip_save_state(tw_gossip *gossip, const char *prefix, tw_state *state)
{
    tw_pass pass;
    TW_TRY(check_call(gossip, prefix, state));
    tw_mutex_lock(&gossip->lock);
    tw_status status = gossip->ops->remembers_exchange ? tw_gossip_await(gossip) : TW_OK;
    tw_pass_begin(gossip, &pass);
    tw_pass_alone(gossip, &pass);
    tw_mutex_unlock(&gossip->lock);
    for (size_t m = 0; status == TW_OK && m < gossip->memory_count; m++)
        status = put_memory(gossip, &gossip->memories[m], prefix, state);
    tw_pass_break(gossip, &pass);
    return status;
}

/* Everything is read before anything changes. */
static tw_status load(tw_gossip *gossip, const char *prefix, const tw_state *state, float *read)
{
    for (size_t m = 0; m < gossip->memory_count; m++)
        TW_TRY(get_memory(gossip, &gossip->memories[m], prefix, state, read + m * gossip->elements));
    for (size_t m = 0; m < gossip->memory_count; m++)
        memcpy(gossip->memories[m].values, read + m * gossip->elements, gossip->elements * sizeof *read);
    gossip->loaded = 1;
    return TW_OK;
}

static tw_status load_alone(tw_gossip *gossip, const char *prefix, const tw_state *state)
{
    float *read;
    if (gossip->begun) return tw_fail(TW_ERROR_ORDER, "load the state before the first read, add or finish");
    TW_TRY(tw_allocate(gossip->memory_count * gossip->elements, sizeof *read, &read));
    tw_status status = load(gossip, prefix, state, read);
    tw_free(read);
    return status;
}

tw_status tw_gossip_load_state(tw_gossip *gossip, const char *prefix, const tw_state *state)
{
    TW_TRY(check_call(gossip, prefix, state));
    tw_status status = load_alone(gossip, prefix, state);
    return gossip->host.members ? tw_host_show(gossip, status) : status;
}
