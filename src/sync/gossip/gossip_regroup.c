/* What a gossip of another number of workers goes on with. Each new rank's weights are the mean of the old ones that
 * lie where it lies, and so are its estimate and all else of its own: the mean over the ranks stays. What it keeps of
 * another rank's becomes the same numbers as that rank's own, as it is made of the same states in the same order. */
#include "error.h"
#include "gossip_registry.h"
#include "hosts.h"
#include "memory.h"
#include "regroup.h"

typedef struct regrouper {
    const char *prefix;
    tw_gossip *gossip;
    tw_regrouping to[TW_MOST_MEMORIES]; /* whose each of its memories is to be */
    float *scratch;                     /* for one tensor */
} regrouper;

static tw_status gossip_regroup_average(const regrouper *self, size_t memory, int old, const tw_state *state)
{
    const tw_gossip *gossip = self->gossip;
    const tw_memory *m = &gossip->memories[memory];
    float *dst = m->values;
    for (size_t i = 0; i < gossip->count; i++) {
        size_t count = tw_tensor_count(&gossip->tensors[i]);
        TW_TRY(tw_gossip_get(state, self->prefix, m->of ? m->of : m->what, gossip->tensors[i].name, TW_F32, count,
                             self->scratch));
        tw_regrouping_average(&self->to[memory], old, self->scratch, count, dst);
        dst += count;
    }
    return TW_OK;
}

/* The mean of the weights that are left is had by giving these alone, as fewer old ranks. */
static tw_status need_state(const tw_state *state)
{
    return state ? TW_OK : tw_fail(TW_ERROR_ARGUMENT, "there is no state");
}

/* Which all had alike. */
static tw_status take_counter(const regrouper *self, const tw_state *state)
{
    if (!self->gossip->counter) return TW_OK;
    return tw_gossip_get(state, self->prefix, "steps", self->gossip->ops->name, TW_U64, 1, self->gossip->counter);
}

static tw_status take_over(void *context, int old, const tw_state *state)
{
    const regrouper *self = context;
    TW_TRY(need_state(state));
    for (size_t m = 0; m < self->gossip->memory_count; m++) TW_TRY(gossip_regroup_average(self, m, old, state));
    return take_counter(self, state);
}

/* As many ranks as before have what they had. */
static tw_status take_own(void *context, int old, const tw_state *state)
{
    const regrouper *self = context;
    TW_TRY(need_state(state));
    return old == self->to->rank ? tw_gossip_load_state(self->gossip, self->prefix, state) : TW_OK;
}

static tw_status create_scratch(regrouper *self)
{
    size_t most = 0;
    for (size_t i = 0; i < self->gossip->count; i++) {
        size_t count = tw_tensor_count(&self->gossip->tensors[i]);
        if (count > most) most = count;
    }
    return tw_allocate(most, sizeof *self->scratch, &self->scratch);
}

/* `old_size` hosts before. */
static tw_status regroup(regrouper *self, int old_size, tw_state_source source, void *context, tw_state *state)
{
    tw_gossip *gossip = self->gossip;
    for (size_t m = 0; m < gossip->memory_count; m++) {
        const tw_memory *memory = &gossip->memories[m];
        self->to[m] = (tw_regrouping){old_size, memory->of ? memory->whose : gossip->rank, gossip->size};
    }
    TW_TRY(create_scratch(self));
    TW_TRY(tw_regrouping_each(self->to, gossip->memory_count, (int)gossip->host.size, source, context,
                              gossip->size == old_size ? take_own : take_over, self));
    return tw_gossip_save_state(gossip, self->prefix, state);
}

tw_status tw_gossip_regroup_state(const char *spec, const tw_tensor *tensors, size_t count, int old_size,
                                  tw_state_source source, void *context, int rank, int size, const char *prefix,
                                  tw_state *state)
{
    regrouper self = {.prefix = prefix};
    tw_regrouping to = {old_size, rank, size};
    TW_TRY(tw_regrouping_check_call(spec, source, prefix, state));
    TW_TRY(tw_regrouping_check(&to));
    TW_TRY(tw_gossip_sketch(spec, tensors, count, rank, size, &self.gossip));
    int per_host = (int)self.gossip->host.size;
    tw_status status = tw_hosts_check(old_size, per_host);
    if (status == TW_OK && rank % per_host == 0) status = regroup(&self, old_size / per_host, source, context, state);
    tw_free(self.scratch);
    tw_gossip_destroy(self.gossip);
    return status;
}
