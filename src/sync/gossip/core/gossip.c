/* tw_gossip: the calls of the worker, between create (gossip_create.c) and the communication thread (gossip_rounds.c,
 * gossip_steps.c). */
#include "gossip.h"

#include "channel.h"
#include "error.h"
#include "gossip_host.h"
#include "memory.h"
#include "sized.h"

#include <string.h>

static tw_status check_pointers(const tw_gossip *gossip, const void *const *pointers, const char *argument)
{
    TW_TRY(tw_gossip_need(gossip));
    TW_TRY(tw_need(pointers, argument));
    for (size_t i = 0; i < gossip->count; i++)
        if (!pointers[i])
            return tw_fail(TW_ERROR_ARGUMENT, "%s[%zu], of %s, is NULL", argument, i, gossip->tensors[i].name);
    return TW_OK;
}

tw_status tw_gossip_read(tw_gossip *gossip, float *const *weights)
{
    TW_TRY(check_pointers(gossip, (const void *const *)weights, "weights"));
    return gossip->host.members ? tw_host_read(gossip, weights) : tw_gossip_read_alone(gossip, weights);
}

tw_status tw_gossip_add(tw_gossip *gossip, const float *const *steps)
{
    TW_TRY(check_pointers(gossip, (const void *const *)steps, "steps"));
    if (gossip->moves)
        return tw_fail(TW_ERROR_ORDER,
                       "this gossip's steps come by tw_gossip_step; tw_gossip_add would be another's way");
    gossip->adds = 1;
    tw_free(gossip->given); /* nobody will ask what it was */
    gossip->given = NULL;
    return gossip->host.members ? tw_host_add(gossip, steps) : tw_gossip_add_alone(gossip, steps);
}

static tw_status check_order(const tw_gossip *gossip)
{
    if (gossip->adds)
        return tw_fail(TW_ERROR_ORDER,
                       "this gossip's steps come by tw_gossip_add; tw_gossip_step would be another's way");
    if (gossip->was_read) return TW_OK;
    return tw_fail(TW_ERROR_ORDER,
                   "tw_gossip_read comes before the first tw_gossip_step: a step begins at what it gave");
}

tw_status tw_gossip_step(tw_gossip *gossip, float *const *weights)
{
    TW_TRY(check_pointers(gossip, (const void *const *)weights, "weights"));
    TW_TRY(check_order(gossip));
    gossip->moves = 1;
    return gossip->host.members ? tw_host_step(gossip, weights) : tw_gossip_step_alone(gossip, weights);
}

tw_status tw_gossip_finish(tw_gossip *gossip, float *const *weights)
{
    TW_TRY(check_pointers(gossip, (const void *const *)weights, "weights"));
    return gossip->host.members ? tw_host_finish(gossip, weights) : tw_gossip_finish_alone(gossip, weights);
}

static void gossip_add_traffic(tw_gossip_counts *stats, const tw_channel *channel)
{
    tw_traffic traffic = channel ? tw_channel_traffic(channel) : (tw_traffic){0};
    stats->bytes_sent += traffic.bytes_sent;
    stats->bytes_received += traffic.bytes_received;
}

tw_status tw_gossip_stats(const tw_gossip *gossip, tw_gossip_counts *stats)
{
    TW_TRY(tw_gossip_need(gossip));
    TW_TRY(tw_need(stats, "stats"));
    tw_mutex *lock = (tw_mutex *)&gossip->lock; /* the communication thread may be writing */
    tw_mutex_lock(lock);
    tw_gossip_counts now = gossip->stats;
    tw_mutex_unlock(lock);
    const tw_host *host = &gossip->host;
    gossip_add_traffic(&now, gossip->channel);
    if (host->members) gossip_add_traffic(&now, host->members->channel);
    gossip_add_traffic(&now, host->everybody);
    now.ranks_lost *= (uint64_t)host->size; /* so far counted in hosts, as is the next */
    now.lowest_rank *= (uint64_t)host->size;
    uint64_t size = (uint64_t)tw_gossip_comm(gossip)->size;
    now.bytes_dense = (now.steps + now.steps_skipped) * (2 * (size - 1) * 4 * gossip->elements / size);
    return tw_copy_sized(stats, &now, sizeof now, "tw_gossip_counts");
}

/* Those that are left, as the gossip numbers them: ranks, or hosts. */
static tw_status list_left(tw_gossip *gossip, int *list, int *count)
{
    tw_mutex_lock(&gossip->lock);
    int concluded = gossip->ended && gossip->concluded;
    tw_mutex_unlock(&gossip->lock);
    if (!concluded)
        return tw_fail(TW_ERROR_ORDER, "the survivors are known after a tw_gossip_finish of a spec with survive=on");
    *count = gossip->size;
    memcpy(list, gossip->ranks, (size_t)gossip->size * sizeof *list);
    return TW_OK;
}

static tw_status create_survivors(tw_gossip *gossip, tw_comm *whole, int *list, tw_comm **survivors)
{
    int count = 0;
    tw_status status = tw_host_is_first(gossip) ? list_left(gossip, list, &count) : TW_OK;
    TW_TRY(gossip->host.members ? tw_host_expand(gossip, status, list, &count) : status);
    return tw_comm_create_part(whole, list, count, survivors);
}

tw_status tw_gossip_survivors(tw_gossip *gossip, tw_comm **survivors)
{
    int *list;
    TW_TRY(tw_gossip_need(gossip));
    TW_TRY(tw_need(survivors, "survivors"));
    tw_comm *whole = tw_gossip_comm(gossip);
    tw_status status = tw_allocate((size_t)whole->size, sizeof *list, &list);
    if (status != TW_OK) return tw_channel_give_up(whole->channel, status); /* the others count on this rank */
    status = create_survivors(gossip, whole, list, survivors);
    tw_free(list);
    return status;
}
