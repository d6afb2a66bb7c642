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
    LARGE_CHUNK = 64 * 1024,
    MANY_RANKS = 512,
    LEAST_CHUNK = 64, /* values, where there are more ranks than that */
    DEPTH = 4,        /* segments between the one whose parts go out and the one whose sums do */
    UNDER_WAY = 40    /* messages of a large all-reduce, to and fro: the line does not rest while one is waited for */
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

/* The steps of a collective in which each rank has messages with each go by windows: from `first` to before this. */
static int window_end(const tw_channel *channel, int first)
{
    int ranks = channel->comm->size;
    return ranks - first < TW_WINDOW ? ranks : first + TW_WINDOW;
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

/* How many ranks take a chunk, the first ones. Among thousands a message of a few bytes is nothing but its header, and
 * their number grows with the square of the ranks. */
static size_t owners_of(const tw_channel *channel, size_t count)
{
    size_t ranks = (size_t)channel->comm->size, worthwhile = count / LEAST_CHUNK;
    return ranks <= MANY_RANKS || ranks <= worthwhile ? ranks : worthwhile + 1;
}

static chunk chunk_of(const tw_channel *channel, int rank, size_t count)
{
    size_t owners = owners_of(channel, count), r = (size_t)rank;
    if (r >= owners) return (chunk){count, 0};
    size_t share = count / owners, longer = count % owners; /* the first `longer` chunks have one more */
    return (chunk){r * share + (r < longer ? r : longer), share + (r < longer)};
}

/* One all-reduce under way. A large one goes in segments: of every chunk as many bytes at a time. Of two ranks each has
 * as much to send whether it sums half of the values or all of them, and who sums all waits for the other once. */
typedef struct reduction {
    tw_channel *channel;
    tw_dtype dtype;
    size_t width; /* bytes of a value */
    unsigned char *values;
    size_t count;
    size_t longest;  /* values of a chunk that go at a time */
    size_t segments; /* of the longest chunk; 0: it goes whole */
    int by_each;     /* each rank sums all */
    size_t stride;   /* bytes from one rank's part to the next in scratch */
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
    size_t largest = chunk_of(channel, 0, count).count;
    int is_large = largest * all.width >= LARGE_CHUNK;
    all.by_each = !is_large && channel->comm->size == 2;
    if (all.by_each) largest = count;
    all.longest = largest;
    if (is_large) {
        all.longest = channel->segment / all.width;
        all.segments = (largest + all.longest - 1) / all.longest;
    }
    size_t bytes = (all.longest < largest ? all.longest : largest) * all.width;
    size_t unit = bytes < ALIGNMENT ? all.width : ALIGNMENT; /* many ranks' few values lie close together */
    all.stride = (bytes + unit - 1) / unit * unit;
    return all;
}

/* What goes at one time of the chunk that `owner` sums. */
static chunk segment_of(const reduction *all, int owner, size_t segment)
{
    chunk whole = all->by_each ? (chunk){0, all->count} : chunk_of(all->channel, owner, all->count);
    size_t skipped = segment * all->longest < whole.count ? segment * all->longest : whole.count;
    size_t left = whole.count - skipped;
    return (chunk){whole.start + skipped, left < all->longest ? left : all->longest};
}

/* Where rank `rank`'s part of this rank's own segment lies: its own stays in place, the others' are in scratch, those
 * of one segment beside those of the next. */
static unsigned char *collectives_part_of(const reduction *all, size_t segment, int rank, chunk own)
{
    int self = all->channel->comm->rank;
    if (rank == self) return all->values + own.start * all->width;
    size_t slot = segment % DEPTH * (size_t)(all->channel->comm->size - 1) + (size_t)(rank - (rank > self));
    return all->channel->scratch + slot * all->stride;
}

static void receive_part(const reduction *all, size_t segment, int step)
{
    int peer = rank_before(all->channel, step);
    chunk own = segment_of(all, all->channel->comm->rank, segment);
    if (own.count)
        tw_channel_start_receive(all->channel, peer, collectives_part_of(all, segment, peer, own),
                                 own.count * all->width, NULL);
}

static void send_values(const reduction *all, int peer, chunk what)
{
    if (what.count)
        tw_channel_start_send(all->channel, peer, all->values + what.start * all->width, what.count * all->width);
}

static void send_part(const reduction *all, size_t segment, int step)
{
    int peer = rank_after(all->channel, step);
    send_values(all, peer, segment_of(all, peer, segment));
}

static void receive_sum(const reduction *all, int peer, chunk what)
{
    if (what.count)
        tw_channel_start_receive(all->channel, peer, all->values + what.start * all->width, what.count * all->width,
                                 NULL);
}

static void collectives_widen(tw_dtype dtype, float *dst, const void *src, size_t count)
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
    if (dtype != TW_F32) collectives_widen(dtype, wide, part, count);
    tw_kernels_best()->add(sum, dtype == TW_F32 ? part : wide, count);
}

/* own = ((part 0 + part 1) + part 2) + ..., block by block, each rounded once. */
static void sum_parts(const reduction *all, size_t segment, chunk own)
{
    int ranks = all->channel->comm->size, self = all->channel->comm->rank;
    float sum[SUM_BLOCK];
    for (size_t start = 0; ranks > 1 && start < own.count; start += SUM_BLOCK) {
        size_t left = own.count - start, block = left < SUM_BLOCK ? left : SUM_BLOCK, at = start * all->width;
        collectives_widen(all->dtype, sum, collectives_part_of(all, segment, 0, own) + at, block);
        for (int rank = 1; rank < ranks; rank++)
            add_part(all->dtype, sum, collectives_part_of(all, segment, rank, own) + at, block);
        narrow(all->dtype, collectives_part_of(all, segment, self, own) + at, sum, block);
    }
}

/* The next may begin to send: of this one only sums are to go. */
static void collectives_leave_line(const tw_channel *channel)
{
    if (channel->leave_line) channel->leave_line(channel->leave_context);
}

/* --- small ones: to and from everybody at once, for steps would only wait for each other's latency. --- */

static tw_status exchange_chunks(const reduction *all)
{
    int ranks = all->channel->comm->size;
    for (int first = 1, end; first < ranks; first = end) {
        end = window_end(all->channel, first);
        for (int step = first; step < end; step++) receive_part(all, 0, step);
        for (int step = first; step < end; step++) send_part(all, 0, step);
        TW_TRY(tw_channel_finish(all->channel));
    }
    return tw_channel_finish(all->channel);
}

static tw_status spread_sums(const reduction *all)
{
    int ranks = all->channel->comm->size;
    chunk own = segment_of(all, all->channel->comm->rank, 0);
    for (int first = 1, end; first < ranks; first = end) {
        end = window_end(all->channel, first);
        for (int step = first; step < end; step++) {
            int owner = rank_before(all->channel, step);
            receive_sum(all, owner, segment_of(all, owner, 0));
        }
        for (int step = first; step < end; step++) send_values(all, rank_after(all->channel, step), own);
        TW_TRY(tw_channel_finish(all->channel));
    }
    return tw_channel_finish(all->channel);
}

static tw_status exchange_small(const reduction *all)
{
    collectives_leave_line(all->channel); /* it hardly uses it */
    TW_TRY(exchange_chunks(all));
    sum_parts(all, 0, segment_of(all, all->channel->comm->rank, 0));
    return all->by_each ? TW_OK : spread_sums(all);
}

/* --- large ones --- */

/* The sums go around the ring, so that of ranks behind one line few send over it: in step s of a round, those of the
 * segment s times DEPTH before its own, each rank passing on what came DEPTH rounds ago. */
static int has_sums(const reduction *all, size_t round, int step)
{
    size_t behind = (size_t)step * DEPTH;
    return round >= behind && round - behind < all->segments;
}

static void pass_sum(const reduction *all, size_t round, int step)
{
    const tw_channel *channel = all->channel;
    size_t segment = round - (size_t)step * DEPTH;
    receive_sum(all, rank_before(channel, 1), segment_of(all, rank_before(channel, step), segment));
    send_values(all, rank_after(channel, 1), segment_of(all, rank_before(channel, step - 1), segment));
}

/* The parts of one segment, a peer after the other: in a step each rank sends to one and receives from one, for ranks
 * that send to all at once crowd before one another's links. Beside them go sums of those before it. Nothing that goes
 * out waits for what comes in the same round, so that the line does not rest at either end. *started receives the
 * messages that the round has started. */
static tw_status exchange_round(const reduction *all, size_t round, size_t *started)
{
    tw_channel *channel = all->channel;
    int has_parts = round < all->segments;
    *started = 0;
    for (int step = 1; step < channel->comm->size; step++) {
        size_t before = channel->transfer_count;
        if (has_parts) receive_part(all, round, step);
        if (has_parts) send_part(all, round, step);
        if (has_sums(all, round, step)) pass_sum(all, round, step);
        *started += channel->transfer_count - before;
        TW_TRY(tw_channel_finish_to(channel, UNDER_WAY));
    }
    return TW_OK;
}

/* The messages that the last rounds have started, all but those of the one whose parts are summed next. */
static size_t started_since(const size_t started[DEPTH], size_t round)
{
    size_t sum = 0;
    for (size_t i = 1; i < DEPTH; i++) sum += started[(round + i) % DEPTH];
    return sum;
}

/* A segment's parts are on the wire while those of one before it are summed. */
static tw_status exchange_segments(const reduction *all)
{
    tw_channel *channel = all->channel;
    size_t started[DEPTH] = {0};
    size_t rounds = all->segments + DEPTH * (size_t)(channel->comm->size - 1);
    for (size_t round = 0; round < rounds; round++) {
        if (round >= DEPTH) {
            TW_TRY(tw_channel_finish_to(channel, started_since(started, round)));
            if (round - DEPTH < all->segments)
                sum_parts(all, round - DEPTH, segment_of(all, channel->comm->rank, round - DEPTH));
        }
        TW_TRY(exchange_round(all, round, &started[round % DEPTH]));
        if (round + 1 == all->segments) collectives_leave_line(channel);
    }
    return tw_channel_finish(channel);
}

tw_status tw_channel_allreduce(tw_channel *channel, tw_dtype dtype, void *values, size_t count)
{
    TW_TRY(check_dtype(dtype));
    reduction all = reduction_of(channel, dtype, values, count);
    size_t slots = all.segments < DEPTH ? all.segments : DEPTH,
           parts = (slots ? slots : 1) * (size_t)(channel->comm->size - 1);
    TW_TRY(tw_channel_reserve(channel, parts * all.stride));
    return all.segments ? exchange_segments(&all) : exchange_small(&all);
}

/* --- all-gather and all-to-all --------------------------------------------------------------------------------- */

/* What goes to rank r: packets[r * apart], of sizes[r * apart] bytes; apart = 0: the same to everybody. */
typedef struct outgoing {
    const void *const *packets;
    const size_t *sizes;
    size_t apart;
} outgoing;

/* Rank r's packet to dst + r * stride on every other rank. sizes: see tw_transfer; NULL when all are of one size. */
static tw_status exchange_packets(tw_channel *channel, outgoing out, unsigned char *dst, size_t stride, size_t capacity,
                                  size_t *sizes)
{
    for (int first = 1, end; first < channel->comm->size; first = end) {
        end = window_end(channel, first);
        for (int step = first; step < end; step++) {
            int peer = rank_before(channel, step);
            tw_channel_start_receive(channel, peer, dst + (size_t)peer * stride, capacity, sizes ? sizes + peer : NULL);
        }
        for (int step = first; step < end; step++) {
            int peer = rank_after(channel, step);
            size_t which = (size_t)peer * out.apart;
            tw_channel_start_send(channel, peer, out.packets[which], out.sizes[which]);
        }
        TW_TRY(tw_channel_finish(channel));
    }
    return tw_channel_finish(channel);
}

tw_status tw_channel_gather_into(tw_channel *channel, const void *data, size_t size, unsigned char *gathered)
{
    if (size) memcpy(gathered + (size_t)channel->comm->rank * size, data, size);
    return exchange_packets(channel, (outgoing){&data, &size, 0}, gathered, size, size, NULL);
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

/* Into scratch, but for the caller's own, which stays where it is. */
static tw_status exchange_listed(tw_channel *channel, outgoing out, size_t capacity, const void *const **packets,
                                 const size_t **sizes)
{
    size_t ranks = (size_t)channel->comm->size, self = (size_t)channel->comm->rank;
    size_t stride = (capacity + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    TW_TRY(tw_channel_reserve(channel, ranks * stride));
    TW_TRY(tw_channel_list(channel));
    TW_TRY(exchange_packets(channel, out, channel->scratch, stride, capacity, channel->sizes));
    for (size_t r = 0; r < ranks; r++) channel->packets[r] = channel->scratch + r * stride;
    channel->packets[self] = out.packets[self * out.apart];
    channel->sizes[self] = out.sizes[self * out.apart];
    *packets = channel->packets;
    *sizes = channel->sizes;
    return TW_OK;
}

tw_status tw_channel_allgather(tw_channel *channel, const void *data, size_t size, size_t capacity,
                               const void *const **packets, const size_t **sizes)
{
    TW_TRY(check_packet(size, capacity, (size_t)channel->comm->size));
    return exchange_listed(channel, (outgoing){&data, &size, 0}, capacity, packets, sizes);
}

tw_status tw_channel_alltoall(tw_channel *channel, const void *const *packets, const size_t *sizes, size_t capacity,
                              const void *const **received, const size_t **received_sizes)
{
    size_t ranks = (size_t)channel->comm->size;
    for (size_t r = 0; r < ranks; r++) TW_TRY(check_packet(sizes[r], capacity, ranks));
    return exchange_listed(channel, (outgoing){packets, sizes, 1}, capacity, received, received_sizes);
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
