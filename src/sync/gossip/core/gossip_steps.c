/* The communication thread of the synchronous schemes, and how a step meets it: the exchange of the weights begins as
 * soon as they are known, at the end of the add before, so that it overlaps with all the worker does until its next. */
#include "error.h"
#include "gossip.h"

#include <math.h>

static tw_status run_task(tw_gossip *gossip, tw_gossip_task task)
{
    return task == TW_TASK_EXCHANGE ? gossip->ops->exchange(gossip) : tw_gossip_mean(gossip, gossip->weights);
}

/* With the lock held, but for the time of the task. */
static void run_next_task(tw_gossip *gossip)
{
    tw_gossip_task task = gossip->task;
    tw_mutex_unlock(&gossip->lock);
    double start = tw_clock();
    tw_status status = run_task(gossip, task);
    double seconds = tw_clock() - start;
    if (status != TW_OK) tw_gossip_give_up(gossip, status);
    tw_mutex_lock(&gossip->lock);
    if (status != TW_OK) tw_gossip_record_failure(gossip, status);
    gossip->stats.seconds_exchange += seconds;
    gossip->stats.last_distance = gossip->distance;
    gossip->stats.rounds += task == TW_TASK_EXCHANGE;
    gossip->ended = status != TW_OK || task == TW_TASK_MEAN;
    gossip->task = TW_TASK_NONE;
    tw_condition_wake_all(&gossip->changed);
}

void *tw_gossip_run_tasks(void *argument)
{
    tw_gossip *gossip = argument;
    tw_mutex_lock(&gossip->lock);
    while (!gossip->ended) {
        if (gossip->task != TW_TASK_NONE) /* also one left by a worker that leaves: the others count on it */
            run_next_task(gossip);
        else if (gossip->stopping)
            break;
        else
            tw_condition_wait(&gossip->changed, &gossip->lock);
    }
    tw_mutex_unlock(&gossip->lock);
    return NULL;
}

void tw_gossip_ask(tw_gossip *gossip, tw_gossip_task task)
{
    gossip->task = task;
    tw_condition_wake_all(&gossip->changed);
}

tw_status tw_gossip_await(tw_gossip *gossip)
{
    return tw_gossip_await_until(gossip, (double)INFINITY);
}

tw_status tw_gossip_await_until(tw_gossip *gossip, double end)
{
    double start = tw_clock();
    while (gossip->task != TW_TASK_NONE && !gossip->ended && tw_clock() < end) tw_gossip_sleep_until(gossip, end);
    gossip->stats.seconds_wait += tw_clock() - start;
    return gossip->failure == TW_OK ? TW_OK : tw_fail(gossip->failure, "%s", gossip->failure_text);
}

static void gossip_steps_absorb(tw_gossip *gossip, const float *const *steps)
{
    if (gossip->ops->absorb)
        gossip->ops->absorb(gossip, steps);
    else if (steps)
        tw_gossip_add_steps(gossip->weights, gossip, steps);
}

static int is_due(const tw_gossip *gossip)
{
    return !gossip->ops->is_due || gossip->ops->is_due(gossip);
}

/* Between two tasks the weights are the worker's, and so they are worked on without the lock. */
static void step_and_ask(tw_gossip *gossip, const float *const *steps)
{
    tw_mutex_unlock(&gossip->lock);
    gossip_steps_absorb(gossip, steps);
    tw_mutex_lock(&gossip->lock);
    if (is_due(gossip)) tw_gossip_ask(gossip, TW_TASK_EXCHANGE);
}

void tw_gossip_settle(tw_gossip *gossip)
{
    tw_mutex_unlock(&gossip->lock);
    gossip->ops->apply(gossip);
    tw_mutex_lock(&gossip->lock);
}

tw_status tw_gossip_take_step(tw_gossip *gossip, const float *const *steps)
{
    if (gossip->adapt_first) step_and_ask(gossip, steps);
    if (gossip->adapt_first && !is_due(gossip)) return TW_OK;
    TW_TRY(tw_gossip_await(gossip));
    tw_gossip_settle(gossip);
    if (!gossip->adapt_first) step_and_ask(gossip, steps);
    return TW_OK;
}
