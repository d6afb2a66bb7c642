/* What the worker's calls, the communication thread and the schemes have in common. */
#include "gossip.h"

#include "channel.h"
#include "error.h"
#include "held.h"
#include "kernels.h"

#include <math.h>
#include <stdio.h>

void tw_gossip_give_up(tw_gossip *gossip, tw_status status)
{
    if (!gossip->host.members) tw_channel_give_up(gossip->view, status);
}

void tw_gossip_sleep_until(tw_gossip *gossip, double end)
{
    if (isinf(end))
        tw_condition_wait(&gossip->changed, &gossip->lock);
    else
        tw_condition_wait_until(&gossip->changed, &gossip->lock, end);
}

void tw_gossip_record_failure(tw_gossip *gossip, tw_status status)
{
    gossip->failure = status;
    snprintf(gossip->failure_text, sizeof gossip->failure_text, "%s", tw_last_error());
}

void tw_gossip_add_steps(float *weights, const tw_gossip *gossip, const float *const *steps)
{
    for (size_t i = 0; i < gossip->count; i++) {
        size_t count = tw_tensor_count(&gossip->tensors[i]);
        tw_kernels_best()->add(weights, steps[i], count);
        weights += count;
    }
}

tw_status tw_gossip_mean(tw_gossip *gossip, float *values)
{
    TW_TRY(tw_channel_allreduce(gossip->view, TW_F32, values, gossip->elements));
    tw_kernels_best()->divide(values, (float)gossip->size, gossip->elements);
    if (tw_kernels_best()->all_finite(values, gossip->elements)) return TW_OK;
    return tw_fail(TW_ERROR_NONFINITE, "the mean over the workers is not finite any more");
}

static const tw_channel *channel_of(const tw_gossip *gossip)
{
    return gossip->host.everybody ? gossip->host.everybody : gossip->channel;
}

tw_comm *tw_gossip_comm(const tw_gossip *gossip)
{
    const tw_channel *channel = channel_of(gossip);
    return channel ? channel->comm : NULL;
}

tw_status tw_gossip_check_left(const tw_gossip *gossip)
{
    const tw_channel *channel = channel_of(gossip);
    return channel ? tw_channel_check_left(channel) : TW_OK;
}

tw_status tw_gossip_need(const tw_gossip *gossip)
{
    TW_TRY(tw_need(gossip, "gossip"));
    tw_comm *comm = tw_gossip_comm(gossip);
    return comm ? tw_comm_need(comm) : TW_OK;
}
