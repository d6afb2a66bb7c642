/* thinwire.h - train deep networks over thin wires.
 *
 * thinwire makes the workers of a data-parallel training run agree on their gradients while sending as few bytes as
 * possible. This header is what most programs need, and what stays as it is (docs/abi.md). thinwire_mpi.h,
 * thinwire_tcp.h and thinwire_sealed.h, which stay as well, let machines meet. These are experimental:
 * thinwire_outer.h takes many local steps between two exchanges, thinwire_members.h has machines come and go meanwhile,
 * thinwire_gossip.h averages weights with nobody waiting, thinwire_clusters.h those of models that are cut differently,
 * thinwire_folder.h is for machines that share a folder alone, thinwire_by_hand.h for programs that have their own
 * collectives, thinwire_plugin.h and thinwire_scheme.h let others add transports and schemes, thinwire_sim.h runs many
 * workers under a clock of its own, thinwire_plan.h says which way of exchanging suits a network and a line.
 *
 * The whole of it in five steps, on every worker:
 *
 *     tw_comm *comm = ...;                                      // who takes part: threads, MPI, or your own transport
 *     tw_tensor table[] = {{.name = "conv.weight", .dims = 4, .shape = {32, 1, 3, 3}},
 *                          {.name = "conv.bias", .dims = 1, .shape = {32}}};
 *     tw_reducer *reducer;
 *     tw_reducer_create(comm, "dgc:density=0.001,momentum=0.9", table, 2, &reducer);
 *     for (;;) {
 *         ... backward pass; as each gradient becomes ready:
 *         tw_reducer_submit(reducer, tensor, gradient);         // returns at once; the exchange overlaps backward
 *         ...
 *         status = tw_reducer_wait(reducer);                    // the mean over all workers is now in `gradient`
 *         if (status == TW_OK) ... w -= learning_rate * gradient
 *         if (tw_status_is_error(status)) break;                // TW_SKIPPED is none: a NaN, and no worker steps
 *     }
 *
 * Conventions
 * - A worker's gradient is the mean over its own mini-batch. What comes back is the mean over the workers.
 * - Every function that can fail returns a tw_status. Outputs come last and are written only on success.
 *   tw_last_error() then holds one sentence for a person: what was wrong, and what would be right.
 * - A NULL object, a NULL pointer that a call needs, or an index out of range is TW_ERROR_ARGUMENT, and the text names
 *   the argument. Data of 0 bytes may be NULL, and so may the arguments whose comment allows it. Functions that return
 *   no status then return 0, a NULL pointer, or "" if their comment says so; destroy functions do nothing with NULL.
 *   Nothing has changed then. All headers of thinwire follow these rules.
 * - A struct_size is set to the struct's sizeof by the caller, who may be older or newer than the library: fields that
 *   only one of them knows are zero for the other. A caller who sets one that the library does not know gets
 *   TW_ERROR_UNSUPPORTED. 0, or a number that cannot be its size, is TW_ERROR_ARGUMENT.
 * - Structs without a struct_size have reserved fields instead. These are zero until a later version gives them a
 *   meaning; anything else in them is TW_ERROR_ARGUMENT. Initialisers that name fields, and {0}, set them to zero.
 * - Objects are opaque, and each is destroyed by its own call, in any order. A tw_comm that is destroyed before what
 *   was made on it leaves its group at once: calls on the rest return TW_ERROR_PEER. Strings and tables passed in are
 *   copied unless stated otherwise. Section 6 says what a fork does.
 * - An object belongs to one thread at a time. Different objects may be used from different threads freely; the
 *   exceptions (a comm under several reducers, the threads of one group, and tw_comm_leave) are made for it.
 * - The same seed, inputs and number of workers give the same bits, over threads and over MPI, on every instruction
 *   set. Sums over workers are taken in rank order. That holds while the program leaves rounding to nearest and
 *   denormals on, as C has them; a library that was linked with -ffast-math may turn them off.
 */
#ifndef THINWIRE_H
#define THINWIRE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TW_API __attribute__((visibility("default")))
#else
#define TW_API
#endif

#define TW_VERSION_MAJOR 0
#define TW_VERSION_MINOR 1
#define TW_VERSION_PATCH 0

/* The library's version, "0.1.0"; compare it with the TW_VERSION_ macros the caller was compiled against. */
TW_API const char *tw_version(void);

/* The name of the instruction set the kernels use: "scalar", "neon", "avx2" or "avx512". Chosen once, from the
 * processor; the environment variable THINWIRE_ISA forces a lower one (an unknown or unsupported name is an error of
 * create). */
TW_API const char *tw_isa(void);
/* All that this processor can use, from the plainest to the best, with a space between: "scalar avx2 avx512". All of
 * them give the same bits. */
TW_API const char *tw_isa_levels(void);

/* ---------------------------------------------------------------------------------------------------------------
 * 1. Status and errors
 * ------------------------------------------------------------------------------------------------------------- */

/* X(name, value, sentence). Values never change. A TW_ERROR_ refuses the call or ends the object: the call says which.
 * TW_SKIPPED is no error: the call did its work, and what it found is that this one step counts for nothing. */
#define TW_STATUS_MAP(X)                                                                                               \
    X(TW_OK, 0, "success")                                                                                             \
    X(TW_ERROR_ARGUMENT, 1, "an argument is out of range or does not fit the object")                                  \
    X(TW_ERROR_SPEC, 2, "a spec string names an unknown scheme or option, or a value out of range")                    \
    X(TW_ERROR_MEMORY, 3, "memory could not be allocated")                                                             \
    X(TW_ERROR_IO, 4, "a file could not be read or written")                                                           \
    X(TW_ERROR_FORMAT, 5, "a file is not what it should be")                                                           \
    X(TW_ERROR_PACKET, 6, "a packet from a peer is damaged or not of this step")                                       \
    X(TW_ERROR_PEER, 7, "a peer is gone or did not answer within the deadline")                                        \
    X(TW_ERROR_NONFINITE, 8, "the weights hold NaN or infinity and cannot be averaged any more")                       \
    X(TW_ERROR_STATE, 9, "saved state does not fit this object")                                                       \
    X(TW_ERROR_UNSUPPORTED, 10, "this build, machine or scheme cannot do that")                                        \
    X(TW_ERROR_SYSTEM, 11, "the operating system refused a thread, a library or a resource")                           \
    X(TW_ERROR_ORDER, 12, "the calls came in an order the object does not allow")                                      \
    X(TW_SKIPPED, 13, "the step held NaN or infinity and was skipped; the next one may proceed")

typedef enum tw_status {
#define TW_STATUS_ENUM(name, value, sentence) name = value,
    TW_STATUS_MAP(TW_STATUS_ENUM)
#undef TW_STATUS_ENUM
} tw_status;

/* "TW_ERROR_PEER"; "TW_UNKNOWN" for a value not in the list. */
TW_API const char *tw_status_name(tw_status status);
/* The sentence of the list above. */
TW_API const char *tw_status_sentence(tw_status status);
/* 0 for TW_OK and TW_SKIPPED, 1 for all others, also those that a later library adds: what a binding raises. */
TW_API int tw_status_is_error(tw_status status);
/* What this thread's last call that did not return TW_OK had to say. Never NULL; valid until this thread's next
 * thinwire call. It may be printed: control characters of what a file or a peer calls something are '?' in it. */
TW_API const char *tw_last_error(void);

/* ---------------------------------------------------------------------------------------------------------------
 * 2. Comm: a group of ranks
 * ------------------------------------------------------------------------------------------------------------- */

/* One rank's membership of a group. Ranks are 0 .. size-1. */
typedef struct tw_comm tw_comm;

/* Makes a group of `size` ranks (1 .. 16384) inside this process. comms[r] is for the thread that plays rank r; that
 * thread destroys it. A rank that destroys its comm early is gone: the others get TW_ERROR_PEER, not a hang. */
TW_API tw_status tw_comm_create_threads(int size, tw_comm **comms);

/* Opens the transport `name` from its own shared library, libthinwire_<name>.so, looked up beside libthinwire.so and
 * then as the system does. Rank and size come from the launcher. "mpi" initialises MPI if nobody has, and finalises it
 * in destroy if it did. TW_ERROR_UNSUPPORTED if the library is not installed; the text says what to install. */
TW_API tw_status tw_comm_open(const char *name, tw_comm **comm);

/* Leaves the group; peers that still wait for this rank get TW_ERROR_PEER. Over MPI it waits until the others leave,
 * too, for ten seconds at most, and then, where it initialised MPI, for as long as MPI_Finalize takes. Over sockets it
 * waits for as long until the others' machines have all that was sent to them; the log is told where they have not. */
TW_API void tw_comm_destroy(tw_comm *comm);
/* Leaves the group now and keeps the object, from any thread, whatever others do with the comm: every wait that this
 * rank's threads are in ends with TW_ERROR_PEER, and so does every later call on the comm and what was made on it;
 * peers that wait for this rank get TW_ERROR_PEER as soon as the transport can tell them. So an exception between
 * submit and wait keeps nobody until the deadline, and a thread that waits can be called back. tw_comm_destroy comes
 * later, when no thread uses the comm any more. What was submitted to a reducer stays the reducer's until its wait has
 * returned an error, or its destroy has returned. Not for a signal's handler: it takes a lock. A second call does
 * nothing. */
TW_API void tw_comm_leave(tw_comm *comm);
TW_API int tw_comm_rank(const tw_comm *comm);
TW_API int tw_comm_size(const tw_comm *comm);
/* "threads", "mpi", or the name a custom transport gave; "" for NULL. */
TW_API const char *tw_comm_transport(const tw_comm *comm);

/* The longest this rank waits for a peer of which it hears nothing, in seconds (default 600, must be > 0). When it
 * passes, or a peer is known to be gone, the call returns TW_ERROR_PEER and so does every later call on the comm. A
 * peer that leaves or gives up is known to be gone at once; one whose process dies over MPI is not. Time in which this
 * process itself stood still is not counted. Call it before anything runs. */
TW_API tw_status tw_comm_set_timeout(tw_comm *comm, double seconds);

/* The longest this rank waits for a peer that is there but does something else, such as an evaluation of its own, in
 * seconds (0, the default: 1800). It counts over sockets, where a peer's communication thread answers whatever its
 * program does, and every byte that comes from it shows that it lives: a process that is dead or stopped, or whose line
 * is cut, is lost after the timeout. Over MPI and threads a peer is heard of by its messages alone, so there is one
 * limit: the timeout, or this one where it is set and longer. One below the timeout counts as the timeout. Call it
 * before anything runs. */
TW_API tw_status tw_comm_set_patience(tw_comm *comm, double seconds);

/* Collectives: every rank calls them, in the same order, with the same counts. They may be called while a reducer is
 * exchanging on the same comm, from one thread at a time. Each message carries a checksum: TW_ERROR_PACKET when it does
 * not fit, with the sender in the text. Whatever a call returns, its memory is the caller's again. */
TW_API tw_status tw_comm_barrier(tw_comm *comm);
/* values[i] becomes the sum over ranks, taken in rank order, the same bits on every rank. Sends 2(N-1)/N * 4 * count
 * bytes. */
TW_API tw_status tw_comm_allreduce(tw_comm *comm, float *values, size_t count);
/* data[0..size) becomes what it is on rank `root`. */
TW_API tw_status tw_comm_broadcast(tw_comm *comm, int root, void *data, size_t size);
/* gathered[r*size .. (r+1)*size) becomes rank r's data; gathered holds N*size bytes and may not overlap data. */
TW_API tw_status tw_comm_allgather(tw_comm *comm, const void *data, size_t size, void *gathered);

/* What the transport counted for this rank since the comm was made. Payload bytes handed to and taken from the wire;
 * a checksum of 4 bytes, and the transport's own headers, go with each message and are not among them. Set struct_size
 * = sizeof(tw_traffic) before the call. */
typedef struct tw_traffic {
    size_t struct_size;
    uint64_t bytes_sent, bytes_received;
    uint64_t messages_sent, messages_received;
} tw_traffic;
TW_API tw_status tw_comm_traffic(const tw_comm *comm, tw_traffic *traffic);

/* ---------------------------------------------------------------------------------------------------------------
 * 3. Reducer: synchronous agreement on gradients
 * ------------------------------------------------------------------------------------------------------------- */

#define TW_MAX_DIMS 8

/* One named tensor of the model. Names are unique, at most 255 bytes of UTF-8; they key saved state. Row-major. */
typedef struct tw_tensor {
    const char *name;
    size_t dims;               /* 0 .. TW_MAX_DIMS; 0 is a scalar */
    size_t shape[TW_MAX_DIMS]; /* each >= 1; at most 2^31 elements in all */
    const void *reserved[2];   /* NULL */
} tw_tensor;

/* What an element is. F16 is IEEE 754 half precision, BF16 the upper half of an F32. */
typedef enum tw_dtype {
    TW_F32 = 0,
    TW_F64 = 1,
    TW_I32 = 2,
    TW_I64 = 3,
    TW_U8 = 4,
    TW_U32 = 5,
    TW_U64 = 6,
    TW_F16 = 7,
    TW_BF16 = 8
} tw_dtype;

/* Whose memory a pointer points to. This version knows the host's alone. */
typedef enum tw_memory_kind { TW_MEMORY_HOST = 0 } tw_memory_kind;

/* Elements of a tensor: the product of its shape; 0 for NULL, SIZE_MAX where that is too small for it. */
TW_API size_t tw_tensor_count(const tw_tensor *tensor);

/* What an option of a spec may be set to. */
typedef enum tw_option_kind {
    TW_OPTION_REAL = 0,    /* a number, with a decimal point if need be, from least to most */
    TW_OPTION_INTEGER = 1, /* a whole number from least to most */
    TW_OPTION_SWITCH = 2,  /* "on" or "off" */
    TW_OPTION_CHOICE = 3,  /* one of the choices */
    TW_OPTION_TEXT = 4     /* a text without commas; it may be empty */
} tw_option_kind;

/* One option of a scheme, for a page of help, a form or a binding. Set struct_size = sizeof(tw_option_info) before the
 * call. The texts are the library's and stay. */
typedef struct tw_option_info {
    size_t struct_size;
    const char *name;
    tw_option_kind kind;
    int common;           /* 1: other schemes have it, too, and it means the same there */
    const char *fallback; /* the default, as a spec says it */
    double least, most;   /* REAL and INTEGER: both ends are allowed */
    const char *choices;  /* CHOICE: with | between them, "fp32|fp16|bf16"; otherwise NULL */
    const char *help;     /* one line */
} tw_option_info;

typedef struct tw_reducer tw_reducer;

/* Makes a reducer for `count` tensors. A collective: every rank calls it, in the same order as other reducers on that
 * comm, with the same spec and table (checked: TW_ERROR_ARGUMENT on every rank if they differ). If one rank cannot make
 * its reducer (a bad spec, no memory), none of them does: the others return that rank's status and name it.
 *
 * The spec is "scheme" or "scheme:option=value,option=value". Schemes: tw_schemes_count() and its kin.
 * Options every scheme takes:
 *   message_kb=N        tensors are fused into messages of at least N KiB of fp32 (default 0: a quarter of all tensors,
 *                       but at least 4096 and at most 32768; for allreduce, fp16 and bf16 4096)
 *   in_flight=N         messages under way at once: while one is on the wire, another is coded (default 2; for
 *                       allreduce, fp16 and bf16 4; at most 8)
 *   threads=N           messages coded at once, each on a core of its own; so many more are under way (default 1,
 *                       at most 7)
 *   overlap=on|off      exchange on threads of its own, one a message under way, while backward runs (default on);
 *                       with off, wait takes one message after the other
 *   per_host=G          the ranks 0 .. G-1, G .. 2G-1, ... are hosts: their gradients are averaged exactly inside a
 *                       host, and the scheme runs between hosts, so that a host's line carries what one rank's would.
 *                       Of the gradient the scheme sees, and clips, the host's mean. Only the first rank of a host
 *                       does its work and remembers anything. G has to divide the number of ranks (default 1)
 * Options of every scheme that compresses some tensors and not others, as settled schemes (docs/abi.md) have them:
 *   min_elements=N      tensors with fewer elements are not compressed            (default 128)
 *   min_dims=N          nor those with fewer dimensions: biases, norms            (default 2)
 *   dense=PATTERN|...   nor those whose name matches a pattern (with * and ?)
 *   leftovers=fp32|fp16|bf16  how these travel; in half precision, what rounding loses is sent with the next step
 *                                                                                 (default bf16) */
TW_API tw_status tw_reducer_create(tw_comm *comm, const char *spec, const tw_tensor *tensors, size_t count,
                                   tw_reducer **reducer);
/* Stops the exchange and frees; a message under way is waited for, at most until the deadline. A step that was
 * submitted and not waited for is lost, and the others may miss this rank's part of it: they get TW_ERROR_PEER when
 * this rank destroys its comm, or at their deadline. */
TW_API void tw_reducer_destroy(tw_reducer *reducer);

/* Hands over the gradient of tensor `index`: the mean over this worker's mini-batch, tw_tensor_count() floats. The
 * buffer is the reducer's until wait returns; the mean over workers is then in it, so each tensor has its own. Each
 * tensor once a step, in any order; the reverse of the table's order, which is what backward produces, overlaps best.
 * (A scheme that clips needs the whole gradient's norm: its exchange begins with the last submit.) TW_ERROR_ARGUMENT
 * for an index or a pointer that cannot be, and for the very buffer that was submitted before this one; TW_ERROR_ORDER
 * if the tensor was submitted in this step already; when an exchange has failed by now, what wait would return. */
TW_API tw_status tw_reducer_submit(tw_reducer *reducer, size_t index, float *gradient);

/* A gradient of which more is to be said than where it is. Set struct_size = sizeof(tw_gradient), and the rest to 0
 * where there is nothing to say. */
typedef struct tw_gradient {
    size_t struct_size;
    void *data; /* tw_tensor_count() elements, aligned as their type is; they become the mean */
    /* Of these: TW_F32, TW_F16, TW_BF16 or TW_F64. The exchange is in fp32, with the same bits as if the caller had
     * converted what goes in and what comes out, to nearest; a mean beyond the type's range becomes infinite. A rank
     * may have another type than the others. The first gradient of another type than F32 makes a place for all floats
     * of its message (none with per_host): TW_ERROR_MEMORY when there is none, and then nothing was submitted. */
    tw_dtype dtype;
    tw_memory_kind memory; /* of data: the host's. Any other, or a stream, is TW_ERROR_UNSUPPORTED */
    void *stream;          /* none: NULL */
    /* 1: this rank has no gradient for the tensor in this step (an unused layer or expert, a rank that ran out of
     * data). What stands in data is not looked at; the mean goes there, so it is not NULL. The rank adds nothing to the
     * sum, which is still divided by the number of ranks, and receives the mean. All that it remembers for the tensor
     * stays as it is, neither sent nor faded (with revision=rate, as of sdagc, what is held back follows the learning
     * rate all the same). For a tensor that is absent on all ranks the mean is 0 and nothing is lost, so it need not be
     * applied. */
    int absent;
    /* Asked before anything of the gradient is touched, with `context`: above 0 once it is there, 0 as long as it is
     * not, below 0 when it never will be. It is how a copy from a device or an event is waited for without a thread of
     * the caller's: from an exchange thread (from wait with overlap=off), after naps that grow to two milliseconds, and
     * no more once it has said yes. It must not call thinwire on this reducer or its comm. The messages behind wait,
     * too. Below 0, or after the comm's patience, wait returns TW_ERROR_SYSTEM, and the reducer is finished. */
    int (*ready)(void *context);
    void *context;
} tw_gradient;
/* tw_reducer_submit with all that can be said. TW_ERROR_ARGUMENT for a type that is none of these, too. */
TW_API tw_status tw_reducer_submit_with(tw_reducer *reducer, size_t index, const tw_gradient *gradient);

/* A gradient with a norm above is taken for an infinite one: training has come apart long before. */
#define TW_LARGEST_NORM 1e33

/* Ends the step. After TW_OK each buffer holds the mean gradient (or, where the scheme owns the momentum, the
 * direction to step in), the same bits on every rank.
 * TW_SKIPPED, which is no error: some rank's gradient held NaN or infinity, or its norm over all tensors (with
 * per_host, that of the host's mean) is above TW_LARGEST_NORM, or the sum overflowed. All ranks return it and none may
 * apply this step; the buffers hold nothing of use. No NaN entered any residual. What healthy workers computed for
 * compressed tensors stays in theirs and is sent later; for tensors that travel as fp32 it is dropped. Of the worker
 * with the NaN, what is not among the 64 elements around it may stay, too. The step is counted, and the next one may
 * proceed.
 * TW_ERROR_ORDER: not every tensor was submitted; the step goes on. TW_ERROR_PACKET, TW_ERROR_PEER, any other: the
 * exchange failed. The reducer is finished, and so that no other rank waits for it, the comm is too: what is called on
 * it from now on returns TW_ERROR_PEER. Destroy both. */
TW_API tw_status tw_reducer_wait(tw_reducer *reducer);

/* The same for at most about `seconds` (0: only looks; INFINITY: as tw_reducer_wait). *done becomes 1 when the step has
 * ended, with TW_OK or TW_SKIPPED, and 0 when the time was over first: TW_OK, the step goes on, and nothing may happen
 * to it but another wait. An interpreter calls it in a loop and heeds its signals between. With overlap=off the
 * caller's thread does the work, and the clock is looked at when a message is over: a call then takes one message at
 * least, which may wait for peers up to the comm's patience. TW_ERROR_ARGUMENT for seconds below 0 or NaN. */
TW_API tw_status tw_reducer_wait_for(tw_reducer *reducer, double seconds, int *done);

/* Waits for one tensor, for at most about `seconds`: *done becomes 1 when its mean is in its buffer, and nobody touches
 * the buffer any more before wait. So it may be copied elsewhere while later messages travel. It is provisional:
 * another message may still have the step skipped, and only TW_OK of wait says that the mean may be applied. 0 at once
 * as long as its message, or one before it, lacks a tensor that was not submitted. Between the first submit and wait,
 * as often as one likes; it does not take the place of wait. TW_ERROR_ORDER if the tensor was not submitted in this
 * step; errors of the exchange, and overlap=off, as in tw_reducer_wait_for. */
TW_API tw_status tw_reducer_wait_tensor(tw_reducer *reducer, size_t index, double seconds, int *done);

/* Tells the learning rate of the step to come, before its first submit; whenever it changes is enough. A scheme may
 * need it to keep what it holds back to the rate it was computed under (sdagc does); nobody else minds. At 0 what is
 * held back stays as it is, until a rate above 0 is compared with the last that was.
 * TW_ERROR_ARGUMENT unless it is finite and not negative, TW_ERROR_ORDER while a step is under way. */
TW_API tw_status tw_reducer_set_rate(tw_reducer *reducer, float rate);

/* The same with a rate for each tensor, for optimisers whose groups of parameters have schedules of their own; rates[i]
 * is tensor i's. All alike, they are tw_reducer_set_rate's; the call made last is the one that counts. */
TW_API tw_status tw_reducer_set_rates(tw_reducer *reducer, const float *rates);

/* For loss scaling: from the next step on gradients come multiplied by `scale` (1 to begin with; the same on every
 * rank), and so do means go. The scheme sees neither: the scale is divided out before anything of a gradient is
 * remembered, so that what is held back keeps its worth when the scale changes. With a power of two no bit of what is
 * sent or remembered differs from a run without. The bound of 1e33 is on gradients as they come, and with a scale below
 * 1 on what they are once it is divided out. A mean that overflows when it is multiplied is TW_SKIPPED on all ranks.
 * TW_ERROR_ARGUMENT unless it is 1e-6 to 1e30, TW_ERROR_ORDER while a step is under way. It costs a pass over the mean,
 * unless it is 1. */
TW_API tw_status tw_reducer_set_gradient_scale(tw_reducer *reducer, double scale);

/* The momentum the scheme applies itself: the optimiser must then take plain SGD steps, w -= lr * gradient, and decay
 * weights beside it. dgc has 0.9 unless the spec says momentum=0; dgc-adam and onebit-adam have all that Adam has, and
 * this is its beta1. Whoever applies a momentum of his own as well takes steps 1 / (1 - momentum) times as long.
 * 0 when the scheme leaves momentum to the optimiser. *nesterov (may be NULL) receives 1 for Nesterov's form. */
TW_API float tw_reducer_momentum(const tw_reducer *reducer, int *nesterov);

/* Counts since create. Set struct_size = sizeof(tw_reducer_counts) before the call; fields unknown to the library stay
 * zero. With per_host, what is said of tensors and packets (elements_sent to message_packet) is the first rank's of
 * each host; the other ranks make no packets, and have 0 there. */
typedef struct tw_reducer_counts {
    size_t struct_size;
    uint64_t steps;             /* finished, skipped ones included */
    uint64_t steps_skipped;     /* TW_SKIPPED */
    uint64_t steps_warmup;      /* finished during the scheme's warm-up */
    uint64_t bytes_sent;        /* by this rank for this reducer, counted in the transport */
    uint64_t bytes_received;    /* likewise */
    uint64_t bytes_dense;       /* what an fp32 ring all-reduce would have sent in the same steps */
    uint64_t elements_sent;     /* of compressed tensors, after warm-up */
    uint64_t elements_total;    /* elements of compressed tensors times steps, after warm-up */
    uint64_t compressed_fp32;   /* bytes: compressed tensors as fp32, after warm-up */
    uint64_t compressed_packet; /* bytes: the packets that carried them, headers included, after warm-up */
    uint64_t message_fp32;      /* bytes: all tensors as fp32, after warm-up */
    uint64_t message_packet;    /* bytes: all that this rank contributed, after warm-up */
    double seconds_codec;       /* in the scheme, of any message: momentum, selection, coding, decoding, adding */
    double seconds_exchange; /* on the wire and waiting for peers, while nothing was coded: what is left of it when one
                                message is coded while another is under way */
    double seconds_wait;     /* that tw_reducer_wait blocked its caller: what overlap did not hide */
    uint64_t bytes_between;  /* of bytes_sent, in exchanges with other hosts: see per_host; without it, all of it */
} tw_reducer_counts;
TW_API tw_status tw_reducer_stats(const tw_reducer *reducer, tw_reducer_counts *stats);

/* What will happen to tensor `index` after any warm-up, for a banner: "dgc: 402 of 401408 elements", "dense bf16: 1
 * dimension". Valid as long as the reducer; "" for an index beyond the table, or NULL. */
TW_API const char *tw_reducer_plan(const tw_reducer *reducer, size_t index);

/* Bytes of all that is remembered from step to step on this rank, which is what tw_reducer_save_state puts into a state
 * but for its count of steps; 0 for NULL, and with per_host on all but the first rank of a host. */
TW_API uint64_t tw_reducer_state_bytes(const tw_reducer *reducer);

/* ---------------------------------------------------------------------------------------------------------------
 * 4. State: named tensors, kept without loss
 * ------------------------------------------------------------------------------------------------------------- */

/* A set of named tensors and text entries: what a scheme remembers, or a whole checkpoint. On disk it is a safetensors
 * file. Values are copied in and out; nothing is rounded. */
typedef struct tw_state tw_state;

TW_API tw_status tw_state_create(tw_state **state);
TW_API void tw_state_destroy(tw_state *state);
/* Copies a tensor in; replaces one of the same name. dims 0 .. TW_MAX_DIMS; shape may hold zeros (an empty tensor). */
TW_API tw_status tw_state_put(tw_state *state, const char *name, tw_dtype dtype, size_t dims, const size_t *shape,
                              const void *data);
/* Copies a tensor out. TW_ERROR_STATE if it is missing, of another type, or not of `count` elements. */
TW_API tw_status tw_state_get(const tw_state *state, const char *name, tw_dtype dtype, size_t count, void *data);
/* Text entries (safetensors' __metadata__). The value returned is the state's; NULL if there is none. */
TW_API tw_status tw_state_put_text(tw_state *state, const char *key, const char *value);
TW_API const char *tw_state_text(const tw_state *state, const char *key);
/* The text entries in order of insertion: the key of number `index`, and its value (`value` may be NULL); NULL past the
 * last. */
TW_API const char *tw_state_text_at(const tw_state *state, size_t index, const char **value);

/* One tensor, for walking: the pointers are the state's. */
typedef struct tw_state_entry {
    const char *name;
    tw_dtype dtype;
    size_t dims;
    const size_t *shape;
    const void *data;
    size_t bytes;
    const void *reserved[2]; /* NULL */
} tw_state_entry;
TW_API size_t tw_state_count(const tw_state *state);
/* The tensors in order of insertion; TW_ERROR_ARGUMENT unless index < tw_state_count(). */
TW_API tw_status tw_state_at(const tw_state *state, size_t index, tw_state_entry *entry);

/* What something remembered is to the other ranks: what has to be kept when their number changes. */
typedef enum tw_state_kind {
    TW_STATE_ADDS = 0, /* a rank's own, of which the sum over the ranks counts: residuals, momentum of own gradients */
    TW_STATE_SAME = 1, /* the same bits on all ranks: counts of steps, momentum of means */
    TW_STATE_OWN = 2,  /* a rank's own, and nothing is lost with it: what a threshold is steered by */
    TW_STATE_AVERAGES = 3 /* a rank's own, of which the mean over the ranks counts: a gossip's weights */
} tw_state_kind;

/* One thing that is remembered of one tensor. */
typedef struct tw_remembered {
    const char *what;   /* "residual" */
    const char *tensor; /* the tensor's name. What belongs to none: "steps" of "scheme" */
    tw_state_kind kind;
    tw_dtype dtype;
    size_t count; /* elements */
    void *data;   /* these */
    /* Set where groups of different sizes remember different things. */
    const char *joins; /* ADDS: of the same tensor, what it is added to where there is nothing of its name; or NULL */
    int is_piece;      /* it is of the tensor's elements from `first` on, of which each rank has others; a state without
                        * it stands for zeros */
    size_t first;
    int is_rounding; /* ADDS: no more than what a step without a residual loses; dropped where it has no place */
    const void *reserved[2]; /* NULL */
} tw_remembered;

/* Writes a safetensors file: to a temporary name in the same folder, fsynced, then renamed over `path`; whatever goes
 * wrong (full disk, no permission: TW_ERROR_IO), an older file at `path` stays whole. */
TW_API tw_status tw_state_save(const tw_state *state, const char *path);
/* Reads one. The file is not trusted: TW_ERROR_FORMAT names the file and what is wrong with it. */
TW_API tw_status tw_state_load(const char *path, tw_state **state);

/* Copies all that the reducer's scheme remembers on this rank (momentum, residuals, step counts) into or out of a
 * state, under names that begin with `prefix`. Between steps only. load: TW_ERROR_STATE, naming the tensor, if one is
 * missing, of another shape, or holds NaN, infinity or a value beyond 1e36, or if the state has a momentum or a second
 * moment of a tensor for which the scheme has no place; and then nothing has changed. What else the state has is not
 * looked at, so another scheme may take it for its own: keep the spec beside it (tw_state_put_text). A loaded reducer
 * continues bit for bit, also one of another message_kb. With per_host all of it is on the first rank of each host; on
 * the others nothing is saved, and nothing is asked of a state that is loaded. */
TW_API tw_status tw_reducer_save_state(tw_reducer *reducer, const char *prefix, tw_state *state);
TW_API tw_status tw_reducer_load_state(tw_reducer *reducer, const char *prefix, const tw_state *state);

/* For a caller's function that is shown what is remembered, or asked for it, a thing at a time. What it returns other
 * than TW_OK ends the visit, and is what the visit returns. */
typedef tw_status (*tw_state_visit)(void *context, const tw_remembered *entry);
/* Shows all that save would copy, where it lies: entry->data stays until the reducer's next submit, and is to be read
 * only. Between steps only. As by a save, what a scheme leaves open until its next step is closed, and the last step
 * can no longer be taken back. */
TW_API tw_status tw_reducer_visit_state(tw_reducer *reducer, tw_state_visit visit, void *context);
/* The other way: asks for the same things in the same order, and loads them. entry->data are entry->count zeros, for
 * `fill` to write to. When all is there, it is looked at and loaded as by load, or refused, and then nothing has
 * changed; nor has it when `fill` ends the visit. */
TW_API tw_status tw_reducer_fill_state(tw_reducer *reducer, tw_state_visit fill, void *context);

/* Gives *state, what rank `rank` of some former group has saved. It stays until the next call or the end. NULL: it is
 * lost, with the machine that it was on, say. */
typedef tw_status (*tw_state_source)(void *context, int rank, const tw_state **state);
/* What a reducer's rank `rank` of `size` goes on with where `old_size` ranks have saved their states: puts into
 * `state`, under `prefix`, what load then takes; the old states have the same prefix. Nobody need be there: spec and
 * table tell what is remembered. Of what adds, an old rank's goes to the new ranks that lie where it lay, when both
 * groups are spread evenly over the same line: the sum over the ranks is kept to the rounding of fp32, and exactly
 * where one number is a power of two times the other and nothing is denormal. What is the same on all ranks is copied;
 * what is a rank's own comes from the first old rank that lies there. As many ranks as before have exactly what they
 * had. `source` is asked for rank 0 and for those whose part this rank takes over, in order, and with per_host for the
 * first ranks of hosts alone. Where a state is lost, what was held back there is dropped, and the new rank in its place
 * has only what is the same on all ranks; of rank 0's place the next ones are asked, and with none at all the call is
 * TW_ERROR_ARGUMENT. TW_ERROR_STATE says which old rank's state does not fit and where: what load refuses,
 * what should be the same on all ranks and is not, and what has no place in the new group: when a tensor that was
 * compressed before travels exactly in the new group and nothing of it may be held back, or when a sum is too large to
 * be loaded. Nothing is put into `state` then. What source returns is passed on. */
TW_API tw_status tw_reducer_regroup_state(const char *spec, const tw_tensor *tensors, size_t count, int old_size,
                                          tw_state_source source, void *context, int rank, int size, const char *prefix,
                                          tw_state *state);

/* ---------------------------------------------------------------------------------------------------------------
 * 5. The schemes there are
 * ------------------------------------------------------------------------------------------------------------- */

/* The schemes of this library: names and one-line summaries. */
TW_API size_t tw_schemes_count(void);
TW_API const char *tw_schemes_name(size_t index);
/* 1, and which one it is in *index, where a spec ("dgc:density=0.01", or "dgc" alone) names one of them; else 0. */
TW_API int tw_schemes_find(const char *spec, size_t *index);
TW_API const char *tw_schemes_summary(size_t index);
/* 1: what a spec of it says may still change with a release, as what gossips and outer loops take may. 0: its name, its
 * options and what a value does stay as they are (docs/abi.md). Those that stay come first. */
TW_API int tw_schemes_is_experimental(size_t index);
/* Their options, those that schemes have in common behind a scheme's own. TW_ERROR_ARGUMENT unless number <
 * tw_schemes_option_count(index). */
TW_API size_t tw_schemes_option_count(size_t index);
TW_API tw_status tw_schemes_option(size_t index, size_t number, tw_option_info *option);
/* The same as a page of text. Writes it for scheme `index` into text (always terminated; may be NULL); returns the
 * length it wanted, as snprintf does. */
TW_API size_t tw_schemes_help(size_t index, char *text, size_t capacity);
/* The spec as it suits a run of `steps` steps: what follows from the run's length, and the spec does not say, is
 * added: "dgc" becomes "dgc:density=0.18,warmup_steps=234" for 4,685 steps. dgc, dgc-adam, sdagc, onebit-adam and
 * powersgd have such options, whose defaults are those of 10,000 steps; every other spec stays as it is, a wrong one
 * too. Writes it into text (always terminated; may be NULL) and returns the length it wanted, as snprintf does. */
TW_API size_t tw_spec_for_run(const char *spec, uint64_t steps, char *text, size_t capacity);

/* ---------------------------------------------------------------------------------------------------------------
 * 6. The process: its memory, what it is told, and its children
 * ------------------------------------------------------------------------------------------------------------- */

/* Where the library's memory comes from. Both functions may be called from several threads at once. `alignment` is a
 * power of two from 64 to 2 MiB, and `bytes` a multiple of it; NULL where there is no memory. `release` gets what
 * allocate gave, never NULL. Set struct_size = sizeof(tw_allocator). */
typedef struct tw_allocator {
    size_t struct_size;
    void *context; /* may be NULL */
    void *(*allocate)(void *context, size_t alignment, size_t bytes);
    void (*release)(void *context, void *block);
} tw_allocator;

/* Before anything has been allocated, which is before the first create or load: otherwise TW_ERROR_ORDER. Without it
 * the memory is the C library's. All of libthinwire's memory comes from there but the stacks of threads; what is in a
 * library of its own (MPI, TCP, seals) has its own. */
TW_API tw_status tw_set_allocator(const tw_allocator *allocator);

typedef enum tw_log_level {
    TW_LOG_NOTE = 0,   /* what was decided: which tensors a reducer compresses, in how many messages */
    TW_LOG_WARNING = 1 /* what a person may have to look after: a skipped step, a lost rank, a comm that broke,
                        * a process that may not join */
} tw_log_level;

/* Receives one line without its end, which begins with the rank that tells it where it has one already. It may be
 * called from any thread of the library, several at once, and calls nothing of thinwire. A call of the program may wait
 * for that thread: so it waits for nothing that its caller holds meanwhile. One that wants a lock of the program's puts
 * the line aside for another thread, as the Python package does. */
typedef void (*tw_log_fn)(void *context, tw_log_level level, const char *text);

/* Has `log`, or nobody for NULL, told of what happens in this process from now on. The library prints nothing itself.
 * From any thread; a line that is being told meanwhile may still reach the one before. */
TW_API void tw_set_log(tw_log_fn log, void *context);

/* After a fork the child has the memory of its parent's objects, but none of their threads. In the child destroy and
 * tw_comm_leave do nothing to a comm, a reducer or a gossip that the parent made: neither the parent nor its peers
 * notice, and the memory stays as it is. Every other call on one, that returns a status, is TW_ERROR_ORDER. Schemes by
 * hand and states work on, each process with its own. The child may make comms of its own. (Whether a process may fork
 * after MPI was initialised is for MPI to say.) */

#ifdef __cplusplus
}
#endif
#endif
