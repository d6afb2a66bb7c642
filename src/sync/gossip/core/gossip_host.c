#include "gossip_host.h"

#include "channel.h"
#include "error.h"
#include "hosts.h"
#include "kernels.h"
#include "memory.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#define WHILE 0.25 /* of the timeout */

enum { WAITS = 2 };

/* What the first rank met. */
typedef struct verdict {
    uint32_t status;  /* other than TW_OK: the end of the gossip */
    uint32_t refused; /* 1: the mean of the steps was not finite; WAITS: there is nothing to hand out yet */
    uint32_t lost;    /* hosts that the others go on without */
    uint32_t lowest;  /* host of those that go on */
    char text[TW_REASON_BYTES];
} verdict;

int tw_host_is_first(const tw_gossip *gossip)
{
    return gossip->host.place == 0;
}

tw_status tw_host_prepare(tw_gossip *gossip)
{
    tw_host *host = &gossip->host;
    int size = (int)host->size;
    TW_TRY(tw_hosts_check(gossip->size, size));
    host->place = gossip->rank % size;
    gossip->rank /= size;
    gossip->size /= size;
    return TW_OK;
}

static tw_status create_values(tw_gossip *gossip)
{
    tw_host *host = &gossip->host;
    TW_TRY(tw_allocate(gossip->elements + 1, sizeof *host->values, &host->values));
    TW_TRY(tw_allocate(gossip->count, sizeof *host->parts, &host->parts));
    float *part = host->values;
    for (size_t i = 0; i < gossip->count; i++) {
        host->parts[i] = part;
        part += tw_tensor_count(&gossip->tensors[i]);
    }
    return TW_OK;
}

/* The gossip moves to the first ranks of all hosts. */
static tw_status join_firsts(tw_gossip *gossip)
{
    tw_host *host = &gossip->host;
    tw_channel *whole = host->everybody;
    unsigned hosts = (unsigned)gossip->size;
    TW_TRY(tw_hosts_create_firsts(whole->comm, (int)host->size, whole->number + 2, &host->firsts));
    TW_TRY(tw_channel_create_wide(host->firsts, 1 + hosts, &gossip->channel));
    gossip->view = gossip->channel;
    return gossip->survive ? tw_gossip_survive(gossip) : TW_OK;
}

tw_status tw_host_join(tw_gossip *gossip)
{
    tw_host *host = &gossip->host;
    tw_channel *whole = gossip->channel;
    host->everybody = whole;
    gossip->channel = gossip->view = NULL;
    TW_TRY(tw_hosts_create_members(whole->comm, (int)host->size, whole->number + 1, &host->members));
    TW_TRY(create_values(gossip));
    return tw_host_is_first(gossip) ? join_firsts(gossip) : TW_OK;
}

void tw_host_leave(tw_gossip *gossip)
{
    tw_host *host = &gossip->host;
    if (host->firsts) host->firsts->maimed = 0; /* the whole comm is: it is the one to be left */
    tw_comm_destroy(host->firsts);
    tw_comm_destroy(host->members);
    tw_channel_destroy(host->everybody);
    tw_free(host->parts);
    tw_free(host->values);
}

/* --- from the first rank to all -------------------------------------------------------------------------------- */

static tw_status broadcast(tw_gossip *gossip, void *data, size_t size)
{
    return tw_channel_broadcast_into(gossip->host.members->channel, 0, data, size);
}

static void tell_lost(tw_gossip *gossip, verdict *all)
{
    tw_mutex_lock(&gossip->lock);
    all->lost = (uint32_t)gossip->stats.ranks_lost;
    all->lowest = (uint32_t)gossip->stats.lowest_rank;
    tw_mutex_unlock(&gossip->lock);
}

/* The first rank of this host, as the whole comm numbers it. */
static int first_rank(const tw_gossip *gossip)
{
    return gossip->host.everybody->comm->rank - gossip->host.place;
}

static int count_hosts(const tw_gossip *gossip)
{
    return gossip->host.everybody->comm->size / (int)gossip->host.size;
}

static tw_status check_verdict(const tw_gossip *gossip, const verdict *all)
{
    uint32_t hosts = (uint32_t)count_hosts(gossip);
    if (tw_status_is_known(all->status) && all->refused <= WAITS && all->lost < hosts && all->lowest < hosts)
        return TW_OK;
    return tw_fail(TW_ERROR_PACKET, "rank %d tells its host what cannot be: status %u, %u hosts lost of %u",
                   first_rank(gossip), all->status, all->lost, hosts);
}

static void note_lost(tw_gossip *gossip, const verdict *all)
{
    if (!all->lost) return;
    gossip->host.everybody->comm->maimed = 1;
    if (tw_host_is_first(gossip)) return;
    gossip->stats.ranks_lost = all->lost;
    gossip->stats.lowest_rank = all->lowest;
}

/* The first rank's status becomes everybody's; on the others it is TW_OK before. */
static tw_status share(tw_gossip *gossip, tw_status status, int *refused)
{
    verdict all = {.status = (uint32_t)status, .refused = (uint32_t)*refused};
    tell_lost(gossip, &all);
    if (status != TW_OK) snprintf(all.text, sizeof all.text, "%s", tw_last_error());
    verdict own = all;
    tw_status sent = broadcast(gossip, &all, sizeof all);
    if (status != TW_OK) return tw_fail(status, "%s", own.text);
    TW_TRY(sent);
    TW_TRY(check_verdict(gossip, &all));
    *refused = (int)all.refused;
    note_lost(gossip, &all);
    return all.status == TW_OK ? TW_OK : tw_fail((tw_status)all.status, "%.*s", (int)sizeof all.text - 1, all.text);
}

/* On the first rank `values` are filled, or status tells why not. What went wrong on another alone is that one's
 * result, and it takes part all the same, since members pass on to each other what they receive. */
static tw_status hand_out(tw_gossip *gossip, tw_status status, int *refused)
{
    char own[TW_REASON_BYTES];
    tw_status told = tw_host_is_first(gossip) ? status : TW_OK;
    snprintf(own, sizeof own, "%s", tw_last_error());
    TW_TRY(share(gossip, told, refused));
    if (*refused != WAITS)
        TW_TRY(broadcast(gossip, gossip->host.values, gossip->elements * sizeof *gossip->host.values));
    return status == TW_OK ? TW_OK : tw_fail(status, "%s", own);
}

tw_status tw_host_show(tw_gossip *gossip, tw_status status)
{
    int refused = 0;
    size_t bytes = gossip->elements * sizeof *gossip->shown;
    if (tw_host_is_first(gossip) && status == TW_OK) memcpy(gossip->host.values, gossip->shown, bytes);
    return hand_out(gossip, status, &refused);
}

static tw_status check_count(const tw_gossip *gossip, int count)
{
    if (count >= 1 && count <= count_hosts(gossip)) return TW_OK;
    return tw_fail(TW_ERROR_PACKET, "rank %d says that %d of %d hosts are left", first_rank(gossip), count,
                   count_hosts(gossip));
}

/* Hosts in order, and this one among them. */
static tw_status check_list(const tw_gossip *gossip, const int *list, int count)
{
    int own = first_rank(gossip) / (int)gossip->host.size, before = -1, found = 0;
    for (int i = 0; i < count; before = list[i++]) {
        if (list[i] <= before || list[i] >= count_hosts(gossip))
            return tw_fail(TW_ERROR_PACKET, "rank %d lists host %d after %d among those that are left of %d",
                           first_rank(gossip), list[i], before, count_hosts(gossip));
        found |= list[i] == own;
    }
    if (found) return TW_OK;
    return tw_fail(TW_ERROR_PACKET, "rank %d leaves its own host out of those that are left", first_rank(gossip));
}

tw_status tw_host_expand(tw_gossip *gossip, tw_status status, int *list, int *count)
{
    int refused = 0, size = (int)gossip->host.size;
    TW_TRY(share(gossip, status, &refused));
    TW_TRY(broadcast(gossip, count, sizeof *count));
    TW_TRY(check_count(gossip, *count));
    TW_TRY(broadcast(gossip, list, (size_t)*count * sizeof *list));
    TW_TRY(check_list(gossip, list, *count));
    *count *= size;
    for (int i = *count; i-- > 0;) list[i] = list[i / size] * size + i % size;
    return TW_OK;
}

/* What a call inside the host, begun at `start`, has come to. */
static tw_status record(tw_gossip *gossip, tw_status status, double start)
{
    tw_mutex_lock(&gossip->lock);
    if (status != TW_OK && gossip->failure == TW_OK) tw_gossip_record_failure(gossip, status);
    gossip->stats.seconds_wait += tw_clock() - start;
    tw_mutex_unlock(&gossip->lock);
    return status;
}

/* --- the members' steps ---------------------------------------------------------------------------------------- */

/* moved: `steps` are weights, and the step is how far they are from what all members have, which is in `values`. */
static void set_step(tw_gossip *gossip, const float *const *steps, int moved)
{
    tw_host *host = &gossip->host;
    if (!steps) memset(host->values, 0, gossip->elements * sizeof *host->values);
    for (size_t i = 0; steps && i < gossip->count; i++) {
        size_t count = tw_tensor_count(&gossip->tensors[i]);
        if (moved)
            tw_kernels_best()->averaging->difference(host->parts[i], steps[i], host->parts[i], count, FLT_MAX, 0);
        else
            memcpy(host->parts[i], steps[i], count * sizeof **steps);
    }
    tw_kernels_best()->scale(host->values, 1.0f / (float)host->size, gossip->elements);
}

/* `values` becomes the mean of the members' steps, with the bits that a reducer gives. One float more counts those that
 * have come to their end (steps = NULL); *all_ended: every one. */
static tw_status gossip_host_average(tw_gossip *gossip, const float *const *steps, int moved, int *all_ended)
{
    tw_host *host = &gossip->host;
    double start = tw_clock();
    float *ended = host->values + gossip->elements;
    set_step(gossip, steps, moved);
    *ended = steps ? 0 : 1;
    tw_status status = tw_channel_allreduce(host->members->channel, TW_F32, host->values, gossip->elements + 1);
    *all_ended = *ended == (float)host->size;
    return record(gossip, status, start);
}

/* On the first rank: the mean goes into the weights, and `values` become what they are then. */
static tw_status move(tw_gossip *gossip, int *refused)
{
    tw_host *host = &gossip->host;
    tw_status added = tw_gossip_add_alone(gossip, (const float *const *)host->parts);
    if (tw_status_is_error(added)) return added;
    *refused = added != TW_OK;
    return tw_gossip_read_alone(gossip, host->parts);
}

/* What a step or the end has come to. After a failure the host's members know; the other hosts have to be told. */
static tw_status conclude(tw_gossip *gossip, tw_status status, int *refused)
{
    double start = tw_clock();
    tw_status shared = record(gossip, hand_out(gossip, status, refused), start);
    return status == TW_OK ? shared : tw_channel_give_up(gossip->host.everybody, shared);
}

/* One step of the host. */
static tw_status take_step(tw_gossip *gossip, const float *const *steps, int moved, int *refused, int *all_ended)
{
    int first = tw_host_is_first(gossip);
    *refused = 0;
    TW_TRY(gossip_host_average(gossip, steps, moved, all_ended));
    if (*all_ended) return TW_OK;
    tw_status told = first ? move(gossip, refused) : TW_OK;
    TW_TRY(conclude(gossip, told, refused));
    if (first) return TW_OK; /* counted where it was added */
    gossip->stats.steps += !*refused;
    gossip->stats.steps_skipped += *refused;
    return TW_OK;
}

/* --- the calls ------------------------------------------------------------------------------------------------- */

/* Each call begins with tw_gossip_enter. When the gossip of the first rank has failed since its last call, this is
 * where it learns of it, and the other members are on their way to a step that it will not take. */
static tw_status gossip_host_enter(tw_gossip *gossip)
{
    tw_status status = tw_gossip_enter(gossip);
    if (status != TW_OK && status != TW_ERROR_ORDER) tw_channel_give_up(gossip->host.everybody, status);
    return status;
}

tw_status tw_host_read(tw_gossip *gossip, float *const *weights)
{
    TW_TRY(gossip_host_enter(gossip));
    tw_gossip_copy_out(gossip, gossip->host.values, weights);
    tw_mutex_unlock(&gossip->lock);
    gossip->was_read = 1;
    return TW_OK;
}

/* `shown`, unless it is NULL, receives the weights, also when the step was refused: the gossip goes on then. */
static tw_status step_together(tw_gossip *gossip, const float *const *steps, int moved, float *const *shown)
{
    int refused, all_ended;
    TW_TRY(gossip_host_enter(gossip));
    tw_mutex_unlock(&gossip->lock);
    TW_TRY(take_step(gossip, steps, moved, &refused, &all_ended));
    if (shown) tw_gossip_copy_out(gossip, gossip->host.values, shown);
    if (!refused) return TW_OK;
    return tw_fail(TW_SKIPPED, "a step of this host holds NaN or infinity; none of them was added");
}

tw_status tw_host_add(tw_gossip *gossip, const float *const *steps)
{
    return step_together(gossip, steps, 0, NULL);
}

tw_status tw_host_step(tw_gossip *gossip, float *const *weights)
{
    return step_together(gossip, (const float *const *)weights, 1, weights);
}

/* The first rank may wait for other hosts for longer than anybody is waited for. So its members hear now and then that
 * it still *waits. */
static tw_status finish_for_a_while(tw_gossip *gossip, int *waits)
{
    int over = 1;
    tw_status status = TW_OK;
    if (tw_host_is_first(gossip))
        status =
            tw_gossip_finish_within(gossip, WHILE * tw_comm_timeout(gossip->host.members), gossip->host.parts, &over);
    *waits = over ? 0 : WAITS;
    return status;
}

tw_status tw_host_finish(tw_gossip *gossip, float *const *weights)
{
    int refused = 0, all_ended = 0, waits = 1;
    TW_TRY(gossip_host_enter(gossip));
    tw_mutex_unlock(&gossip->lock);
    while (!all_ended) TW_TRY(take_step(gossip, NULL, 0, &refused, &all_ended));
    while (waits) TW_TRY(conclude(gossip, finish_for_a_while(gossip, &waits), &waits));
    tw_gossip_copy_out(gossip, gossip->host.values, weights);
    gossip->finishing = 1;
    return TW_OK;
}
