/* A rank's own gossip: what the worker's calls do where no other rank of its host shares it. */
#include "gossip.h"

#include "channel.h"
#include "error.h"
#include "gossip_pass.h"
#include "kernels.h"

#include <float.h>
#include <string.h>

#define OLD_SHARE 0.75 /* of the smoothed interval in the next one */

/* The first call sets the communication thread going. */
static void gossip_begin(tw_gossip *gossip)
{
    if (gossip->begun) return;
    gossip->begun = 1;
    gossip->begun_at = gossip->round_started = gossip->added_at = tw_clock();
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
    tw_status status = tw_gossip_check_left(gossip); /* of which the communication thread need not know yet */
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

static int are_finite(const tw_gossip *gossip, const float *const *steps)
{
    int finite = 1;
    for (size_t i = 0; i < gossip->count; i++)
        finite &= tw_kernels_best()->all_finite(steps[i], tw_tensor_count(&gossip->tensors[i]));
    return finite;
}

tw_status tw_gossip_add_alone(tw_gossip *gossip, const float *const *steps)
{
    return add_checked(gossip, steps, are_finite(gossip, steps));
}

/* `given` becomes the step from there to the weights; 1 if all of it is finite. */
static int find_step(const tw_gossip *gossip, float *const *weights)
{
    int finite = 1;
    for (size_t i = 0; i < gossip->count; i++) {
        float *part = gossip->given_parts[i];
        size_t count = tw_tensor_count(&gossip->tensors[i]);
        finite &= tw_kernels_best()->averaging->difference(part, weights[i], part, count, FLT_MAX, 0);
    }
    return finite;
}

tw_status tw_gossip_step_alone(tw_gossip *gossip, float *const *weights)
{
    int finite = find_step(gossip, weights);
    tw_status added = add_checked(gossip, (const float *const *)gossip->given_parts, finite);
    if (tw_status_is_error(added)) return added;
    TW_TRY(tw_gossip_read_alone(gossip, weights));
    return added; /* the text of a refusal is still the last */
}

/* What a synchronous scheme still has under way, then the mean. Called again it goes on where `end` has stopped it. */
static tw_status finish_tasks(tw_gossip *gossip, double end)
{
    if (!gossip->ending && !gossip->adapt_first) { /* else add has waited for it */
        TW_TRY(tw_gossip_await_until(gossip, end));
        if (gossip->task != TW_TASK_NONE) return TW_OK;
        tw_gossip_settle(gossip);
    }
    if (!gossip->ending) tw_gossip_ask(gossip, TW_TASK_MEAN);
    gossip->ending = 1;
    return tw_gossip_await_until(gossip, end);
}

static tw_status finish_rounds(tw_gossip *gossip, double end)
{
    double start = tw_clock();
    tw_condition_wake_all(&gossip->changed);
    while (!gossip->ended && tw_clock() < end) tw_gossip_sleep_until(gossip, end);
    gossip->stats.seconds_wait += tw_clock() - start;
    return gossip->failure == TW_OK ? TW_OK : tw_fail(gossip->failure, "%s", gossip->failure_text);
}

/* `seconds` may be INFINITY. */
tw_status tw_gossip_finish_within(tw_gossip *gossip, double seconds, float *const *weights, int *over)
{
    if (gossip->finishing)
        tw_mutex_lock(&gossip->lock);
    else
        TW_TRY(tw_gossip_enter(gossip));
    gossip->finishing = 1;
    double end = tw_clock() + seconds;
    tw_status status = gossip->ops->exchange ? finish_tasks(gossip, end) : finish_rounds(gossip, end);
    *over = gossip->ended;
    tw_mutex_unlock(&gossip->lock);
    if (status == TW_OK && *over) tw_gossip_copy_out(gossip, gossip->weights, weights); /* nobody uses them any more */
    return status;
}

tw_status tw_gossip_finish_alone(tw_gossip *gossip, float *const *weights)
{
    int over;
    if (gossip->finishing) TW_TRY(tw_gossip_enter(gossip)); /* which refuses a second one */
    return tw_gossip_finish_within(gossip, (double)INFINITY, weights, &over);
}
