/* Collectives out of point-to-point messages. Each is one or a few phases (see channel.h) in which every rank first
 * starts its receives, so that nobody can block anybody, and steps through its peers from its own neighbour on, so that
 * no rank is everybody's target at once. */
#include "channel.h"

#include "error.h"
#include "kernels.h"

#include <string.h>

enum {
    ALIGNMENT = 64,
    SUM_BLOCK = 2048, /* values: the running sum stays in the first-level cache */
    LARGE_CHUNK = 64 * 1024
};

/* The rank `step` places after, or before, this one on the ring of all ranks. */
static int rank_after(const tw_channel *channel, int step)
{
    return (channel->comm->rank + step) % channel->comm->size;
}

static int rank_before(const tw_channel *channel, int step)
{
    return (channel->comm->rank + channel->comm->size - step) % channel->comm->size;
}

/* Dissemination (Hensgen, Finkel and Manber 1988): after round k everybody has heard from 2^(k+1) ranks. */
tw_status tw_channel_barrier(tw_channel *channel)
{
    for (int step = 1; step < channel->comm->size; step *= 2) {
        tw_channel_start_receive(channel, rank_before(channel, step), NULL, 0, NULL);
        tw_channel_start_send(channel, rank_after(channel, step), NULL, 0);
        TW_TRY(tw_channel_finish(channel));
    }
    return tw_channel_finish(channel);
}

/* --- all-reduce ---------------------------------------------------------------------------------------------- */

/* The values [start, start + count) that one rank sums for all. */
typedef struct chunk {
    size_t start, count;
} chunk;

static chunk chunk_of(const tw_channel *channel, int rank, size_t count)
{
    size_t ranks = (size_t)channel->comm->size, r = (size_t)rank;
    size_t share = count / ranks, longer = count % ranks; /* the first `longer` chunks have one more */
    return (chunk){r * share + (r < longer ? r : longer), share + (r < longer)};
}

/* One all-reduce under way. */
typedef struct reduction {
    tw_channel *channel;
    tw_dtype dtype;
    size_t width; /* bytes of a value */
    unsigned char *values;
    size_t count;
    chunk own;     /* this rank's */
    size_t stride; /* bytes from one part of it to the next in scratch */
} reduction;

static tw_status check_dtype(tw_dtype dtype)
{
    if (dtype == TW_F32 || dtype == TW_F16 || dtype == TW_BF16) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "an all-reduce sums F32, F16 or BF16; there is none for type %d", (int)dtype);
}

static reduction reduction_of(tw_channel *channel, tw_dtype dtype, void *values, size_t count)
{
    reduction all = {.channel = channel, .dtype = dtype, .values = values, .count = count};
    all.width = dtype == TW_F32 ? sizeof(float) : sizeof(uint16_t);
    all.own = chunk_of(channel, channel->comm->rank, count);
    all.stride = (all.own.count * all.width + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return all;
}

/* Where rank `rank`'s part of this rank's own chunk lies: its own stays in place, the others' are in scratch. */
static unsigned char *part_of(const reduction *all, int rank)
{
    int self = all->channel->comm->rank;
    if (rank == self) return all->values + all->own.start * all->width;
    return all->channel->scratch + (size_t)(rank - (rank > self)) * all->stride;
}

static void receive_part(const reduction *all, int step)
{
    int peer = rank_before(all->channel, step);
    if (all->own.count)
        tw_channel_start_receive(all->channel, peer, part_of(all, peer), all->own.count * all->width, NULL);
}

static void send_chunk(const reduction *all, int peer, int owner)
{
    chunk theirs = chunk_of(all->channel, owner, all->count);
    if (theirs.count)
        tw_channel_start_send(all->channel, peer, all->values + theirs.start * all->width, theirs.count * all->width);
}

static void send_part(const reduction *all, int step)
{
    int peer = rank_after(all->channel, step);
    send_chunk(all, peer, peer);
}

static void receive_chunk(const reduction *all, int peer, int owner)
{
    chunk theirs = chunk_of(all->channel, owner, all->count);
    if (theirs.count)
        tw_channel_start_receive(all->channel, peer, all->values + theirs.start * all->width, theirs.count * all->width,
                                 NULL);
}

/* Large chunks go to one peer after the other: over Ethernet, four ranks that send to all at once take a third longer
 * (bench/link.sh), for they crowd before one another's links. Small ones would only wait for each other's latency. */
static int goes_by_steps(const reduction *all)
{
    return chunk_of(all->channel, 0, all->count).count * all->width >= LARGE_CHUNK;
}

static tw_status exchange_parts(const reduction *all)
{
    tw_channel *channel = all->channel;
    int ranks = channel->comm->size, by_steps = goes_by_steps(all);
    TW_TRY(tw_channel_reserve(channel, (size_t)(ranks - 1) * all->stride));
    for (int step = 1; by_steps && step < ranks; step++) {
        receive_part(all, step);
        send_part(all, step);
        TW_TRY(tw_channel_finish(channel));
    }
    for (int step = 1; !by_steps && step < ranks; step++) receive_part(all, step);
    for (int step = 1; !by_steps && step < ranks; step++) send_part(all, step);
    return tw_channel_finish(channel);
}

static void widen(tw_dtype dtype, float *dst, const void *src, size_t count)
{
    if (dtype == TW_F16)
        tw_kernels_best()->from_fp16(dst, src, count);
    else if (dtype == TW_BF16)
        tw_kernels_best()->from_bf16(dst, src, count);
    else
        memcpy(dst, src, count * sizeof *dst);
}

static void narrow(tw_dtype dtype, void *dst, const float *src, size_t count)
{
    if (dtype == TW_F16)
        tw_kernels_best()->to_fp16(dst, src, count);
    else if (dtype == TW_BF16)
        tw_kernels_best()->to_bf16(dst, src, count);
    else
        memcpy(dst, src, count * sizeof *src);
}

static void add_part(tw_dtype dtype, float *sum, const void *part, size_t count)
{
    float wide[SUM_BLOCK];
    if (dtype != TW_F32) widen(dtype, wide, part, count);
    tw_kernels_best()->add(sum, dtype == TW_F32 ? part : wide, count);
}

/* values[own] = ((part 0 + part 1) + part 2) + ..., block by block, each rounded once. */
static void sum_parts(const reduction *all)
{
    int ranks = all->channel->comm->size;
    float sum[SUM_BLOCK];
    for (size_t start = 0; ranks > 1 && start < all->own.count; start += SUM_BLOCK) {
        size_t left = all->own.count - start, block = left < SUM_BLOCK ? left : SUM_BLOCK, at = start * all->width;
        widen(all->dtype, sum, part_of(all, 0) + at, block);
        for (int rank = 1; rank < ranks; rank++) add_part(all->dtype, sum, part_of(all, rank) + at, block);
        narrow(all->dtype, part_of(all, all->channel->comm->rank) + at, sum, block);
    }
}

/* Around the ring, each passing on what came last: a connection that never rests is the fastest. */
static tw_status pass_chunks(const reduction *all)
{
    tw_channel *channel = all->channel;
    for (int step = 1; step < channel->comm->size; step++) {
        receive_chunk(all, rank_before(channel, 1), rank_before(channel, step));
        send_chunk(all, rank_after(channel, 1), rank_before(channel, step - 1));
        TW_TRY(tw_channel_finish(channel));
    }
    return TW_OK;
}

/* From each owner straight to everybody. */
static tw_status spread_chunks(const reduction *all)
{
    tw_channel *channel = all->channel;
    for (int step = 1; step < channel->comm->size; step++)
        receive_chunk(all, rank_before(channel, step), rank_before(channel, step));
    for (int step = 1; step < channel->comm->size; step++)
        send_chunk(all, rank_after(channel, step), channel->comm->rank);
    return tw_channel_finish(channel);
}

tw_status tw_channel_allreduce(tw_channel *channel, tw_dtype dtype, void *values, size_t count)
{
    TW_TRY(check_dtype(dtype));
    reduction all = reduction_of(channel, dtype, values, count);
    TW_TRY(exchange_parts(&all));
    sum_parts(&all);
    return goes_by_steps(&all) ? pass_chunks(&all) : spread_chunks(&all);
}

/* --- all-gather ---------------------------------------------------------------------------------------------- */

/* Rank r's packet to dst + r * stride on every rank. sizes: see tw_transfer; NULL when all are of `size` bytes. */
static tw_status exchange_packets(tw_channel *channel, const void *data, size_t size, unsigned char *dst, size_t stride,
                                  size_t capacity, size_t *sizes)
{
    for (int step = 1; step < channel->comm->size; step++) {
        int peer = rank_before(channel, step);
        tw_channel_start_receive(channel, peer, dst + (size_t)peer * stride, capacity, sizes ? sizes + peer : NULL);
    }
    for (int step = 1; step < channel->comm->size; step++)
        tw_channel_start_send(channel, rank_after(channel, step), data, size);
    if (size) memcpy(dst + (size_t)channel->comm->rank * stride, data, size);
    return tw_channel_finish(channel);
}

tw_status tw_channel_gather_into(tw_channel *channel, const void *data, size_t size, unsigned char *gathered)
{
    return exchange_packets(channel, data, size, gathered, size, size, NULL);
}

static tw_status check_packet(size_t size, size_t capacity, size_t ranks)
{
    if (size > capacity)
        return tw_fail(TW_ERROR_ARGUMENT, "a packet of %zu bytes is larger than the agreed %zu", size, capacity);
    if (capacity > SIZE_MAX / ranks - ALIGNMENT)
        return tw_fail(TW_ERROR_MEMORY, "%zu packets of %zu bytes are more than this machine can address", ranks,
                       capacity);
    return TW_OK;
}

tw_status tw_channel_allgather(tw_channel *channel, const void *data, size_t size, size_t capacity,
                               const void *const **packets, const size_t **sizes)
{
    size_t ranks = (size_t)channel->comm->size;
    TW_TRY(check_packet(size, capacity, ranks));
    size_t stride = (capacity + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    TW_TRY(tw_channel_reserve(channel, ranks * stride));
    TW_TRY(exchange_packets(channel, data, size, channel->scratch, stride, capacity, channel->sizes));
    channel->sizes[channel->comm->rank] = size;
    for (size_t r = 0; r < ranks; r++) channel->packets[r] = channel->scratch + r * stride;
    *packets = channel->packets;
    *sizes = channel->sizes;
    return TW_OK;
}

/* --- all-to-all ---------------------------------------------------------------------------------------------- */

static tw_status exchange_own_packets(tw_channel *channel, const void *const *packets, const size_t *sizes,
                                      size_t stride, size_t capacity)
{
    for (int step = 1; step < channel->comm->size; step++) {
        int peer = rank_before(channel, step);
        tw_channel_start_receive(channel, peer, channel->scratch + (size_t)peer * stride, capacity,
                                 channel->sizes + peer);
    }
    for (int step = 1; step < channel->comm->size; step++) {
        int peer = rank_after(channel, step);
        tw_channel_start_send(channel, peer, packets[peer], sizes[peer]);
    }
    return tw_channel_finish(channel);
}

tw_status tw_channel_alltoall(tw_channel *channel, const void *const *packets, const size_t *sizes, size_t capacity,
                              const void *const **received, const size_t **received_sizes)
{
    size_t ranks = (size_t)channel->comm->size, self = (size_t)channel->comm->rank;
    for (size_t r = 0; r < ranks; r++) TW_TRY(check_packet(sizes[r], capacity, ranks));
    size_t stride = (capacity + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    TW_TRY(tw_channel_reserve(channel, ranks * stride));
    TW_TRY(exchange_own_packets(channel, packets, sizes, stride, capacity));
    for (size_t r = 0; r < ranks; r++) channel->packets[r] = channel->scratch + r * stride;
    channel->packets[self] = packets[self];
    channel->sizes[self] = sizes[self];
    *received = channel->packets;
    *received_sizes = channel->sizes;
    return TW_OK;
}

/* --- broadcast ----------------------------------------------------------------------------------------------- */

/* Binomial tree over the ranks counted from the root on: each receives from the one whose number lacks its lowest set
 * bit, and passes on to those that differ from it in one lower bit, the farthest first. *size is known on the root;
 * `exact` says that all know it. */
static tw_status broadcast_down(tw_channel *channel, int root, void *data, size_t *size, size_t capacity, int exact)
{
    int ranks = channel->comm->size, place = (channel->comm->rank + ranks - root) % ranks, bit = 1;
    while (bit < ranks && !(place & bit)) bit *= 2;
    if (place) {
        tw_channel_start_receive(channel, rank_before(channel, bit), data, capacity, exact ? NULL : size);
        TW_TRY(tw_channel_finish(channel));
    }
    for (bit /= 2; bit; bit /= 2)
        if (place + bit < ranks) tw_channel_start_send(channel, rank_after(channel, bit), data, *size);
    return tw_channel_finish(channel);
}

tw_status tw_channel_broadcast_into(tw_channel *channel, int root, void *data, size_t size)
{
    return broadcast_down(channel, root, data, &size, size, 1);
}

tw_status tw_channel_broadcast(tw_channel *channel, int root, const void *data, size_t size, size_t capacity,
                               const void **packet, size_t *packet_size)
{
    int is_root = channel->comm->rank == root;
    size_t bytes = is_root ? size : 0;
    TW_TRY(check_packet(bytes, capacity, 1));
    if (!is_root) TW_TRY(tw_channel_reserve(channel, capacity));
    void *buffer = is_root ? (void *)(uintptr_t)data : channel->scratch; /* the root's is only read */
    TW_TRY(broadcast_down(channel, root, buffer, &bytes, capacity, 0));
    *packet = buffer;
    *packet_size = bytes;
    return TW_OK;
}
