/* Going on without ranks that are lost: the option survive=on of the asynchronous schemes.
 *
 * A gossip of this kind talks on a subset of its comm, which is made anew, without them, when ranks were lost: its
 * exchanges end early as soon as anybody is (members.h), all that are left agree on who is, and their gossip goes on as
 * that of a smaller group. Of the averaging that a loss interrupted, a few ranks may have taken their half and others
 * not, so a loss moves the mean by about as much as one correction; from the agreement on it is kept as ever.
 *
 * The end: what finish gives has to be the same everywhere though ranks may be lost at that very moment. So the mean is
 * taken aside, and is the consensus once all are known to have it (the first barrier); nobody leaves before all know
 * that (the second). If a loss interrupts the first, the others may have got through it or not: who has tells it, and
 * then the mean stands; if nobody has, it is made again without the lost. */
#include "error.h"
#include "gossip.h"
#include "gossip_host.h"
#include "memory.h"
#include "subset.h"

#include <math.h>
#include <string.h>

#define LONGEST_LOOK 0.125 /* of the deadline: as in waiting for messages */

static tw_status gossip_survive_look(void *context, int peer, int is_first)
{
    tw_members *members = context;
    TW_TRY(tw_members_tend(members));
    if (is_first) tw_members_await(members, peer);
    if (tw_members_has(members, peer) && tw_members_silent(members, peer)) return tw_members_give_up(members, peer);
    if (members->lost == members->agreed && !members->refused) return TW_OK;
    return tw_fail(TW_ERROR_PEER, "this rank, %d, was told that a rank of its gossip is lost", members->rank);
}

static void lose(void *context, int peer)
{
    tw_members_lose(context, peer);
}

static void close_view(tw_gossip *gossip)
{
    tw_comm_destroy(gossip->group);
    tw_free(gossip->ranks);
    gossip->group = NULL;
    gossip->ranks = NULL;
    gossip->view = gossip->channel;
}

/* A comm of those that are left, on numbers of its own: what is still under way in the group before never meets it. */
static tw_status open_view(tw_gossip *gossip)
{
    tw_members *members = &gossip->members;
    tw_channel *whole = gossip->channel;
    tw_watch watch = {.context = members, .look = gossip_survive_look, .lost = lose, .counters = &whole->counters};
    unsigned number = whole->number + 2 + (unsigned)members->lost;
    int count = 0;
    TW_TRY(tw_allocate((size_t)members->size, sizeof *gossip->ranks, &gossip->ranks));
    for (int rank = 0; rank < members->size; rank++)
        if (tw_members_has(members, rank)) gossip->ranks[count++] = rank;
    TW_TRY(tw_comm_create_subset(whole->comm, gossip->ranks, count, number, &watch, &gossip->group));
    gossip->view = gossip->group->channel;
    return TW_OK;
}

tw_status tw_gossip_survive(tw_gossip *gossip)
{
    TW_TRY(tw_members_create(gossip->channel, &gossip->members));
    return open_view(gossip);
}

void tw_gossip_release_survivors(tw_gossip *gossip)
{
    close_view(gossip);
    tw_members_release(&gossip->members);
}

/* --- the pauses between rounds --------------------------------------------------------------------------------- */

double tw_gossip_next_look(const tw_gossip *gossip)
{
    const tw_members *members = &gossip->members;
    return gossip->survive && gossip->made ? members->tended + LONGEST_LOOK * members->deadline : (double)INFINITY;
}

tw_status tw_gossip_look(tw_gossip *gossip)
{
    return gossip_survive_look(&gossip->members, gossip->members.rank, 1);
}

/* --- a smaller group -------------------------------------------------------------------------------------------- */

/* The gossip of those that are left begins at `round`; all that was rumoured is asked anew. */
static tw_status shrink(tw_gossip *gossip, uint64_t round)
{
    tw_schedule old = gossip->schedule, smaller;
    close_view(gossip);
    TW_TRY(open_view(gossip));
    const tw_comm *group = gossip->group;
    TW_TRY(tw_schedule_create(&smaller, group->size, old.group, old.shuffled, old.seed));
    tw_schedule_release(&gossip->schedule);
    tw_mutex_lock(&gossip->lock);
    unsigned char *finished = gossip->rumour.finished;
    memset(finished, 0, ((size_t)gossip->size + 7) / 8);
    gossip->rumour = (tw_rumour){.stop = TW_NO_STOP, .finished = finished};
    gossip->schedule = smaller;
    gossip->rank = group->rank;
    gossip->size = group->size;
    gossip->round = round;
    gossip->stats.ranks_lost = (uint64_t)gossip->members.agreed;
    gossip->stats.lowest_rank = (uint64_t)gossip->ranks[0];
    tw_mutex_unlock(&gossip->lock);
    tw_log(TW_LOG_WARNING, "rank %d: the gossip goes on without %d of its ranks, which were lost", gossip->members.rank,
           gossip->members.agreed);
    return TW_OK;
}

/* --- the end ---------------------------------------------------------------------------------------------------- */

static float *gossip_survive_mean_of(const tw_gossip *gossip)
{
    return tw_gossip_payload(gossip, gossip->outgoing);
}

/* The mean is the consensus. Unless all know that, it is up to this rank to tell them. */
static tw_status accept_mean(tw_gossip *gossip, int all_know)
{
    if (!all_know) TW_TRY(tw_members_spread(&gossip->members));
    memcpy(gossip->weights, gossip_survive_mean_of(gossip),
           gossip->elements * sizeof *gossip->weights); /* all wait for it in finish */
    gossip->concluded = 1;
    return TW_OK;
}

tw_status tw_gossip_conclude(tw_gossip *gossip)
{
    memcpy(gossip_survive_mean_of(gossip), gossip->weights, gossip->elements * sizeof *gossip->weights);
    TW_TRY(tw_gossip_mean(gossip, gossip_survive_mean_of(gossip)));
    TW_TRY(tw_channel_barrier(gossip->view));
    tw_members_commit(&gossip->members);
    return accept_mean(gossip, tw_channel_barrier(gossip->view) == TW_OK);
}

tw_status tw_gossip_regroup(tw_gossip *gossip, tw_status failure)
{
    tw_members *members = &gossip->members;
    uint64_t round;
    if (failure != TW_ERROR_PEER || (members->lost == members->agreed && !members->refused)) return failure;
    TW_TRY(tw_members_agree(members, &round));
    return members->committed ? accept_mean(gossip, 0) : shrink(gossip, round);
}
