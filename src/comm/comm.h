/* comm.h - channels: collectives that may run side by side on one comm.
 *
 * A channel is one user of a comm (the program itself, a reducer): its messages never meet another channel's, its bytes
 * are counted apart as well as in the comm's total. Channels are created in the same order on every rank, and destroyed
 * when each rank likes. One thread at a time uses a channel; several channels of one comm run at once. */
#ifndef TW_COMM_H
#define TW_COMM_H

#include <thinwire/thinwire_plugin.h>

typedef struct tw_channel tw_channel;

tw_status tw_channel_create(tw_comm *comm, tw_channel **channel);
/* The same, with `more` numbers behind its own for messages that its user starts by itself. */
tw_status tw_channel_create_wide(tw_comm *comm, unsigned more, tw_channel **channel);
/* The same as a collective, under numbers that others have had before, where there are any: again.c. */
tw_status tw_channel_create_again(tw_comm *comm, unsigned more, tw_channel **channel);
/* A channel on one of these: `behind` is 1 to `more`. */
tw_status tw_channel_create_behind(const tw_channel *first, unsigned behind, tw_channel **channel);
/* Those behind it have to be gone, and all that has messages under its numbers. */
void tw_channel_destroy(tw_channel *channel);
tw_traffic tw_channel_traffic(const tw_channel *channel);

/* This rank alone has failed, with `status` and tw_last_error(): what it meets on the comm from now on fails, and the
 * others, which do not know, get TW_ERROR_PEER instead of waiting for it. Returns `status`, with its text. */
tw_status tw_channel_give_up(tw_channel *channel, tw_status status);

/* This rank wants no more of the comm: the same, from any thread, for no failure. */
void tw_channel_leave(tw_channel *channel);

/* TW_ERROR_PEER once the comm is broken. */
tw_status tw_channel_check(const tw_channel *channel);
/* The same where this rank has left it by itself. */
tw_status tw_channel_check_left(const tw_channel *channel);

/* The longest that anybody is waited for. */
double tw_channel_patience(const tw_channel *channel);
/* So many more, or fewer, want that the log is not told for whom this rank waits: it follows the others, or its program
 * goes on meanwhile. */
void tw_channel_keep_quiet(const tw_channel *channel, int more);

/* All-reduces of several channels, one after the other, get more through a line than side by side, where they all begin
 * and end together and the line rests in between. leave(context) is called, on the caller's thread, in each all-reduce
 * that goes well so far, when the next may begin: what is left of this one takes no more than half the line. */
void tw_channel_share_line(tw_channel *channel, void (*leave)(void *context), void *context);

/* 1 if a failure on this channel is what broke the comm. */
int tw_channel_broke(const tw_channel *channel);

tw_status tw_channel_barrier(tw_channel *channel);

/* values[i] becomes the sum over ranks in rank order, starting from rank 0's value: ((v0 + v1) + v2) + ... Each rank
 * receives every rank's part of its own chunk, sums it, and the chunks are gathered: the bytes of a ring all-reduce,
 * 2(N-1)/N * count values per rank, of 4 bytes for TW_F32 and 2 for TW_F16 and TW_BF16. Halves are summed in fp32 and
 * the sum is rounded once, by the rank whose chunk it is: to nearest, ties to even, beyond the range to infinity; NaN
 * stays NaN. All ranks get the same bits. Any other dtype is TW_ERROR_ARGUMENT. Above 512 ranks a few values are summed
 * by the first ranks alone, and the bytes are a ring's for all together. */
tw_status tw_channel_allreduce(tw_channel *channel, tw_dtype dtype, void *values, size_t count);

/* Every rank's packet to every rank. No rank's packet may exceed `capacity`, which is the same on all. (*packets)[r]
 * and (*sizes)[r] are rank r's: the caller's own packet stays where it is, `data`; the others are the channel's, valid
 * until its next call, aligned to 64 bytes. */
tw_status tw_channel_allgather(tw_channel *channel, const void *data, size_t size, size_t capacity,
                               const void *const **packets, const size_t **sizes);

/* packets[r], of sizes[r] bytes, to rank r; none may exceed `capacity`, which is the same on all. (*received)[r] and
 * (*received_sizes)[r] are what rank r had for this one: the caller's own packet stays where it is; the others are the
 * channel's, valid until its next call, aligned to 64 bytes. */
tw_status tw_channel_alltoall(tw_channel *channel, const void *const *packets, const size_t *sizes, size_t capacity,
                              const void *const **received, const size_t **received_sizes);

/* root's packet to every rank; `data` and `size` matter on the root only. *packet is the channel's (on the root: data).
 */
tw_status tw_channel_broadcast(tw_channel *channel, int root, const void *data, size_t size, size_t capacity,
                               const void **packet, size_t *packet_size);

/* The packets of the last call have been read. In a world, where all ranks share one machine's memory, theirs is given
 * back: N ranks with N packets each would not fit. */
void tw_channel_release(tw_channel *channel);

#endif
