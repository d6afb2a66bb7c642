/* channel.h - what channels are made of, and the messages that collectives are made of. */
#ifndef TW_COMM_CHANNEL_H
#define TW_COMM_CHANNEL_H

#include "numbers.h"

/* Peers a rank has messages with at a time, so that what is under way grows with N, not N * N. */
enum { TW_WINDOW = 256 };

/* One message under way. */
typedef struct tw_transfer {
    void *request;
    int peer, outgoing;
    void *dst;        /* a receive's */
    size_t size;      /* bytes to send, or room to receive */
    size_t *received; /* receives the size of what came; NULL: it has to be `size` */
} tw_transfer;

/* What a message holds, and its checksum. */
typedef struct tw_checked {
    const void *src;
    size_t size;
    uint32_t check;
} tw_checked;

struct tw_channel {
    tw_comm *comm;
    unsigned number;
    tw_numbers *numbers; /* its number is one of these */
    int has_taken;       /* them, for itself and those behind it: it gives them back */
    tw_counters counters;
    tw_transfer *transfers; /* the oldest first; room for two a peer of a window and a few */
    size_t transfer_count;
    tw_checked sent;  /* in this phase, the last: what goes to many is looked at once */
    tw_status status; /* the first failure of this phase */
    char reason[TW_REASON_BYTES];
    int broke; /* a failure on this channel is what broke the comm; guarded by the comm's mutex */
    unsigned char *scratch;
    size_t scratch_bytes;
    void (*leave_line)(void *context); /* tw_channel_share_line; NULL: nobody asked */
    void *leave_context;
    size_t segment;       /* bytes of what a large all-reduce sends at a time */
    const void **packets; /* one a rank; NULL before the first collective that lists them, as most channels have none */
    size_t *sizes;
};

tw_traffic tw_counters_read(const tw_counters *counters);
void tw_counters_add(tw_counters *counters, int outgoing, size_t size);

/* A phase of a collective: start every receive, then every send, then finish. A failure on the way is kept for finish,
 * so that the starting calls need no check. At most one message each way to each peer, and TW_WINDOW peers. */
void tw_channel_start_receive(tw_channel *channel, int peer, void *dst, size_t capacity, size_t *received);
void tw_channel_start_send(tw_channel *channel, int peer, const void *src, size_t size);
/* The same, of a message whose checksum is known. */
void tw_channel_start_send_noted(tw_channel *channel, int peer, const void *src, size_t size, uint32_t word);
/* Waits until no more than the `most` that were started last are under way: the others are done. When one of them has
 * failed, none is under way any more, and the phase is over with the first failure. */
tw_status tw_channel_finish_to(tw_channel *channel, size_t most);
/* Waits until all of them are done, for the comm's timeout at most, and returns the first failure: TW_ERROR_PACKET when
 * what came is not what was sent. Every buffer is the caller's again, whatever the outcome. */
tw_status tw_channel_finish(tw_channel *channel);

/* Its numbers, which it gives back at its end. */
void tw_channel_give(tw_channel *channel, tw_numbers *numbers);

/* Makes the lists of packets and sizes. */
tw_status tw_channel_list(tw_channel *channel);
/* Makes scratch hold at least `bytes`; what was in it is lost. Only what is written to it takes memory. */
tw_status tw_channel_reserve(tw_channel *channel, size_t bytes);

/* The collectives of comm.h in the form the public ones need: every size known, straight into the caller's memory. */
tw_status tw_channel_gather_into(tw_channel *channel, const void *data, size_t size, unsigned char *gathered);
tw_status tw_channel_broadcast_into(tw_channel *channel, int root, void *data, size_t size);

#endif
