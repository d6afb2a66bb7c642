#include "gather.h"

#include "delivered.h"
#include "error.h"
#include "memory.h"
#include "sound.h"

/* Each rank sends its packet to all the others; a ring, 2(N-1)/N of the vector. */
static int is_wide(const tw_gather *gather)
{
    const tw_scheme *scheme = gather->scheme;
    double packet_bits = 0;
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed) packet_bits += gather->ops->bits(gather->scheme, i);
    double others = scheme->size - 1;
    return others * packet_bits > 2 * others / scheme->size * 32 * (double)gather->count;
}

const char *tw_gather_road(const tw_gather *gather)
{
    if (gather->use_scatter) return ", in pieces: that is less";
    return is_wide(gather) ? ", sent dense: that is less" : "";
}

/* The most bytes that this step's packet takes. */
static size_t packet_bound(const tw_gather *gather, int is_riding)
{
    const tw_scheme *scheme = gather->scheme;
    size_t bytes = tw_packet_bound_header();
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed) bytes += gather->ops->bound(gather->scheme, i);
    return is_riding ? bytes + tw_leftovers_bound(&gather->leftovers) : bytes;
}

tw_status tw_gather_create_scattered(tw_gather *gather, tw_scheme *scheme, const tw_gather_ops *ops,
                                     const tw_scatter_ops *pieces)
{
    *gather = (tw_gather){.scheme = scheme, .ops = ops, .use_scatter = 1};
    gather->count = tw_scheme_compressed(scheme);
    TW_TRY(tw_scatter_create(&gather->scatter, scheme, pieces));
    return tw_leftovers_create(&gather->leftovers, scheme);
}

tw_status tw_gather_create(tw_gather *gather, tw_scheme *scheme, const tw_gather_ops *ops)
{
    *gather = (tw_gather){.scheme = scheme, .ops = ops};
    gather->count = tw_scheme_compressed(scheme);
    TW_TRY(tw_leftovers_create(&gather->leftovers, scheme));
    gather->packet_capacity = packet_bound(gather, tw_leftovers_ride(&gather->leftovers));
    TW_TRY(tw_allocate_unset(gather->packet_capacity, &gather->packet));
    TW_TRY(tw_allocate((size_t)scheme->size, sizeof *gather->reader, &gather->reader));
    return is_wide(gather) ? tw_gather_create_whole(gather) : TW_OK;
}

tw_status tw_gather_create_whole(tw_gather *gather)
{
    if (gather->wide.scheme) return TW_OK;
    return tw_dense_create(&gather->wide, gather->scheme, (tw_dense_settings){.compressed = 1, .dtype = TW_F32});
}

void tw_gather_destroy(tw_gather *gather)
{
    tw_free(gather->packet);
    tw_free(gather->reader);
    tw_scatter_destroy(&gather->scatter);
    tw_dense_destroy(&gather->leftovers);
    tw_dense_destroy(&gather->wide);
}

/* ---- the packets ------------------------------------------------------------------------------------------------- */

static void begin_packet(const tw_gather *gather, tw_packet_writer *writer)
{
    const tw_scheme *scheme = gather->scheme;
    tw_packet_begin(writer, gather->packet, gather->packet_capacity, (uint32_t)scheme->step, !scheme->finite,
                    scheme->carried);
}

/* Whoever finds out while writing that the gradient is not sound begins anew. */
static tw_status gather_write_packet(tw_gather *gather, size_t *size)
{
    tw_scheme *scheme = gather->scheme;
    tw_packet_writer writer;
    begin_packet(gather, &writer);
    for (size_t i = 0, sound = scheme->finite; sound && i < scheme->count; i++)
        if (scheme->tensors[i].compressed) TW_TRY(gather->ops->write(gather->scheme, i, &writer));
    tw_sound_together(scheme);
    if (!scheme->finite)
        begin_packet(gather, &writer);
    else if (gather->is_riding)
        TW_TRY(tw_leftovers_put(&gather->leftovers, &writer));
    scheme->account.index_bytes = writer.index_bytes;
    *size = tw_packet_end(&writer);
    return TW_OK;
}

/* To the bit what their all-reduce gives, so that it does not matter which tensors share a message. */
static tw_status add_leftovers(tw_gather *gather, int count)
{
    for (int rank = 0; rank < count; rank++)
        TW_TRY(tw_delivered_blame(rank, tw_leftovers_add(&gather->leftovers, &gather->reader[rank], rank == 0)));
    if (!tw_dense_round(&gather->leftovers)) gather->scheme->skipped = 1;
    return TW_OK;
}

/* The sum of `count` packets, in their order, into the gradients. */
static tw_status add_packets(tw_gather *gather, int count)
{
    tw_scheme *scheme = gather->scheme;
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed)
            TW_TRY(gather->ops->add(gather->scheme, i, gather->reader, count, scheme->gradients[i]));
    if (gather->is_riding) TW_TRY(add_leftovers(gather, count));
    return tw_delivered_close(gather->reader, count);
}

static void pack_as_it_is(tw_gather *gather, float scale, tw_round *round)
{
    gather->use_wide = 1;
    gather->is_riding = 0;
    tw_dense_pack(&gather->wide, scale, round);
    gather->scheme->account.packet_bytes = gather->count * sizeof(float);
    gather->scheme->account.index_bytes = 0;
}

/* What this rank would send, spread over the gradients, goes into an all-reduce. */
static tw_status pack_wide(tw_gather *gather, size_t size, tw_round *round)
{
    const void *own = gather->packet;
    if (gather->scheme->finite) {
        TW_TRY(tw_delivered_open(gather->scheme, gather->reader, &own, &size, 1));
        TW_TRY(add_packets(gather, 1));
    }
    pack_as_it_is(gather, 1, round);
    return TW_OK;
}

static tw_status start_packets(tw_gather *gather, tw_round *round)
{
    tw_scheme *scheme = gather->scheme;
    size_t size;
    gather->use_wide = is_wide(gather);
    gather->is_riding = !gather->use_wide && tw_leftovers_ride(&gather->leftovers);
    TW_TRY(gather_write_packet(gather, &size));
    if (gather->use_wide) return pack_wide(gather, size, round);
    round->kind = TW_ROUND_ALLGATHER;
    round->data = gather->packet;
    round->size = size;
    round->capacity =
        packet_bound(gather, gather->is_riding); /* not that of a heavier step: receivers make room for N of them */
    scheme->account.packet_bytes = size - scheme->account.exact_bytes; /* of the leftovers that ride */
    return TW_OK;
}

static tw_status finish_packets(tw_gather *gather, const tw_round *round)
{
    tw_scheme *scheme = gather->scheme;
    if (gather->use_wide) {
        scheme->skipped = !tw_dense_unpack(&gather->wide);
        return TW_OK;
    }
    if (gather->use_scatter) return tw_scatter_finish(&gather->scatter, round);
    TW_TRY(tw_delivered_open(scheme, gather->reader, round->packets, round->sizes, scheme->size));
    return scheme->skipped ? TW_OK : add_packets(gather, scheme->size);
}

/* ---- the rounds -------------------------------------------------------------------------------------------------- */

enum { START_PACKETS, FINISH_PACKETS, FINISH_LEFTOVERS, SUM_PIECES };

/* The scatter's two rounds take the place of the packets' one. */
static tw_status gather_start(tw_gather *gather, tw_round *round)
{
    tw_scheme *scheme = gather->scheme;
    scheme->taken = scheme->finite;
    if (scheme->taken && gather->ops->take) gather->ops->take(gather->scheme);
    if (gather->is_whole) {
        tw_sound_together(scheme);
        pack_as_it_is(gather, scheme->scale, round);
        return TW_OK;
    }
    if (!gather->use_scatter) return start_packets(gather, round);
    gather->use_wide = 0;
    scheme->phase = SUM_PIECES;
    return tw_scatter_start(&gather->scatter, round);
}

static tw_status gather_finish(tw_gather *gather, tw_round *round)
{
    if (!gather->scheme->skipped && gather->ops->complete) gather->ops->complete(gather->scheme);
    round->kind = TW_ROUND_DONE;
    return TW_OK;
}

tw_status tw_gather_next(tw_gather *gather, tw_round *round)
{
    tw_scheme *scheme = gather->scheme;
    int phase = scheme->phase++;
    if (phase == START_PACKETS && gather->count) return gather_start(gather, round);
    if (phase == START_PACKETS) tw_sound_together(scheme);
    if (phase == SUM_PIECES) {
        scheme->phase = FINISH_PACKETS;
        return tw_scatter_sum(&gather->scatter, round);
    }
    if (phase == FINISH_PACKETS) TW_TRY(finish_packets(gather, round));
    if (phase == FINISH_LEFTOVERS) {
        scheme->skipped = !tw_dense_unpack(&gather->leftovers);
        return gather_finish(gather, round);
    }
    if (scheme->skipped || gather->is_riding || !gather->leftovers.count) return gather_finish(gather, round);
    scheme->phase = FINISH_LEFTOVERS;
    tw_leftovers_pack(&gather->leftovers, round);
    return TW_OK;
}

void tw_gather_revert(tw_gather *gather)
{
    tw_dense_revert(&gather->leftovers);
}

tw_status tw_gather_walk(tw_gather *gather, tw_walk *walk)
{
    return tw_dense_walk(&gather->leftovers, walk);
}
