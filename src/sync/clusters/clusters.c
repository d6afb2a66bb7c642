/* Two phases, turn by turn, in which each rank has at most one message each way with each other:
 *
 *     every member of a ring sends each other member its part of the piece, of C parts; each adds up its own
 *     every member sends its sum, divided by C, to all others
 *
 * A phase goes by C - 1 rounds: in the k-th this rank sends to the cluster k places after its own, and receives from
 * the one k places before. Rounds begin one after the other and are waited for together. */
#include <thinwire/thinwire_clusters.h>

#include "agreement.h"
#include "channel.h"
#include "error.h"
#include "held.h"
#include "kernels.h"
#include "memory.h"
#include "owner_map.h"
#include "smaller.h"

#include <string.h>

enum {
    PIECE = 60 << 14,     /* elements of a ring that go in a turn: cut evenly by two to six clusters */
    MOST_RANGES = 1 << 20 /* of a rank */
};

/* What each rank says first. */
typedef struct greeting {
    int64_t cluster;
    uint64_t elements, ranges;
} greeting;

struct tw_clusters {
    tw_channel *channel;
    tw_owner_map map;
    size_t ranges, longest;     /* of this rank; elements of its longest ring */
    size_t room;                /* for what is exchanged with one cluster in a turn */
    float *outgoing, *incoming; /* for each cluster */
    float **places;             /* for each cluster, where in `incoming` a ring's part is */
};

/* ---- who holds what ---------------------------------------------------------------------------------------------- */

static tw_status clusters_check(const tw_channel *channel, const tw_range *ranges, size_t count, tw_clusters **out)
{
    TW_TRY(tw_need(out, "clusters"));
    if (count) TW_TRY(tw_need(ranges, "ranges"));
    if (count > MOST_RANGES)
        return tw_fail(TW_ERROR_ARGUMENT, "%zu ranges: a rank may have up to %d", count, MOST_RANGES);
    if (channel->comm->size > TW_WINDOW)
        return tw_fail(TW_ERROR_UNSUPPORTED, "%d ranks: clusters may have up to %d together", channel->comm->size,
                       TW_WINDOW);
    return TW_OK;
}

/* The most ranges that a rank has. */
static tw_status hear_greetings(tw_channel *channel, const greeting *own, greeting *all, size_t *most)
{
    TW_TRY(tw_channel_gather_into(channel, own, sizeof *own, (unsigned char *)all));
    *most = 0;
    for (int rank = 0; rank < channel->comm->size; rank++) {
        if (all[rank].ranges > MOST_RANGES)
            return tw_fail(TW_ERROR_PACKET, "rank %d says what cannot be: that it has %llu ranges", rank,
                           (unsigned long long)all[rank].ranges);
        if (all[rank].ranges > *most) *most = (size_t)all[rank].ranges;
    }
    return TW_OK;
}

/* *digest stands for all that was said. The ranges of the others are the channel's until its next call. */
static tw_status hear_holdings(tw_channel *channel, const greeting *own, const tw_range *ranges, greeting *all,
                               tw_holding *holdings, uint32_t *digest)
{
    const void *const *packets;
    const size_t *sizes;
    size_t most, size = (size_t)channel->comm->size;
    TW_TRY(hear_greetings(channel, own, all, &most));
    TW_TRY(tw_channel_allgather(channel, ranges, (size_t)own->ranges * sizeof *ranges, most * sizeof *ranges, &packets,
                                &sizes));
    *digest = tw_crc32c(0, all, size * sizeof *all);
    for (size_t rank = 0; rank < size; rank++) {
        size_t count = (size_t)all[rank].ranges;
        if (sizes[rank] != count * sizeof *ranges)
            return tw_fail(TW_ERROR_PACKET, "rank %zu sent %zu bytes of ranges, and it has %zu ranges", rank,
                           sizes[rank], count);
        holdings[rank] = (tw_holding){all[rank].cluster, all[rank].elements, packets[rank], count};
        *digest = tw_crc32c(*digest, packets[rank], sizes[rank]);
    }
    return TW_OK;
}

/* Room for one turn. */
static tw_status make_room(tw_clusters *self)
{
    size_t clusters = (size_t)self->map.clusters, rings = self->map.ring_count;
    for (size_t r = 0; r < rings; r++) {
        size_t elements = self->map.rings[r].elements;
        self->room += (tw_smaller(elements, PIECE) + clusters - 1) / clusters;
        if (elements > self->longest) self->longest = elements;
    }
    size_t bytes = clusters * self->room * sizeof(float);
    TW_TRY(tw_allocate_unset(bytes, &self->outgoing));
    TW_TRY(tw_allocate_unset(bytes, &self->incoming));
    return tw_allocate(rings, clusters * sizeof *self->places, &self->places);
}

/* Whatever a rank has said, all judge the same numbers. */
static tw_status clusters_plan(tw_clusters *self, const greeting *own, const tw_range *ranges)
{
    tw_channel *channel = self->channel;
    int size = channel->comm->size;
    uint32_t digest = 0;
    greeting *all = NULL;
    tw_holding *holdings = NULL;
    tw_status status = tw_allocate((size_t)size, sizeof *all, &all);
    if (status == TW_OK) status = tw_allocate((size_t)size, sizeof *holdings, &holdings);
    if (status == TW_OK) status = hear_holdings(channel, own, ranges, all, holdings, &digest);
    if (status != TW_OK) {
        tw_channel_give_up(channel, status); /* the others go on without an answer */
    } else {
        status = tw_owner_map_make(holdings, size, channel->comm->rank, &self->map);
        if (status == TW_OK) status = make_room(self);
        status = tw_agree(channel, "clusters", status, "", digest, NULL, 0);
    }
    tw_free(holdings);
    tw_free(all);
    return status;
}

static tw_status clusters_build(tw_clusters *self, tw_comm *comm, const greeting *own, const tw_range *ranges,
                                tw_clusters **out)
{
    TW_TRY(tw_channel_create_again(comm, 0, &self->channel));
    tw_status status = clusters_check(self->channel, ranges, (size_t)own->ranges, out);
    TW_TRY(tw_agree(self->channel, "clusters", status, "", 0, NULL, 0));
    return clusters_plan(self, own, ranges);
}

tw_status tw_clusters_create(tw_comm *comm, int cluster, uint64_t elements, const tw_range *ranges, size_t count,
                             tw_clusters **out)
{
    tw_clusters *self;
    const greeting own = {cluster, elements, count};
    TW_TRY(tw_comm_need(comm));
    tw_status status = tw_allocate(1, sizeof *self, &self);
    if (status != TW_OK) return tw_channel_give_up(comm->channel, status); /* the others wait to hear of it */
    self->ranges = count;
    status = clusters_build(self, comm, &own, ranges, out);
    if (status != TW_OK) {
        tw_clusters_destroy(self);
        return status;
    }
    *out = self;
    return TW_OK;
}

void tw_clusters_destroy(tw_clusters *self)
{
    if (!self || (self->channel && tw_process_is_child(self->channel->comm->process))) return;
    tw_channel_destroy(self->channel);
    tw_owner_map_release(&self->map);
    tw_free(self->outgoing);
    tw_free(self->incoming);
    tw_free(self->places);
    tw_free(self);
}

/* ---- parts of rings ---------------------------------------------------------------------------------------------- */

/* Elements of a ring. */
typedef struct part {
    size_t first, count;
} part;

/* What cluster `owner` adds up of a ring in a turn. */
static part part_of(const tw_clusters *self, size_t ring, size_t turn, int owner)
{
    size_t elements = self->map.rings[ring].elements, begin = tw_smaller(turn * PIECE, elements);
    size_t piece = tw_smaller(elements - begin, PIECE), clusters = (size_t)self->map.clusters;
    size_t first = piece * (size_t)owner / clusters, end = piece * ((size_t)owner + 1) / clusters;
    return (part){begin + first, end - first};
}

static const tw_stretch *stretch_with(const tw_ring *ring, size_t element)
{
    size_t low = 0, high = ring->stretch_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (ring->stretches[middle].at <= element)
            low = middle;
        else
            high = middle;
    }
    return &ring->stretches[low];
}

/* Between this rank's ranges, where a part lies in stretches, and a message, where it is in one piece. */
static void copy_part(const tw_ring *ring, part what, float *const *values, float *message, int outgoing)
{
    for (const tw_stretch *at = stretch_with(ring, what.first); what.count > 0; at++) {
        size_t skipped = what.first - at->at, count = tw_smaller(what.count, at->count - skipped);
        float *here = values[at->range] + at->offset + skipped;
        memcpy(outgoing ? message : here, outgoing ? here : message, count * sizeof *here);
        message += count;
        what.first += count;
        what.count -= count;
    }
}

/* ---- a turn ------------------------------------------------------------------------------------------------------ */

/* To each rank of a cluster that shares rings with this one, the parts that `owner` adds up. */
static void send_parts(tw_clusters *self, int cluster, size_t turn, int owner, float *const *values)
{
    const tw_owner_map *map = &self->map;
    const tw_visit *visit = map->visits + (size_t)cluster * map->ring_count, *end = visit + map->ring_count;
    float *at = self->outgoing + (size_t)cluster * self->room;
    while (visit < end) {
        int peer = visit->peer;
        float *message = at;
        for (; visit < end && visit->peer == peer; visit++) {
            part what = part_of(self, visit->ring, turn, owner);
            copy_part(&map->rings[visit->ring], what, values, at, 1);
            at += what.count;
        }
        if (at > message) tw_channel_start_send(self->channel, peer, message, (size_t)(at - message) * sizeof *at);
    }
}

/* The other side of it. Of its own cluster nothing comes. */
static void receive_parts(tw_clusters *self, int cluster, size_t turn, int owner)
{
    const tw_owner_map *map = &self->map;
    const tw_visit *visit = map->visits + (size_t)cluster * map->ring_count, *end = visit + map->ring_count;
    float *at = self->incoming + (size_t)cluster * self->room;
    while (visit < end) {
        int peer = visit->peer;
        float *message = at;
        for (; visit < end && visit->peer == peer; visit++) {
            self->places[(size_t)cluster * map->ring_count + visit->ring] = at;
            at += part_of(self, visit->ring, turn, owner).count;
        }
        if (at > message && cluster != map->cluster)
            tw_channel_start_receive(self->channel, peer, message, (size_t)(at - message) * sizeof *at, NULL);
    }
}

/* One phase: parts go to those who add them up, or (sums = 1) sums to all. */
static tw_status exchange_parts(tw_clusters *self, size_t turn, int sums, float *const *values)
{
    int clusters = self->map.clusters, own = self->map.cluster;
    for (int k = 1; k < clusters; k++) {
        int from = (own + clusters - k) % clusters;
        receive_parts(self, from, turn, sums ? from : own);
    }
    for (int k = 1; k < clusters; k++) {
        int to = (own + k) % clusters;
        send_parts(self, to, turn, sums ? own : to, values);
    }
    return tw_channel_finish(self->channel);
}

/* This rank's own part of a ring becomes the mean, added up in the order of the clusters. */
static void add_up(tw_clusters *self, size_t ring, size_t turn, float *const *values)
{
    const tw_owner_map *map = &self->map;
    float *const *place = self->places + ring;
    part what = part_of(self, ring, turn, map->cluster);
    copy_part(&map->rings[ring], what, values, place[(size_t)map->cluster * map->ring_count], 1);
    float *sum = place[0];
    for (int c = 1; c < map->clusters; c++) tw_kernels_best()->add(sum, place[(size_t)c * map->ring_count], what.count);
    tw_kernels_best()->divide(sum, (float)map->clusters, what.count);
    copy_part(&map->rings[ring], what, values, sum, 0);
}

static void take_sums(const tw_clusters *self, size_t turn, float *const *values)
{
    const tw_owner_map *map = &self->map;
    for (int c = 0; c < map->clusters; c++)
        for (size_t r = 0; c != map->cluster && r < map->ring_count; r++)
            copy_part(&map->rings[r], part_of(self, r, turn, c), values, self->places[(size_t)c * map->ring_count + r],
                      0);
}

static tw_status take_turn(tw_clusters *self, size_t turn, float *const *values)
{
    receive_parts(self, self->map.cluster, turn, self->map.cluster);
    TW_TRY(exchange_parts(self, turn, 0, values));
    for (size_t r = 0; r < self->map.ring_count; r++) add_up(self, r, turn, values);
    TW_TRY(exchange_parts(self, turn, 1, values));
    take_sums(self, turn, values);
    return TW_OK;
}

tw_status tw_clusters_average(tw_clusters *self, float *const *values)
{
    TW_TRY(tw_need(self, "clusters"));
    TW_TRY(tw_comm_need(self->channel->comm));
    if (self->ranges) TW_TRY(tw_need(values, "values"));
    for (size_t i = 0; i < self->ranges; i++)
        if (!values[i]) return tw_fail(TW_ERROR_ARGUMENT, "values[%zu] is NULL", i);
    TW_TRY(tw_channel_check(self->channel));
    for (size_t turn = 0; turn * PIECE < self->longest; turn++) TW_TRY(take_turn(self, turn, values));
    return TW_OK;
}
