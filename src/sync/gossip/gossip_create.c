/* Making and freeing a tw_gossip. */
#include "agreement.h"
#include "channel.h"
#include "error.h"
#include "gossip.h"
#include "gossip_host.h"
#include "gossip_registry.h"
#include "held.h"
#include "kernels.h"
#include "memory.h"
#include "table.h"

#include <string.h>

static tw_status check_weights(const tw_gossip *gossip, const float *const *weights)
{
    TW_TRY(tw_need(weights, "weights"));
    for (size_t i = 0; i < gossip->count; i++) {
        if (!weights[i]) return tw_fail(TW_ERROR_ARGUMENT, "weights[%zu], of %s, is NULL", i, gossip->tensors[i].name);
        if (!tw_kernels_best()->all_finite(weights[i], tw_tensor_count(&gossip->tensors[i])))
            return tw_fail(TW_ERROR_ARGUMENT, "the weights of %s hold NaN or infinity", gossip->tensors[i].name);
    }
    return TW_OK;
}

static void copy_weights(tw_gossip *gossip, const float *const *weights)
{
    float *dst = gossip->weights;
    for (size_t i = 0; i < gossip->count; i++) {
        size_t count = tw_tensor_count(&gossip->tensors[i]);
        memcpy(dst, weights[i], count * sizeof *dst);
        dst += count;
    }
}

/* Memory that is not taken before the first read. */
static tw_status create_given(tw_gossip *gossip)
{
    if (gossip->host.size > 1) return TW_OK;
    TW_TRY(tw_allocate_sparse(gossip->elements * sizeof *gossip->given, &gossip->given));
    TW_TRY(tw_allocate(gossip->count, sizeof *gossip->given_parts, &gossip->given_parts));
    float *part = gossip->given;
    for (size_t i = 0; i < gossip->count; part += tw_tensor_count(&gossip->tensors[i++])) gossip->given_parts[i] = part;
    return TW_OK;
}

static tw_status create_lock(tw_gossip *gossip)
{
    TW_TRY(tw_mutex_create(&gossip->lock));
    gossip->lock_made = 1;
    TW_TRY(tw_condition_create(&gossip->changed));
    gossip->condition_made = 1;
    return TW_OK;
}

static tw_status start_thread(tw_gossip *gossip)
{
    void *(*run)(void *) = gossip->ops->exchange ? tw_gossip_run_tasks : tw_gossip_run_rounds;
    TW_TRY(tw_thread_start(&gossip->thread, run, gossip));
    gossip->thread_made = 1;
    return TW_OK;
}

/* Who gossips, with which options, of what. */
static tw_status gossip_create_describe(tw_gossip *gossip, const char *spec, const tw_tensor *tensors, size_t count)
{
    TW_TRY(tw_gossip_find(spec, &gossip->ops)); /* again, for its text: the struct had to be made in any case */
    TW_TRY(tw_gossip_parse(gossip, spec));
    TW_TRY(tw_host_prepare(gossip));
    TW_TRY(tw_table_keep(tensors, count, &gossip->tensors));
    for (; gossip->count < count; gossip->count++) gossip->elements += tw_tensor_count(&tensors[gossip->count]);
    return TW_OK;
}

static tw_status create_memories(tw_gossip *gossip)
{
    TW_TRY(tw_gossip_remember(gossip, "weights", &gossip->weights));
    gossip->shown = gossip->weights;
    return gossip->ops->create(gossip);
}

/* All that can be done alone. */
static tw_status gossip_create_prepare(tw_gossip *gossip, const char *spec, const tw_tensor *tensors, size_t count,
                                       const float *const *weights, tw_gossip **out)
{
    TW_TRY(tw_need(out, "gossip"));
    TW_TRY(tw_isa_check());
    TW_TRY(gossip_create_describe(gossip, spec, tensors, count));
    TW_TRY(check_weights(gossip, weights));
    TW_TRY(create_lock(gossip));
    gossip->ended = !tw_host_is_first(gossip); /* another gossips for it */
    if (gossip->ended) return TW_OK;
    TW_TRY(create_given(gossip));
    TW_TRY(create_memories(gossip));
    copy_weights(gossip, weights);
    if (gossip->survive && gossip->host.size == 1) TW_TRY(tw_gossip_survive(gossip));
    return start_thread(gossip);
}

/* Nobody goes on before every rank's host stands. */
static tw_status join_host(tw_gossip *gossip, const char *spec)
{
    tw_status joined = tw_host_join(gossip);
    return tw_agree(gossip->host.everybody, "gossip", joined, spec, 0, gossip->tensors, gossip->count);
}

/* Rank 0's weights are where all begin. */
static tw_status spread_start(tw_gossip *gossip)
{
    size_t bytes = gossip->elements * sizeof *gossip->weights;
    TW_TRY(tw_channel_broadcast_into(gossip->channel, 0, gossip->weights, bytes));
    if (gossip->ops->start) gossip->ops->start(gossip);
    return TW_OK;
}

static tw_status gossip_create_build(tw_gossip *gossip, tw_comm *comm, const char *spec, const tw_tensor *tensors,
                                     size_t count, const float *const *weights, tw_gossip **out)
{
    unsigned views = (unsigned)tw_comm_size(comm); /* a group can shrink so often */
    TW_TRY(tw_channel_create_again(comm, views + TW_MORE_CHANNELS, &gossip->channel));
    gossip->view = gossip->channel;
    tw_status prepared = gossip_create_prepare(gossip, spec, tensors, count, weights, out);
    TW_TRY(tw_agree(gossip->channel, "gossip", prepared, spec, 0, tensors, count));
    if (gossip->host.size > 1) TW_TRY(join_host(gossip, spec));
    tw_status status = tw_host_is_first(gossip) ? spread_start(gossip) : TW_OK;
    return gossip->host.members ? tw_host_show(gossip, status) : status;
}

tw_status tw_gossip_create(tw_comm *comm, const char *spec, const tw_tensor *tensors, size_t count,
                           const float *const *weights, tw_gossip **out)
{
    tw_gossip *gossip;
    const tw_gossip_ops *ops = NULL;
    TW_TRY(tw_comm_need(comm));
    (void)tw_gossip_find(spec, &ops); /* a bad spec is told to the others first */
    tw_status status = tw_allocate(1, ops ? ops->struct_size : sizeof *gossip, &gossip);
    if (status != TW_OK) return tw_channel_give_up(comm->channel, status); /* the others wait to hear of it */
    gossip->rank = tw_comm_rank(comm);
    gossip->size = tw_comm_size(comm);
    gossip->rumour.stop = TW_NO_STOP;
    status = gossip_create_build(gossip, comm, spec, tensors, count, weights, out);
    if (status != TW_OK) {
        tw_gossip_destroy(gossip);
        return status;
    }
    tw_mutex_lock(&gossip->lock);
    gossip->made = 1;
    tw_condition_wake_all(&gossip->changed);
    tw_mutex_unlock(&gossip->lock);
    *out = gossip;
    return TW_OK;
}

tw_status tw_gossip_sketch(const char *spec, const tw_tensor *tensors, size_t count, int rank, int size,
                           tw_gossip **out)
{
    const tw_gossip_ops *ops = NULL;
    tw_gossip *gossip;
    TW_TRY(tw_isa_check());
    TW_TRY(tw_gossip_find(spec, &ops));
    TW_TRY(tw_allocate(1, ops->struct_size, &gossip));
    gossip->rank = rank;
    gossip->size = size;
    tw_status status = gossip_create_describe(gossip, spec, tensors, count);
    if (status == TW_OK) status = create_lock(gossip);
    if (status == TW_OK && tw_host_is_first(gossip)) status = create_memories(gossip);
    if (status == TW_OK)
        *out = gossip;
    else
        tw_gossip_destroy(gossip);
    return status;
}

static void stop_thread(tw_gossip *gossip)
{
    if (!gossip->thread_made) return;
    tw_mutex_lock(&gossip->lock);
    gossip->stopping = 1;
    tw_condition_wake_all(&gossip->changed);
    tw_mutex_unlock(&gossip->lock);
    tw_thread_join(gossip->thread);
}

void tw_gossip_destroy(tw_gossip *gossip)
{
    const tw_comm *comm = gossip ? tw_gossip_comm(gossip) : NULL; /* NULL: create failed early */
    if (!gossip || (comm && tw_process_is_child(comm->process))) return;
    stop_thread(gossip);
    if (gossip->condition_made) tw_condition_destroy(&gossip->changed);
    if (gossip->lock_made) tw_mutex_destroy(&gossip->lock);
    if (gossip->ops && gossip->ops->destroy) gossip->ops->destroy(gossip);
    tw_gossip_release_messages(gossip);
    tw_gossip_release_survivors(gossip);
    tw_schedule_release(&gossip->schedule);
    tw_free(gossip->given_parts);
    tw_free(gossip->given);
    for (size_t i = 0; i < gossip->memory_count; i++) tw_free(gossip->memories[i].values);
    tw_free(gossip->tensors);
    tw_channel_destroy(gossip->channel);
    tw_host_leave(gossip);
    tw_free(gossip);
}
