/* peer.h - what a rank knows of one other: its connections, the messages to it and those from it.
 *
 * All of it is guarded by the peer's mutex, which is held for a system call at most: whoever has it may be sure that
 * nobody reads or writes a caller's memory for this peer. */
#ifndef TW_COMM_TCP_PEER_H
#define TW_COMM_TCP_PEER_H

#include "check.h"
#include "frame.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    TCP_EAGER = 64 * 1024,       /* a message of so many bytes does not wait for its receive */
    TCP_WINDOW = 256 * 1024,     /* bytes of such on one channel that their receiver may still have to keep */
    TCP_MESSAGE_COST = 256,      /* what each counts besides its bytes */
    TCP_FAR_EAGER = 1024 * 1024, /* the same two where a round trip takes milliseconds; no sender may go beyond */
    TCP_FAR_WINDOW = 4 * 1024 * 1024,
    TCP_MOST_AHEAD = 1 << 15, /* messages of a channel between the first that was not received and the last */
    TCP_MOST_SLOTS = 1 << 20, /* of a peer's channels together; what it sends makes no more */
    TCP_MOST_FLOWS = 1 << 16,
    TCP_MOST_STREAMS = 16,
    TCP_BUCKETS = 64,
    TCP_STAGE = 16 * 1024, /* bytes that are read before it is known what they are */
    TCP_BATCH = 8          /* frames that a system call takes */
};
#define TCP_MOST_KEPT ((size_t)256 << 20) /* bytes of a peer's messages that nobody has asked for */

typedef enum tcp_outcome { TCP_PENDING = 0, TCP_DONE, TCP_TOO_LONG, TCP_FAILED } tcp_outcome;

typedef struct tcp_request {
    struct tcp_request *next; /* in its flow's queue */
    struct tcp_peer *peer;
    struct tcp_flow *flow;
    int is_send;
    tcp_outcome outcome;
    int awaited;
    uint32_t check;
    size_t size; /* bytes to send, or room to receive; in the end the message's */
    /* a receive */
    unsigned char *dst;
    /* a send */
    const unsigned char *src;
    uint64_t seq;
    size_t given;        /* bytes that have gone into frames */
    int begun, frames;   /* it has a number; its frames that are not yet with the system */
    int orphan;          /* its owner has taken it back, but a part of it had gone: the rest goes from here */
    unsigned char *rest; /* an orphan's bytes, from `rest_at` on */
    size_t rest_at;
} tcp_request;

/* A place for one message to come, between the first that is not over and the last that is known of. */
typedef struct tcp_slot {
    struct tcp_slot *next;
    uint64_t seq;
    tcp_request *receive; /* NULL: none is posted */
    unsigned char *kept;  /* the message's bytes, while they cannot go where they belong */
    size_t size, claimed, arrived;
    size_t granted; /* what READY has said; 0: nothing */
    size_t offered; /* what OFFER has said; 0: nothing */
    uint32_t check;
    int begun, small, dropped, over; /* small: it came on credit; dropped: its bytes go nowhere */
    int ready_due;
} tcp_slot;

/* A READY that came before its message. */
typedef struct tcp_permit {
    struct tcp_permit *next;
    uint64_t seq;
    size_t size;
} tcp_permit;

/* The messages of one channel, both ways. */
typedef struct tcp_flow {
    struct tcp_peer *peer;
    struct tcp_flow *next;  /* in its bucket */
    struct tcp_flow *other; /* of the peer */
    unsigned channel;
    tcp_request *first, *last; /* to be sent */
    uint64_t sent_seq;         /* messages that have begun to be sent */
    size_t owed;               /* of them, bytes for which no credit came back */
    tcp_permit *permits;
    int offer_due, offered; /* of the first */
    int corrects;           /* the offer that is due: its receiver has heard of a message that was taken back */
    tcp_slot *front, *back;
    uint64_t base;    /* the front's number; without slots, that of the next message */
    size_t unpaid;    /* bytes that came on credit that has not been given back */
    size_t received;  /* of them, those that have reached their receiver */
    size_t ready_due; /* slots with one due */
} tcp_flow;

/* A frame that is being written. */
typedef struct tcp_outgoing {
    unsigned char header[TCP_FRAME_BYTES];
    tcp_request *message; /* NULL: a header alone */
    size_t offset, length, done;
} tcp_outgoing;

/* One connection. */
typedef struct tcp_stream {
    struct tcp_peer *peer;
    int fd, index;
    int waits_for_room; /* the poller tells when there is some */
    int closed;         /* nothing more comes from it */
    tcp_outgoing out[TCP_BATCH];
    int out_first, out_count;
    unsigned char stage[TCP_STAGE];
    size_t staged, read; /* bytes in stage; of them, those that have been looked at */
    tcp_slot *slot;      /* whose bytes come next, `left` of them at `at` */
    tcp_flow *flow;
    size_t at, left;
} tcp_stream;

/* A program that waits looks up from it now and then. */
typedef struct tcp_waits {
    _Atomic int count;    /* of its threads that do now */
    _Atomic double ended; /* when the last one did */
    _Atomic double moved; /* when bytes of a message last came from any rank, or a full line took some */
} tcp_waits;

typedef struct tcp_peer {
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* a request that is awaited has its outcome, or all has been written */
    int rank, ranks;        /* and of its group */
    int poller;             /* its epoll */
    int streams, open_streams;
    tcp_stream *stream; /* an array */
    tcp_flow *bucket[TCP_BUCKETS], *flows, *turn;
    size_t flow_count;
    size_t controls; /* headers due */
    size_t eager, window;
    size_t kept;
    size_t slots; /* of all flows */
    size_t permits;
    int wake;              /* of `changed`, once the mutex is free */
    int bye_due, said_bye; /* to it; by it */
    int because_of;        /* of which rank it gave up, and 1; 0: of none */
    int waited;            /* for that rank, in vain: it had not gone */
    uint64_t signs;        /* of life: whenever bytes came from it, or its machine made room for ours */
    int ask_due, asked;    /* whether it is there, and no answer has come yet */
    int here_due;          /* it has asked, once or more often */
    int is_busy;           /* as its last answer says, */
    double answered;       /* which came then */
    char *place;           /* where it is, for texts; NULL: that is not known */
    tcp_waits *own;        /* of this rank's program */
    int closing, shut;     /* nothing more is begun; and all that was begun is with the system */
    int gone;              /* no message comes or goes any more */
    int has_left;          /* and it was this rank that left */
    tw_status why;
    char text[256]; /* why it is gone */
} tcp_peer;

void tcp_peer_create(tcp_peer *peer, int rank, int ranks);
void tcp_peer_destroy(tcp_peer *peer);
void tcp_peer_lock(tcp_peer *peer);
/* And wakes those that have something to wake up for. */
void tcp_peer_unlock(tcp_peer *peer);

/* Every request of the peer ends, and nothing more is read or written. The first reason stays. */
void tcp_peer_fail(tcp_peer *peer, tw_status why, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same for what it sent that no rank sends. Returns 0. */
int tcp_peer_violated(tcp_peer *peer, const char *rule);

/* The same as failing, by this rank's own will: the peer is told, and because of which rank (and 1; 0: of none), and
 * whether this rank waited for that one in vain; what it still sends is let by until the end. */
void tcp_peer_leave(tcp_peer *peer, int because_of, int waited, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* --- flow.c: the messages of one channel */

/* The flow of a channel, made where there is none. It stays, and its channel has other users in time. */
tw_status tcp_flow_of(tcp_peer *peer, unsigned channel, tcp_flow **flow);
/* Gives a request its outcome. */
void tcp_request_end(tcp_request *request, tcp_outcome outcome);
/* The same for a slot's receive, which leaves the slot. */
void tcp_receive_end(tcp_slot *slot, tcp_outcome outcome);
/* The same for a message that goes; an orphan has nobody to be told, and is freed. */
void tcp_send_end(tcp_request *send, tcp_outcome outcome);
/* The first to be sent is no longer in the queue. */
void tcp_flow_pop(tcp_flow *flow);
/* All of its requests fail. */
void tcp_flow_fail(tcp_flow *flow);
void tcp_flow_free(tcp_flow *flow);

/* --- inbox.c: messages that come */

/* Posts a receive: it takes the next message of the flow that none has been posted for. */
tw_status tcp_inbox_post(tcp_flow *flow, tcp_request *receive);
/* Takes one back that is pending. Its memory is not touched any more; the request stays its owner's. */
void tcp_inbox_withdraw(tcp_request *receive);
/* A header that has been read. 0: it breaks the rules, and the peer has failed. *slot is where the bytes behind it go;
 * NULL: there are none. */
int tcp_inbox_take(tcp_peer *peer, const tcp_frame *frame, tcp_flow *flow, tcp_slot **slot);
/* Where the bytes of a slot from `at` on go; NULL: nowhere. */
unsigned char *tcp_inbox_target(const tcp_slot *slot, size_t at);
void tcp_inbox_arrived(tcp_flow *flow, tcp_slot *slot, size_t bytes);
/* Lets go of the first slots that are over, and whose READY has been written. */
void tcp_inbox_settle(tcp_flow *flow);

/* --- outbox.c: messages that go */

void tcp_outbox_post(tcp_flow *flow, tcp_request *send);
/* Takes one back that is pending, memory and request. */
void tcp_outbox_withdraw(tcp_request *send);
int tcp_outbox_take(tcp_peer *peer, const tcp_frame *frame, tcp_flow *flow);
/* The next frame for a stream; 0: there is none. */
int tcp_outbox_next(tcp_peer *peer, int stream, tcp_outgoing *frame);
const unsigned char *tcp_outbox_bytes(const tcp_request *send, size_t at);
/* A frame of the message is with the system. */
void tcp_outbox_written(tcp_request *send);
/* 1 when there is nothing to write. */
int tcp_outbox_is_empty(const tcp_peer *peer);

/* --- stream.c: one connection */

/* How often the peer was heard; asks it to be heard again, once until it answers. */
uint64_t tcp_peer_signs(tcp_peer *peer, int ask);
/* Whether it has answered lately that its program is busy; asks it again. */
int tcp_peer_is_busy(tcp_peer *peer);
/* Writes what there is to write, until the system takes no more. */
void tcp_stream_push(tcp_peer *peer);
/* There is room again. */
void tcp_stream_go_on(tcp_stream *stream);
/* Reads once, without waiting. Returns how many bytes came; 0: none, or none will any more. */
size_t tcp_stream_pull(tcp_stream *stream);
/* Reads what has come so far. */
void tcp_peer_catch_up(tcp_peer *peer);
/* For texts: it failed, as another rank says. */
#define TCP_GIVEN_UP "rank %d failed: rank %d gave up the group because of it"

#endif
