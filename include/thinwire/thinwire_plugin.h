/* thinwire_plugin.h - what a transport, or a program built closely around thinwire, needs beyond thinwire.h.
 *
 * EXPERIMENTAL: it works and is tested as the rest is, and may still change with a release (docs/abi.md). */
#ifndef THINWIRE_PLUGIN_H
#define THINWIRE_PLUGIN_H

#include <thinwire/thinwire.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------------------------
 * 1. Writing a transport
 * ------------------------------------------------------------------------------------------------------------- */

/* Changes when a field changes its meaning; fields are added without. */
#define TW_TRANSPORT_VERSION 4

/* Point-to-point messages between ranks; thinwire builds every collective from them and counts the bytes. Messages from
 * one rank to another on one channel arrive in the order they were started. Several threads may call at once, each with
 * requests of its own.
 *
 * A message is its bytes and one word beside them, `check`, which the transport carries from start_send to the
 * receiver's wait without a look at it: thinwire makes it a checksum of the bytes, and compares. */
typedef struct tw_transport_ops {
    size_t struct_size;    /* sizeof(tw_transport_ops) */
    unsigned version;      /* TW_TRANSPORT_VERSION */
    tw_memory_kind memory; /* of src and dst. TW_MEMORY_HOST; any other is TW_ERROR_UNSUPPORTED */
    const char *name;
    /* Begin to send `size` bytes, and `check`, to `peer`. src stays untouched and alive until wait has taken the
     * request. When this or the next call fails there is no request to wait for. */
    tw_status (*start_send)(void *self, int peer, unsigned channel, const void *src, size_t size, uint32_t check,
                            void **request);
    /* Begin to receive one message of at most `capacity` bytes from `peer`. */
    tw_status (*start_recv)(void *self, int peer, unsigned channel, void *dst, size_t capacity, void **request);
    /* Waits for a request and releases it. Whatever the outcome, the buffer is the caller's again afterwards, and the
     * transport neither reads nor writes it any more: one that cannot take a message back from its network has to keep
     * a copy of its own. Of a receive, *size becomes the message's bytes and *check its word. TW_ERROR_PEER when
     * `timeout` seconds pass or the peer is known to be gone, TW_ERROR_PACKET when the message is larger than the
     * capacity. With a timeout of 0 it takes a request back. Of a send that is taken back it is not told whether
     * it goes all the same, whole. A failure concerns this request alone: messages from and to other peers go on. Over
     * a sealed comm a send that fails is also the last of its channel to that peer (thinwire_sealed.h). */
    tw_status (*wait)(void *self, void *request, double timeout, size_t *size, uint32_t *check);
    /* 1 as soon as wait would return at once, with success or not; 0 when `timeout` seconds pass first. The request
     * stays. */
    int (*poll)(void *self, void *request, double timeout);
    /* (optional) This rank gives up: the waits that its threads are in end soon, and peers that wait for it get
     * TW_ERROR_PEER if the transport can tell. thinwire then starts nothing more; destroy does not wait for peers. */
    void (*leave)(void *self);
    /* Leaves the group. Peers that still wait for this rank get TW_ERROR_PEER if the transport can tell. */
    void (*destroy)(void *self);
    /* (optional) How many signs of life have come from `peer` so far: anything that comes from it is one. With `ask` it
     * is asked for another, which it gives by itself, whatever its program does. Waits for nothing. thinwire asks
     * again until it hears something, and only those that it waits for. NULL: nothing but its messages is heard of a
     * peer, so that one that computes cannot be told from one that is dead. */
    uint64_t (*signs)(void *self, int peer, int ask);
    /* (optional) leave, because `peer` is gone or does not answer: the others' texts may name it. NULL: leave is
     * called, and they learn that this rank has left. */
    void (*leave_because_of)(void *self, int peer);
    /* (optional, beside signs) Whether `peer` has lately answered that its program waits for no other rank, and so
     * keeps others waiting. It is asked once more. Waits for nothing. *where becomes an address of its machine, or "".
     * NULL: nobody is told for whom this rank waits. */
    int (*is_busy)(void *self, int peer, const char **where);
    /* (optional) 1: whoever has made the comm tells for whom it waits, and that it failed. The log is told neither. */
    int is_told_of;
} tw_transport_ops;

/* Makes a comm over a transport. ops is copied; the comm owns `self` (which may be NULL) from here on and hands it to
 * ops->destroy in tw_comm_destroy, or in this call when it fails: TW_ERROR_ARGUMENT if a field of ops is missing or
 * rank and size are out of range, TW_ERROR_UNSUPPORTED, TW_ERROR_MEMORY, TW_ERROR_SYSTEM. The exception is an ops that
 * is NULL, of another version or no possible size, or without destroy: nothing in it can be trusted, so nothing is
 * called, and `self` stays the caller's. */
TW_API tw_status tw_comm_create_custom(const tw_transport_ops *ops, void *self, int rank, int size, tw_comm **comm);

/* Lends what a comm is made of: for a transport that is built upon another comm's, and for a program that wants
 * messages of its own between two ranks. Set ops->struct_size before. *ops and *self are good for as long as the comm,
 * which still owns them: the borrower calls neither leave, unless it gives up the whole comm, nor destroy. Its bytes
 * are not counted. It may use any channel if nothing else is done with the comm meanwhile, and has to have taken back
 * every request before something is. TW_ERROR_PEER if the comm has failed. */
TW_API tw_status tw_comm_lend(const tw_comm *comm, tw_transport_ops *ops, void **self);

/* The timeout of the comm, in seconds; 0 for NULL. */
TW_API double tw_comm_timeout(const tw_comm *comm);
/* What tw_comm_set_patience was told last; 0 for NULL. */
TW_API double tw_comm_patience(const tw_comm *comm);

/* A comm of some ranks of another, over its messages: rank i is ranks[i] of `comm`, and this rank is among them. It has
 * comm's timeout and patience, and the first failure of the two ends both. Its ranks call this, all with the same list,
 * and the others need not know. `comm` outlives it, and its own collectives go on, but nothing is made on it from here
 * on: that is TW_ERROR_ORDER, and so is a second part, also where the first has been destroyed. TW_ERROR_ARGUMENT: the
 * list is none of different ranks of `comm` with this one among them. */
TW_API tw_status tw_comm_create_part(tw_comm *comm, const int *ranks, int count, tw_comm **part);

/* A library libthinwire_<name>.so that tw_comm_open can load exports this symbol. */
#define TW_TRANSPORT_ENTRY "tw_transport_open"
typedef tw_status (*tw_transport_open_fn)(tw_comm **comm);

/* ---------------------------------------------------------------------------------------------------------------
 * 2. Helpers that plug-ins and programs share with the library
 * ------------------------------------------------------------------------------------------------------------- */

/* Records the text tw_last_error() returns on this thread, and returns `status`: `return tw_fail(TW_ERROR_IO, ...)`.
 * `format` may be NULL: the status's own sentence. An argument may be the text that tw_last_error() returns now. */
TW_API tw_status tw_fail(tw_status status, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3), cold))
#endif
    ;

/* One line for the function of tw_set_log; without one it says nothing. NULL: nothing. */
TW_API void tw_log(tw_log_level level, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* The number of the tensor of that name in a state, for tw_state_at, found in a step or two however many there are;
 * tw_state_count where there is none. 0 for NULL. */
TW_API size_t tw_state_index(const tw_state *state, const char *name);

/* CRC-32C (Castagnoli) of data appended to what `crc` already covers; start with 0. */
TW_API uint32_t tw_crc32c(uint32_t crc, const void *data, size_t size);

/* Counter-based random numbers (Philox 4x32-10): the four words at (seed, stream, counter). No state; any order. */
TW_API void tw_random(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t words[4]);

/* An array in eight bits an element, for a message of one's own: the codec of scheme fp8 without its error feedback. An
 * element is a number of E4M3 (a sign, four bits of exponent, three of mantissa: Micikevicius et al. 2022, arXiv
 * 2209.05433), rounded to nearest, ties to even, times a power of two that 1,024 neighbours share. That is the least
 * with which none of them is beyond 448, the format's largest, but 2^-126 at least, and 2^119 at most: what is beyond
 * 448 times that becomes that. Any other element is off by a 16th of itself, by 2^-17 of the largest of its neighbours
 * or by 2^-136 at most, whichever is the most. Among 1,024 neighbours with NaN or infinity all become NaN. The sign of
 * a zero is lost. Every processor gives the same bytes.
 *
 * tw_fp8_bytes is `count`, and one more for each 1,024 that are begun. tw_fp8_decode takes any bytes. Nothing is done
 * where a pointer is NULL. */
TW_API size_t tw_fp8_bytes(size_t count);
TW_API void tw_fp8_encode(const float *values, size_t count, unsigned char *bytes);
TW_API void tw_fp8_decode(const unsigned char *bytes, size_t count, float *values);

/* ---------------------------------------------------------------------------------------------------------------
 * 3. Time of one's own
 * ------------------------------------------------------------------------------------------------------------- */

/* Seconds of a monotonic clock; on a thread that has taken another (tw_time_take), of that one. */
TW_API double tw_clock(void);

/* Threads that wait for the same thing, in a line. Zeroed it is empty; what is in it is whose clock they have. */
typedef struct tw_waiters {
    void *first, *last;
} tw_waiters;

/* What threads under another clock do instead of waiting: the simulator's (thinwire_sim.h). `thread` is what the
 * calling one gave to tw_time_take. One thread runs at a time, and another only when it waits or ends. */
typedef struct tw_time_ops {
    size_t struct_size; /* sizeof(tw_time_ops) */
    double (*clock)(void *thread);
    /* Stands in the line until woken (1) or until the clock reads `deadline` (0); INFINITY for no deadline. `what` is
     * what it waits for, in words. */
    int (*wait)(void *thread, tw_waiters *line, double deadline, const char *what);
    /* Wakes the first of a line, or all. */
    void (*wake)(void *thread, tw_waiters *line, int all);
    /* Starts a thread under the same clock, which is joined once. */
    tw_status (*start)(void *thread, void *(*run)(void *argument), void *argument, void **started);
    void (*join)(void *thread, void *started);
    /* The library has worked on so many elements, or on bytes that others sent, which this clock may not see. */
    void (*charge)(void *thread, uint64_t elements, uint64_t bytes);
} tw_time_ops;

/* The calling thread is under that clock from here on. *ops outlives it. TW_ERROR_ARGUMENT where one of the functions
 * is missing; TW_ERROR_ORDER where it is under another already. */
TW_API tw_status tw_time_take(const tw_time_ops *ops, void *thread);

#ifdef __cplusplus
}
#endif
#endif
