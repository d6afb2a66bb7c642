/* tw_gossip: the calls of the worker, between create (gossip_create.c) and the communication thread (gossip_rounds.c,
 * gossip_steps.c). */
#include "gossip.h"

#include "channel.h"
#include "error.h"
#include "gossip_host.h"
#include "gossip_pass.h"
#include "kernels.h"
#include "memory.h"
#include "sized.h"

#include <stdio.h>
#include <string.h>

#define OLD_SHARE 0.75 /* of the smoothed interval in the next one */

/* --- for the communication thread and the schemes --------------------------------------------------------------- */

void tw_gossip_give_up(tw_gossip *gossip, tw_status status)
{
    if (!gossip->host.members) tw_channel_give_up(gossip->view, status);
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

/* --- the worker's calls ----------------------------------------------------------------------------------------- */

tw_comm *tw_gossip_comm(const tw_gossip *gossip)
{
    const tw_channel *channel = gossip->host.everybody ? gossip->host.everybody : gossip->channel;
    return channel ? channel->comm : NULL;
}

tw_status tw_gossip_need(const tw_gossip *gossip)
{
    TW_TRY(tw_need(gossip, "gossip"));
    tw_comm *comm = tw_gossip_comm(gossip);
    return comm ? tw_comm_need(comm) : TW_OK;
}

static tw_status check_pointers(const tw_gossip *gossip, const void *const *pointers, const char *argument)
{
    TW_TRY(tw_gossip_need(gossip));
    TW_TRY(tw_need(pointers, argument));
    for (size_t i = 0; i < gossip->count; i++)
        if (!pointers[i])
            return tw_fail(TW_ERROR_ARGUMENT, "%s[%zu], of %s, is NULL", argument, i, gossip->tensors[i].name);
    return TW_OK;
}

/* The first call sets the communication thread going. */
static void gossip_begin(tw_gossip *gossip)
{
    if (gossip->begun) return;
    gossip->begun = 1;
    gossip->added_at = tw_clock();
    int exchanged = gossip->adapt_first || (gossip->loaded && gossip->ops->remembers_exchange);
    if (gossip->ops->exchange && !exchanged)
        tw_gossip_ask(gossip, TW_TASK_EXCHANGE);
    else
        tw_condition_wake_all(&gossip->changed);
}

tw_status tw_gossip_enter(tw_gossip *gossip)
{
    double start = tw_clock();
    tw_mutex_lock(&gossip->lock);
    gossip->stats.seconds_wait += tw_clock() - start;
    tw_status status = TW_OK;
    if (gossip->failure != TW_OK)
        status = tw_fail(gossip->failure, "%s", gossip->failure_text);
    else if (gossip->finishing)
        status = tw_fail(TW_ERROR_ORDER, "the gossip is finished; nothing comes after tw_gossip_finish but destroy");
    if (status == TW_OK)
        gossip_begin(gossip);
    else
        tw_mutex_unlock(&gossip->lock);
    return status;
}

void tw_gossip_copy_out(const tw_gossip *gossip, const float *src, float *const *weights)
{
    for (size_t i = 0; i < gossip->count; i++) {
        size_t count = tw_tensor_count(&gossip->tensors[i]);
        memcpy(weights[i], src, count * sizeof *src);
        src += count;
    }
}

static void copy_block_out(const tw_gossip *gossip, tw_place *place, size_t start, size_t count, float *const *weights)
{
    for (size_t here; count; start += here, count -= here, place->at += here) {
        here = tw_place_here(gossip, place, count);
        memcpy(weights[place->tensor] + place->at, gossip->shown + start, here * sizeof **weights);
    }
}

tw_status tw_gossip_read_alone(tw_gossip *gossip, float *const *weights)
{
    tw_pass pass;
    tw_place place = {0};
    size_t start, count;
    TW_TRY(tw_gossip_enter(gossip));
    tw_pass_begin(gossip, &pass);
    tw_mutex_unlock(&gossip->lock);
    while ((count = tw_pass_next(gossip, &pass, &start)) > 0) {
        copy_block_out(gossip, &place, start, count, weights);
        if (gossip->given) memcpy(gossip->given + start, gossip->shown + start, count * sizeof *gossip->given);
    }
    gossip->was_read = 1;
    return TW_OK;
}

tw_status tw_gossip_read(tw_gossip *gossip, float *const *weights)
{
    TW_TRY(check_pointers(gossip, (const void *const *)weights, "weights"));
    return gossip->host.members ? tw_host_read(gossip, weights) : tw_gossip_read_alone(gossip, weights);
}

static int are_finite(const tw_gossip *gossip, const float *const *steps)
{
    int finite = 1;
    for (size_t i = 0; i < gossip->count; i++)
        finite &= tw_kernels_best()->all_finite(steps[i], tw_tensor_count(&gossip->tensors[i]));
    return finite;
}

/* The time between two adds is what a gradient takes. One that was overdue counts as twice what they took: a pause says
 * little of the next one, and a worker that stays slow is believed in the end. */
static void time_step(tw_gossip *gossip)
{
    double now = tw_clock(), passed = now - gossip->added_at;
    int first = gossip->interval == 0, overdue = passed > TW_OVERDUE * gossip->interval;
    if (overdue && !first) passed = 2 * gossip->interval;
    gossip->added_at = now;
    gossip->interval = first ? passed : OLD_SHARE * gossip->interval + (1 - OLD_SHARE) * passed;
    if (overdue) tw_condition_wake_all(&gossip->changed); /* rounds need not be rare any more */
}

static void add_block(const tw_gossip *gossip, tw_place *place, size_t start, size_t count, const float *const *steps)
{
    for (size_t here; count; start += here, count -= here, place->at += here) {
        here = tw_place_here(gossip, place, count);
        tw_kernels_best()->add(gossip->weights + start, steps[place->tensor] + place->at, here);
    }
}

/* With the lock held but for the addition itself. */
static void add_in_a_pass(tw_gossip *gossip, const float *const *steps)
{
    tw_pass pass;
    tw_place place = {0};
    size_t start, count;
    tw_pass_begin(gossip, &pass);
    tw_mutex_unlock(&gossip->lock);
    while ((count = tw_pass_next(gossip, &pass, &start)) > 0) add_block(gossip, &place, start, count, steps);
    tw_mutex_lock(&gossip->lock);
}

static tw_status take_step(tw_gossip *gossip, const float *const *steps)
{
    time_step(gossip);
    if (gossip->ops->exchange) return tw_gossip_take_step(gossip, steps);
    if (steps) add_in_a_pass(gossip, steps);
    return TW_OK;
}

static tw_status add_checked(tw_gossip *gossip, const float *const *steps, int finite)
{
    TW_TRY(tw_gossip_enter(gossip));
    tw_status status = take_step(gossip, finite ? steps : NULL);
    gossip->stats.steps += status == TW_OK && finite;
    gossip->stats.steps_skipped += !finite;
    tw_mutex_unlock(&gossip->lock);
    if (status != TW_OK || finite) return status;
    tw_log(TW_LOG_WARNING, "rank %d: a step held NaN or infinity and was not added", tw_gossip_comm(gossip)->rank);
    return tw_fail(TW_SKIPPED, "the step holds NaN or infinity; it was not added");
}

tw_status tw_gossip_add_alone(tw_gossip *gossip, const float *const *steps)
{
    return add_checked(gossip, steps, are_finite(gossip, steps));
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

/* `given` becomes the step from there to the weights; 1 if all of it is finite. */
static int find_step(const tw_gossip *gossip, float *const *weights)
{
    int finite = 1;
    for (size_t i = 0; i < gossip->count; i++) {
        float *part = gossip->given_parts[i];
        size_t count = tw_tensor_count(&gossip->tensors[i]);
        finite &= tw_kernels_best()->averaging->difference(part, weights[i], part, count);
    }
    return finite;
}

static tw_status step_alone(tw_gossip *gossip, float *const *weights)
{
    int finite = find_step(gossip, weights);
    tw_status added = add_checked(gossip, (const float *const *)gossip->given_parts, finite);
    if (tw_status_is_error(added)) return added;
    TW_TRY(tw_gossip_read_alone(gossip, weights));
    return added; /* the text of a refusal is still the last */
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
    return gossip->host.members ? tw_host_step(gossip, weights) : step_alone(gossip, weights);
}

/* What a synchronous scheme still has under way, then the mean. */
static tw_status finish_tasks(tw_gossip *gossip)
{
    if (!gossip->adapt_first) { /* else add has waited for it */
        TW_TRY(tw_gossip_await(gossip));
        tw_gossip_settle(gossip);
    }
    tw_gossip_ask(gossip, TW_TASK_MEAN);
    return tw_gossip_await(gossip);
}

static tw_status finish_rounds(tw_gossip *gossip)
{
    double start = tw_clock();
    tw_condition_wake_all(&gossip->changed);
    while (!gossip->ended) tw_condition_wait(&gossip->changed, &gossip->lock);
    gossip->stats.seconds_wait += tw_clock() - start;
    return gossip->failure == TW_OK ? TW_OK : tw_fail(gossip->failure, "%s", gossip->failure_text);
}

tw_status tw_gossip_finish_alone(tw_gossip *gossip, float *const *weights)
{
    TW_TRY(tw_gossip_enter(gossip));
    gossip->finishing = 1;
    tw_status status = gossip->ops->exchange ? finish_tasks(gossip) : finish_rounds(gossip);
    tw_mutex_unlock(&gossip->lock);
    if (status == TW_OK) tw_gossip_copy_out(gossip, gossip->weights, weights); /* nobody else uses them any more */
    return status;
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
