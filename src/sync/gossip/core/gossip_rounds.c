/* The communication thread of the asynchronous schemes. It goes through the rounds of the schedule whatever the worker
 * computes: in each it meets the partners and adds the correction to the weights as they are by then.
 *
 * The pace: a round costs bandwidth and serves to spread new gradients, so there is about one in the time in which the
 * fastest worker makes one. That time spreads with the messages, and each thread begins a round that long after its
 * last. Nobody waits for gradients of its own: a slow computer delays nobody. Where gradients are long overdue, because
 * workers stand still or do something else, there is nothing to spread: rounds become rarer the longer that lasts.
 *
 * The end: who has called finish spreads with the messages. When rank 0 knows that all have, it chooses the last round:
 * the first by whose end everybody has heard of the choice. It finds that round by playing the schedule forward from
 * the next round on, in which its own message carries the choice for the first time; a rank that has heard in round r
 * passes it on from round r + 1. So each rank knows the last round when it ends at the latest, and all stop there. */
#include "error.h"
#include "gossip.h"

#include <math.h>

#define FIRST_PAUSE 1e-3         /* seconds */
#define LONGEST_PAUSE (1.0 / 64) /* of the deadline, where gradients are overdue */

/* After so many rounds news of the fastest worker have been everywhere, and an old one may have become slower. */
static uint64_t horizon(const tw_gossip *gossip)
{
    return 2 * (uint64_t)gossip->size + 16;
}

/* --- the pace ------------------------------------------------------------------------------------------------- */

/* Seconds this rank takes for a gradient, as of its last round; 0: unknown. When a gradient is overdue it is a share of
 * the time waited, so that the number of rounds grows with the logarithm of the pause; and a share of the deadline at
 * most, so that whoever comes back finds the others before they are taken for lost. */
static double own_interval(const tw_gossip *gossip)
{
    double waited = (gossip->round_started - gossip->added_at) / TW_OVERDUE;
    double most = LONGEST_PAUSE * gossip->channel->comm->timeout;
    return gossip->interval > 0 ? fmax(gossip->interval, fmin(waited, most)) : 0;
}

/* When the next round may start, on tw_clock(). While nobody has made a gradient there is nothing to spread, and the
 * pauses double: few rounds pass until the first one, and news of it come in less than twice the time it took. */
static double next_start(const tw_gossip *gossip)
{
    const tw_rumour *rumour = &gossip->rumour;
    double last = gossip->round_started, interval = rumour->interval, own = own_interval(gossip);
    if (gossip->paced || gossip->finishing || rumour->stop != TW_NO_STOP) return 0;
    if (interval == 0 || (own > 0 && own < interval)) interval = own;
    return last + (interval > 0 ? interval : fmax(FIRST_PAUSE, last - gossip->begun_at));
}

/* Sees to the others if it is time, with the lock held but for that moment. */
static tw_status look_if_due(tw_gossip *gossip)
{
    if (tw_clock() < tw_gossip_next_look(gossip)) return TW_OK;
    tw_mutex_unlock(&gossip->lock);
    tw_status status = tw_gossip_look(gossip);
    tw_mutex_lock(&gossip->lock);
    return status;
}

/* Waits for the next round's time, with the lock held. */
static tw_status wait_for_start(tw_gossip *gossip)
{
    double start;
    tw_status status = look_if_due(gossip);
    while (status == TW_OK && !gossip->stopping && (start = next_start(gossip)) > tw_clock()) {
        tw_condition_wait_until(&gossip->changed, &gossip->lock, fmin(start, tw_gossip_next_look(gossip)));
        status = look_if_due(gossip);
    }
    gossip->round_started = tw_clock();
    return status;
}

/* --- what is known -------------------------------------------------------------------------------------------- */

/* Brings the rumour up to date before a round, with the lock held. */
static void tell_own(tw_gossip *gossip, uint64_t round)
{
    tw_rumour *rumour = &gossip->rumour;
    double own = own_interval(gossip);
    if (rumour->told + horizon(gossip) < round) rumour->interval = 0;
    if (gossip->finishing)
        rumour->finished[gossip->rank / 8] |= (unsigned char)(1 << gossip->rank % 8);
    else if (own > 0 && (rumour->interval == 0 || own <= rumour->interval)) {
        rumour->interval = own;
        rumour->told = round;
    }
}

static int all_finished(const tw_gossip *gossip)
{
    for (int rank = 0; rank < gossip->size; rank++)
        if (!(gossip->rumour.finished[rank / 8] >> rank % 8 & 1)) return 0;
    return 1;
}

/* --- the rounds ----------------------------------------------------------------------------------------------- */

/* Prepares a round: its time has come. */
static tw_status begin_round(tw_gossip *gossip, uint64_t round, int *stopping)
{
    gossip->members.now = round;
    tw_mutex_lock(&gossip->lock);
    tw_status status = wait_for_start(gossip);
    tell_own(gossip, round);
    *stopping = gossip->stopping;
    tw_mutex_unlock(&gossip->lock);
    return status;
}

static void end_round(tw_gossip *gossip, double seconds)
{
    tw_mutex_lock(&gossip->lock);
    gossip->stats.last_distance = gossip->distance;
    gossip->stats.rounds++;
    gossip->stats.seconds_exchange += seconds;
    tw_mutex_unlock(&gossip->lock);
}

static tw_status run_round(tw_gossip *gossip, uint64_t round)
{
    if (gossip->rank == 0 && gossip->rumour.stop == TW_NO_STOP && all_finished(gossip))
        TW_TRY(tw_schedule_heard(&gossip->schedule, round, 0, &gossip->rumour.stop));
    double start = tw_clock();
    TW_TRY(tw_gossip_meet(gossip, round, NULL));
    end_round(gossip, tw_clock() - start);
    return TW_OK;
}

/* Waits for the caller's first or last call. Others that wait for this rank meanwhile hear that it is there. */
static tw_status wait_for_call(tw_gossip *gossip, const int *call, int *stopping)
{
    tw_status status = TW_OK;
    tw_mutex_lock(&gossip->lock);
    while (status == TW_OK && !*call && !gossip->stopping) {
        double look = tw_gossip_next_look(gossip);
        if (isinf(look))
            tw_condition_wait(&gossip->changed, &gossip->lock);
        else
            tw_condition_wait_until(&gossip->changed, &gossip->lock, look);
        status = look_if_due(gossip);
    }
    *stopping = gossip->stopping;
    tw_mutex_unlock(&gossip->lock);
    return status;
}

static tw_status run_rounds(tw_gossip *gossip, int *stopping)
{
    TW_TRY(wait_for_call(gossip, &gossip->begun, stopping));
    while (!*stopping && gossip->size > 1 && gossip->round <= gossip->rumour.stop) {
        TW_TRY(begin_round(gossip, gossip->round, stopping));
        if (!*stopping) TW_TRY(run_round(gossip, gossip->round++));
    }
    return wait_for_call(gossip, &gossip->finishing, stopping); /* alone; else all have finished */
}

static tw_status run_to_the_end(tw_gossip *gossip, int *stopping)
{
    TW_TRY(run_rounds(gossip, stopping));
    if (*stopping) return TW_OK;
    return gossip->survive ? tw_gossip_conclude(gossip) : tw_gossip_mean(gossip, gossip->weights);
}

static tw_status run_all(tw_gossip *gossip)
{
    int stopping = 0;
    tw_status status = run_to_the_end(gossip, &stopping);
    while (status != TW_OK && gossip->survive) {
        status = tw_gossip_regroup(gossip, status);
        if (status != TW_OK || gossip->concluded) break;
        status = run_to_the_end(gossip, &stopping);
    }
    int unused = stopping && !gossip->begun; /* nobody counts on it */
    if (gossip->survive && !unused && !gossip->concluded) tw_members_resign(&gossip->members);
    return status;
}

void *tw_gossip_run_rounds(void *argument)
{
    tw_gossip *gossip = argument;
    tw_status status = run_all(gossip);
    if (status != TW_OK) tw_gossip_give_up(gossip, status);
    tw_mutex_lock(&gossip->lock);
    if (status != TW_OK) tw_gossip_record_failure(gossip, status);
    gossip->ended = 1;
    tw_condition_wake_all(&gossip->changed);
    tw_mutex_unlock(&gossip->lock);
    return NULL;
}
