#include "scatter.h"

#include "delivered.h"
#include "error.h"
#include "memory.h"
#include "sound.h"

#include <string.h>
#include <thinwire/thinwire_plugin.h>

/* ---- the cut ----------------------------------------------------------------------------------------------------- */

static size_t pieces_of(size_t n, int size)
{
    size_t most = n / TW_LEAST_PIECE;
    return most < 1 ? 1 : most < (size_t)size ? most : (size_t)size;
}

/* Where piece j of `pieces` begins in a tensor of n elements. */
static size_t scatter_cut(size_t n, size_t pieces, size_t j)
{
    return j == pieces ? n : n * j / pieces / TW_PIECE_ALIGNMENT * TW_PIECE_ALIGNMENT;
}

tw_piece tw_scatter_piece(const tw_scatter *scatter, size_t tensor, int owner)
{
    size_t n = scatter->scheme->tensors[tensor].count, ranks = (size_t)scatter->scheme->size;
    size_t pieces = pieces_of(n, scatter->scheme->size);
    size_t j = ((size_t)owner + ranks - scatter->first_owner[tensor]) % ranks;
    if (j >= pieces) return (tw_piece){tensor, 0, 0, owner};
    size_t first = scatter_cut(n, pieces, j);
    return (tw_piece){tensor, first, scatter_cut(n, pieces, j + 1) - first, owner};
}

/* Both roads send 2(N-1)/N times what they send; this one also a header to each rank and one to all. */
int tw_scatter_pays(size_t n, double bits, int size)
{
    return bits + 8.0 * (double)tw_packet_bound_header() * size < 32 * (double)n;
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

/* Tensors with fewer pieces than ranks are many ranks' by chance, not all of them the first ranks'. */
static void find_first_owners(tw_scatter *scatter)
{
    const tw_scheme *scheme = scatter->scheme;
    for (size_t i = 0; i < scheme->count; i++) {
        const char *name = scheme->tensors[i].name;
        scatter->first_owner[i] = tw_crc32c(0, name, strlen(name)) % (uint32_t)scheme->size;
    }
}

static size_t packet_bound(const tw_scatter *scatter, int owner)
{
    const tw_scheme *scheme = scatter->scheme;
    size_t bytes = tw_packet_bound_header();
    for (size_t i = 0; i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        tw_piece piece = tw_scatter_piece(scatter, i, owner);
        if (piece.count) bytes += scatter->ops->bound(scatter->scheme, &piece);
    }
    return bytes;
}

static void place_packets(tw_scatter *scatter)
{
    int size = scatter->scheme->size;
    for (int rank = 0; rank < size; rank++) {
        size_t bound = packet_bound(scatter, rank);
        if (bound > scatter->capacity) scatter->capacity = bound;
        scatter->offset[rank + 1] = scatter->offset[rank] + bound;
        if (rank == scatter->scheme->rank) scatter->offset[size + 1] = bound;
    }
    scatter->offset[size + 1] += scatter->offset[size];
}

tw_status tw_scatter_create(tw_scatter *scatter, tw_scheme *scheme, const tw_scatter_ops *ops)
{
    size_t size = (size_t)scheme->size;
    *scatter = (tw_scatter){.scheme = scheme, .ops = ops};
    TW_TRY(tw_allocate(scheme->count, sizeof *scatter->first_owner, &scatter->first_owner));
    TW_TRY(tw_allocate(size + 2, sizeof *scatter->offset, &scatter->offset));
    TW_TRY(tw_allocate(size, sizeof *scatter->outgoing, &scatter->outgoing));
    TW_TRY(tw_allocate(size, sizeof *scatter->sizes, &scatter->sizes));
    TW_TRY(tw_allocate(size, sizeof *scatter->reader, &scatter->reader));
    find_first_owners(scatter);
    place_packets(scatter);
    return tw_allocate_unset(scatter->offset[size + 1], &scatter->packets);
}

void tw_scatter_destroy(tw_scatter *scatter)
{
    tw_free(scatter->first_owner);
    tw_free(scatter->packets);
    tw_free(scatter->offset);
    tw_free(scatter->outgoing);
    tw_free(scatter->sizes);
    tw_free(scatter->reader);
}

/* ---- the rounds -------------------------------------------------------------------------------------------------- */

typedef tw_status (*write_piece)(tw_scheme *scheme, const tw_piece *piece, tw_packet_writer *writer);

/* Writes packet number `at` with the sections of rank `owner`'s pieces, or with none if there is a NaN to tell of. */
static tw_status scatter_write_packet(tw_scatter *scatter, int at, int owner, int nonfinite, write_piece write,
                                      size_t *size)
{
    tw_scheme *scheme = scatter->scheme;
    const size_t *offset = &scatter->offset[at];
    tw_packet_writer writer;
    tw_packet_begin(&writer, scatter->packets + offset[0], offset[1] - offset[0], (uint32_t)scheme->step, nonfinite,
                    scheme->carried);
    for (size_t i = 0; !nonfinite && i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        tw_piece piece = tw_scatter_piece(scatter, i, owner);
        if (piece.count) TW_TRY(write(scatter->scheme, &piece, &writer));
    }
    scheme->account.index_bytes += writer.index_bytes;
    *size = tw_packet_end(&writer);
    return TW_OK;
}

static tw_status write_packets(tw_scatter *scatter, int nonfinite)
{
    tw_scheme *scheme = scatter->scheme;
    for (int rank = 0; rank < scheme->size; rank++) {
        TW_TRY(scatter_write_packet(scatter, rank, rank, nonfinite, scatter->ops->write, &scatter->sizes[rank]));
        scatter->outgoing[rank] = scatter->packets + scatter->offset[rank];
        scheme->account.packet_bytes += scatter->sizes[rank];
    }
    return TW_OK;
}

/* Whoever finds out while writing that the gradient is not sound begins anew. */
tw_status tw_scatter_start(tw_scatter *scatter, tw_round *round)
{
    tw_scheme *scheme = scatter->scheme;
    TW_TRY(write_packets(scatter, !scheme->finite));
    tw_sound_together(scheme);
    if (!scheme->finite) TW_TRY(write_packets(scatter, 1));
    round->kind = TW_ROUND_ALLTOALL;
    round->packets = scatter->outgoing;
    round->sizes = scatter->sizes;
    round->capacity = scatter->capacity;
    return TW_OK;
}

/* Adds rank `owner`'s pieces of `count` packets, of the ranks from `rank` on. */
static tw_status add_pieces(tw_scatter *scatter, int owner, int rank, int count)
{
    const tw_scheme *scheme = scatter->scheme;
    for (size_t i = 0; i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        tw_piece piece = tw_scatter_piece(scatter, i, owner);
        if (piece.count) TW_TRY(scatter->ops->add(scatter->scheme, &piece, &scatter->reader[rank], rank, count));
    }
    return TW_OK;
}

tw_status tw_scatter_sum(tw_scatter *scatter, tw_round *round)
{
    tw_scheme *scheme = scatter->scheme;
    int size = scheme->size, rank = scheme->rank;
    TW_TRY(tw_delivered_open(scheme, scatter->reader, round->packets, round->sizes, size));
    if (!scheme->skipped) {
        TW_TRY(add_pieces(scatter, rank, 0, size));
        TW_TRY(tw_delivered_close(scatter->reader, size));
    }
    TW_TRY(scatter_write_packet(scatter, size, rank, scheme->skipped, scatter->ops->write_sum, &round->size));
    round->kind = TW_ROUND_ALLGATHER;
    round->data = scatter->packets + scatter->offset[size];
    round->capacity = scatter->capacity;
    return TW_OK;
}

tw_status tw_scatter_finish(tw_scatter *scatter, const tw_round *round)
{
    tw_scheme *scheme = scatter->scheme;
    TW_TRY(tw_delivered_open(scheme, scatter->reader, round->packets, round->sizes, scheme->size));
    if (scheme->skipped) return TW_OK;
    for (int rank = 0; rank < scheme->size; rank++) TW_TRY(add_pieces(scatter, rank, rank, 1));
    return tw_delivered_close(scatter->reader, scheme->size);
}
