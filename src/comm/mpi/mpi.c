/* mpi - thinwire over MPI, in a library of its own.
 *
 * Two-sided messages on a duplicate of the caller's communicator; the tag is the channel. MPI cannot wake a waiting
 * thread, so wait polls: a short spin, because most answers are near, then ever longer naps, because the processor is
 * needed for the backward pass.
 *
 * MPI never sees the caller's memory: a message is copied into a block of this transport's own, or out of one
 * (blocks.h). What MPI carries is the message's word and, right behind it, its bytes. The block of a message that was
 * given up stays MPI's until MPI says that it is done with it, for good if it never says so: that memory is then lost,
 * on purpose.
 *
 * A rank that leaves says so (farewell.h). MPI does not report a dead peer: the deadline does. Unless all have left in
 * good order the communicator is not freed; and once a rank has failed MPI is not finalised, which would hang. */
#include "blocks.h"
#include "check.h"
#include "farewell.h"

#include <thinwire/thinwire_mpi.h>
#include <thinwire/thinwire_plugin.h>

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SPINS = 50, SHORTEST_NAP = 20 * 1000, LONGEST_NAP = 200 * 1000 /* nanoseconds */ };
#define PARTING 10.0   /* seconds for which destroy waits for others to leave, too */
#define LAST_WORDS 1.0 /* and in which a rank that gives up tells them so */
#define LAST_BITS 0.25 /* for which, behind a farewell, a send is waited for, or the bytes of a rank that gave up */

typedef struct request request;

typedef struct transport {
    MPI_Comm comm;
    int largest_tag;
    int finalises;        /* MPI was initialised here */
    _Atomic int has_left; /* the group: no wait has anything to wait for */
    tw_farewell farewell;
    tw_blocks blocks;
    pthread_mutex_t lock;
    request *abandoned; /* given up, and MPI may still be at their blocks; guarded by the lock */
} transport;

struct request {
    request *next; /* among the abandoned ones */
    MPI_Request mpi;
    int peer, is_send;
    tw_block *block;
    void *dst;       /* a receive's */
    size_t size;     /* bytes to send, or room to receive */
    int taken_back;  /* MPI was asked to end it without a message */
    int over, error; /* over: MPI is done with it, with this error and status */
    MPI_Status status;
};

static tw_status fail_mpi(const char *what, int error)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length, class = MPI_ERR_OTHER;
    MPI_Error_string(error, text, &length);
    MPI_Error_class(error, &class);
    if (class == MPI_ERR_TRUNCATE)
        return tw_fail(TW_ERROR_PACKET, "%s: %s: every rank must pass the same count", what, text);
    return tw_fail(TW_ERROR_PEER, "%s: %s", what, text);
}

/* --- messages ------------------------------------------------------------------------------------------------ */

/* A type that spans `size` bytes, for sizes that MPI's int counts cannot express: whole gibibytes and a rest. */
static int create_span(size_t size, MPI_Datatype *span)
{
    const int gibibyte = 1 << 30;
    MPI_Datatype block, parts[2];
    int counts[2] = {(int)(size / (size_t)gibibyte), (int)(size % (size_t)gibibyte)};
    MPI_Aint offsets[2] = {0, (MPI_Aint)(size - (size_t)counts[1])};
    int error = MPI_Type_contiguous(gibibyte, MPI_BYTE, &block);
    if (error != MPI_SUCCESS) return error;
    parts[0] = block;
    parts[1] = MPI_BYTE;
    error = MPI_Type_create_struct(2, counts, offsets, parts, span);
    MPI_Type_free(&block);
    return error == MPI_SUCCESS ? MPI_Type_commit(span) : error;
}

static int start_transfer(transport *mpi, request *one, int tag)
{
    size_t size = sizeof one->block->check + one->size;
    void *data = &one->block->check;
    MPI_Datatype type = MPI_BYTE;
    int count = (int)size, error;
    if (size > INT_MAX) {
        error = create_span(size, &type);
        if (error != MPI_SUCCESS) return error;
        count = 1;
    }
    error = one->is_send ? MPI_Isend(data, count, type, one->peer, tag, mpi->comm, &one->mpi)
                         : MPI_Irecv(data, count, type, one->peer, tag, mpi->comm, &one->mpi);
    if (type != MPI_BYTE) MPI_Type_free(&type); /* MPI keeps it until the transfer is over */
    return error;
}

static void mpi_release(transport *mpi, request *one)
{
    tw_blocks_give(&mpi->blocks, one->block);
    free(one);
}

static tw_status check_channel(const transport *mpi, unsigned channel)
{
    if (channel < (unsigned)mpi->largest_tag) return TW_OK; /* which is the farewells' */
    return tw_fail(TW_ERROR_UNSUPPORTED,
                   "this MPI has tags for %d channels, no more: destroy reducers and "
                   "gossips that are no longer needed before others are made",
                   mpi->largest_tag);
}

/* Of a request that comes to nothing. */
static void drop_block(transport *mpi, const request *what)
{
    if (!what->block) return;
    if (what->is_send) tw_blocks_forget(&mpi->blocks, what->block);
    tw_blocks_give(&mpi->blocks, what->block);
}

/* The block, NULL where there was no memory for it, is the request's from here on. */
static tw_status start(transport *mpi, unsigned channel, request what, void **handle)
{
    request *made = what.block ? malloc(sizeof *made) : NULL;
    if (!made) {
        drop_block(mpi, &what);
        return tw_fail(TW_ERROR_MEMORY, "no memory for a message of %zu bytes", what.size);
    }
    *made = what;
    int error = start_transfer(mpi, made, (int)channel);
    if (error == MPI_SUCCESS) {
        *handle = made;
        return TW_OK;
    }
    drop_block(mpi, made);
    free(made);
    return fail_mpi("a message could not be started", error);
}

static tw_status mpi_start_send(void *self, int peer, unsigned channel, const void *src, size_t size, uint32_t check,
                                void **handle)
{
    transport *mpi = self;
    TRY(check_channel(mpi, channel));
    tw_block *copy = tw_blocks_copy(&mpi->blocks, src, size, check);
    return start(mpi, channel, (request){.peer = peer, .is_send = 1, .block = copy, .size = size}, handle);
}

static tw_status mpi_start_recv(void *self, int peer, unsigned channel, void *dst, size_t capacity, void **handle)
{
    transport *mpi = self;
    TRY(check_channel(mpi, channel));
    tw_block *block = tw_blocks_take(&mpi->blocks, capacity);
    return start(mpi, channel, (request){.peer = peer, .block = block, .dst = dst, .size = capacity}, handle);
}

/* --- waiting ------------------------------------------------------------------------------------------------- */

static void mpi_nap(long nanoseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL);
}

static int is_over(request *one)
{
    if (one->over) return 1;
    one->error = MPI_Test(&one->mpi, &one->over, &one->status);
    if (one->error != MPI_SUCCESS) one->over = 1;
    return one->over;
}

static void take_back(request *one)
{
    if (!one->over && !one->taken_back) MPI_Cancel(&one->mpi);
    one->taken_back = 1;
}

/* Whether MPI ended a receive without a message, as it was asked to. */
static int came_to_nothing(request *one)
{
    int cancelled = 0;
    if (one->taken_back && is_over(one) && one->error == MPI_SUCCESS) MPI_Test_cancelled(&one->status, &cancelled);
    return cancelled;
}

/* Whether the peer has left and the request comes to nothing. The farewell is the last that a rank sends, and MPI
 * matches what comes from a rank in the order in which it was sent: a receive under any tag would see another one. So a
 * receive that can be taken back now had no message on its way. One that cannot has its message, of which the bytes may
 * still come: of a rank that gave up they may never. */
static int peer_is_gone(const transport *mpi, request *one)
{
    double age = tw_farewell_age(&mpi->farewell, one->peer);
    if (age < 0) return 0;
    if (!one->is_send) take_back(one);
    return came_to_nothing(one) || age >= (one->is_send || mpi->farewell.failed ? LAST_BITS : PARTING);
}

/* 1 when the request is over, or there is nothing to wait for any more. */
static int mpi_poll_request(void *self, void *handle, double timeout)
{
    transport *mpi = self;
    request *one = handle;
    double deadline = tw_clock() + timeout;
    long rest = SHORTEST_NAP;
    for (int polls = 1;; polls++) {
        if (is_over(one) || mpi->has_left || peer_is_gone(mpi, one)) return 1;
        int late = tw_clock() >= deadline;
        if (late || polls > SPINS) tw_farewell_heed(&mpi->farewell);
        if (late) return peer_is_gone(mpi, one);
        if (polls <= SPINS) continue;
        mpi_nap(rest);
        rest = rest * 2 < LONGEST_NAP ? rest * 2 : LONGEST_NAP;
    }
}

/* Releases those of the abandoned requests that MPI is done with. 1 when none is left. */
static int reap(transport *mpi)
{
    pthread_mutex_lock(&mpi->lock);
    for (request **link = &mpi->abandoned; *link;) {
        request *one = *link;
        if (is_over(one)) {
            *link = one->next;
            mpi_release(mpi, one);
        } else {
            link = &one->next;
        }
    }
    int none = !mpi->abandoned;
    pthread_mutex_unlock(&mpi->lock);
    return none;
}

/* A receive whose message has not begun to come is over with this, any other request when its peer has done its part.
 */
static void abandon(transport *mpi, request *one)
{
    if (!one->is_send) take_back(one);
    pthread_mutex_lock(&mpi->lock);
    one->next = mpi->abandoned;
    mpi->abandoned = one;
    pthread_mutex_unlock(&mpi->lock);
    reap(mpi);
}

static tw_status mpi_give_up(transport *mpi, request *one, double timeout)
{
    int peer = one->peer;
    abandon(mpi, one);
    if (mpi->has_left)
        return tw_fail(TW_ERROR_PEER, "the exchange with rank %d ended because another one failed", peer);
    if (tw_farewell_age(&mpi->farewell, peer) >= 0) return tw_fail(TW_ERROR_PEER, "rank %d has left the group", peer);
    return tw_fail(TW_ERROR_PEER, "rank %d did not answer within %g seconds", peer, timeout);
}

/* What came goes to where the caller wants it. */
static tw_status mpi_take_message(const request *one, size_t *size, uint32_t *check)
{
    MPI_Count bytes;
    int error = MPI_Get_elements_x(&one->status, MPI_BYTE, &bytes);
    if (error != MPI_SUCCESS) return fail_mpi("a message failed", error);
    if (bytes < (MPI_Count)sizeof *check)
        return tw_fail(TW_ERROR_PACKET, "what rank %d sent is no message: it has %lld bytes", one->peer,
                       (long long)bytes);
    *size = (size_t)bytes - sizeof *check;
    *check = one->block->check;
    if (*size) memcpy(one->dst, one->block->bytes, *size);
    return TW_OK;
}

static tw_status mpi_finish(const request *one, size_t *size, uint32_t *check)
{
    if (one->error != MPI_SUCCESS) return fail_mpi("a message failed", one->error);
    if (!one->is_send) return mpi_take_message(one, size, check);
    *size = one->size;
    return TW_OK;
}

static tw_status mpi_wait_request(void *self, void *handle, double timeout, size_t *size, uint32_t *check)
{
    transport *mpi = self;
    request *one = handle;
    mpi_poll_request(mpi, one, timeout);
    if (one->is_send) tw_blocks_forget(&mpi->blocks, one->block);
    if (!one->over || came_to_nothing(one)) return mpi_give_up(mpi, one, timeout);
    tw_status status = mpi_finish(one, size, check);
    mpi_release(mpi, one);
    return status;
}

/* What MPI may still touch when its transport has gone. It stays reachable, so that it is no leak in the eyes of tools.
 */
static pthread_mutex_t for_good_lock = PTHREAD_MUTEX_INITIALIZER;
static request *for_good;

static void keep_for_good(request *kept)
{
    pthread_mutex_lock(&for_good_lock);
    while (kept) {
        request *next = kept->next;
        kept->next = for_good;
        for_good = kept;
        kept = next;
    }
    pthread_mutex_unlock(&for_good_lock);
}

/* --- the comm ------------------------------------------------------------------------------------------------ */

static void mpi_leave(void *self)
{
    transport *mpi = self;
    mpi->has_left = 1;
    tw_farewell_say(&mpi->farewell, 1);
}

/* 1 when the group has ended in good order: no message is under way on this communicator, or will be. */
static int mpi_part(transport *mpi)
{
    if (mpi->has_left) {
        tw_farewell_flush(&mpi->farewell, LAST_WORDS);
        return 0;
    }
    tw_farewell_say(&mpi->farewell, 0);
    return tw_farewell_await(&mpi->farewell, PARTING) && reap(mpi);
}

static void leave_mpi(transport *mpi)
{
    int in_order = mpi_part(mpi), failed = mpi->has_left || mpi->farewell.failed;
    reap(mpi);
    tw_farewell_destroy(&mpi->farewell);
    if (in_order) MPI_Comm_free(&mpi->comm);
    if (mpi->finalises && !failed) MPI_Finalize();
}

static void mpi_destroy(void *self)
{
    transport *mpi = self;
    int finalised;
    MPI_Finalized(&finalised);
    if (!finalised) leave_mpi(mpi);
    keep_for_good(mpi->abandoned);
    tw_blocks_destroy(&mpi->blocks);
    pthread_mutex_destroy(&mpi->lock);
    free(mpi);
}

static const tw_transport_ops ops = {.struct_size = sizeof(tw_transport_ops),
                                     .version = TW_TRANSPORT_VERSION,
                                     .name = "mpi",
                                     .start_send = mpi_start_send,
                                     .start_recv = mpi_start_recv,
                                     .wait = mpi_wait_request,
                                     .poll = mpi_poll_request,
                                     .leave = mpi_leave,
                                     .destroy = mpi_destroy};

static tw_status check_threads(void)
{
    int initialised, finalised, provided;
    MPI_Initialized(&initialised);
    MPI_Finalized(&finalised);
    if (!initialised || finalised) return tw_fail(TW_ERROR_ORDER, "MPI is not initialised, or already finalised");
    MPI_Query_thread(&provided);
    if (provided < MPI_THREAD_MULTIPLE)
        return tw_fail(TW_ERROR_UNSUPPORTED, "MPI runs below MPI_THREAD_MULTIPLE: initialise it with MPI_Init_thread");
    return TW_OK;
}

static tw_status duplicate(MPI_Comm original, transport *mpi)
{
    int *largest_tag, found, error = MPI_Comm_dup(original, &mpi->comm);
    if (error != MPI_SUCCESS) return fail_mpi("the communicator could not be duplicated", error);
    MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN);
    MPI_Comm_get_attr(mpi->comm, MPI_TAG_UB, &largest_tag, &found);
    mpi->largest_tag = found ? *largest_tag : 32767; /* what the standard promises at least */
    return TW_OK;
}

static tw_status create_transport(MPI_Comm original, int finalises, transport **created)
{
    transport *mpi = calloc(1, sizeof *mpi);
    if (!mpi) return tw_fail(TW_ERROR_MEMORY, "no memory for the MPI transport");
    mpi->finalises = finalises;
    pthread_mutex_init(&mpi->lock, NULL);
    tw_blocks_create(&mpi->blocks);
    tw_status status = duplicate(original, mpi);
    if (status == TW_OK && !tw_farewell_create(&mpi->farewell, mpi->comm, mpi->largest_tag)) {
        tw_farewell_destroy(&mpi->farewell);
        MPI_Comm_free(&mpi->comm);
        status = tw_fail(TW_ERROR_MEMORY, "no memory to listen to the other ranks");
    }
    if (status == TW_OK) {
        *created = mpi;
        return TW_OK;
    }
    tw_blocks_destroy(&mpi->blocks);
    pthread_mutex_destroy(&mpi->lock);
    free(mpi);
    if (finalises) MPI_Finalize();
    return status;
}

static tw_status mpi_create(MPI_Comm original, int finalises, tw_comm **comm)
{
    transport *mpi = NULL;
    TRY(create_transport(original, finalises, &mpi));
    return tw_comm_create_custom(&ops, mpi, mpi->farewell.rank, mpi->farewell.size, comm);
}

tw_status tw_comm_create_mpi(MPI_Comm original, tw_comm **comm)
{
    TRY(tw_given(comm, "comm"));
    TRY(check_threads());
    if (original == MPI_COMM_NULL) return tw_fail(TW_ERROR_ARGUMENT, "MPI_COMM_NULL is no communicator");
    return mpi_create(original, 0, comm);
}

/* What tw_comm_open("mpi") calls. */
TW_API tw_status tw_transport_open(tw_comm **comm);

tw_status tw_transport_open(tw_comm **comm)
{
    int initialised, provided;
    TRY(tw_given(comm, "comm"));
    MPI_Initialized(&initialised);
    if (!initialised && MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
        return tw_fail(TW_ERROR_SYSTEM, "MPI could not be initialised");
    tw_status status = check_threads();
    if (status != TW_OK && !initialised) MPI_Finalize();
    return status != TW_OK ? status : mpi_create(MPI_COMM_WORLD, !initialised, comm);
}
