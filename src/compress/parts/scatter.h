/* scatter.h - a sum of packets whose bytes do not grow with the number of ranks: reduce-scatter, then all-gather.
 *
 * Every tensor is cut into pieces, at most one for each rank. A rank sends to each rank its packet of that rank's
 * pieces (an all-to-all), adds up what it was sent of its own pieces, encodes the sums anew and sends them to all (an
 * all-gather): twice 1/N of a packet to each of N - 1 ranks, as an all-reduce does it. The cut follows from the tensor
 * and N alone, not from the other tensors of the message, so it does not matter how they are fused.
 *
 * A rank whose gradient is not finite tells every rank so, and each of them tells all in the second round. So there are
 * two rounds whatever happens, and whether the step is skipped every rank reads in the same packets. */
#ifndef TW_SCATTER_H
#define TW_SCATTER_H

#include "packet.h"
#include "scheme.h"

/* Elements first .. first + count - 1 of a tensor, which rank `owner` adds up; there may be none. `first` is a multiple
 * of TW_PIECE_ALIGNMENT. */
typedef struct tw_piece {
    size_t tensor, first, count;
    int owner;
} tw_piece;

enum { TW_PIECE_ALIGNMENT = 64 /* elements: a row of random bits */, TW_LEAST_PIECE = 1024 };

/* What the scheme does for it. No piece here is empty; a rank's come in the order of the table. */
typedef struct tw_scatter_ops {
    /* Bytes that a piece's sections surely fit: from counts alone, since all ranks must find the same. */
    size_t (*bound)(const tw_scheme *scheme, const tw_piece *piece);
    /* Puts this rank's section for a piece into the packet to its owner. */
    tw_status (*write)(tw_scheme *scheme, const tw_piece *piece, tw_packet_writer *writer);
    /* Reads a section from each of `count` packets, of the ranks from `rank` on, and writes their sum, in rank order,
     * into the gradient. Sets the scheme's skipped if it overflows; the sum of all ranks' must leave room for what the
     * owner keeps of it. */
    tw_status (*add)(tw_scheme *scheme, const tw_piece *piece, tw_packet_reader *readers, int rank, int count);
    /* Puts the sum, which is in the gradient, into the packet to all. */
    tw_status (*write_sum)(tw_scheme *scheme, const tw_piece *piece, tw_packet_writer *writer);
} tw_scatter_ops;

typedef struct tw_scatter {
    tw_scheme *scheme;
    const tw_scatter_ops *ops;
    uint32_t *first_owner;    /* of each tensor: the rank that has its first piece; the next has the next */
    unsigned char *packets;   /* room for one to each rank, then for that to all */
    size_t *offset;           /* where each begins; the last is the end */
    size_t capacity;          /* of the largest */
    const void **outgoing;    /* one a rank */
    size_t *sizes;            /* likewise */
    tw_packet_reader *reader; /* likewise */
} tw_scatter;

/* Whether the bytes of a tensor of n elements are fewer that way than in an fp32 all-reduce: it is taken for alone in
 * its message, so that it does not matter what it is fused with. `bits` is what its section would weigh. */
int tw_scatter_pays(size_t n, double bits, int size);

tw_status tw_scatter_create(tw_scatter *scatter, tw_scheme *scheme, const tw_scatter_ops *ops);
void tw_scatter_destroy(tw_scatter *scatter);

/* Rank `owner`'s piece of a compressed tensor. */
tw_piece tw_scatter_piece(const tw_scatter *scatter, size_t tensor, int owner);

/* The step's rounds, one after the other: asks for the all-to-all; takes its answer and asks for the all-gather; takes
 * that answer. The sums are then in the gradients, unless the step is skipped. */
tw_status tw_scatter_start(tw_scatter *scatter, tw_round *round);
tw_status tw_scatter_sum(tw_scatter *scatter, tw_round *round);
tw_status tw_scatter_finish(tw_scatter *scatter, const tw_round *round);

#endif
