/* mpi - thinwire over MPI, in a library of its own.
 *
 * Two-sided messages on a duplicate of the caller's communicator; the tag is the channel. MPI cannot wake a waiting
 * thread, so wait polls: a short spin, because most answers are near, then ever longer naps, because the processor is
 * needed for the backward pass.
 *
 * MPI does not report a dead peer: the deadline does. Once this rank has left the group the communicator is left alone,
 * for freeing it and finalising are collective and would hang. A send that ran into the deadline cannot be taken back
 * from MPI either; a peer that still receives it may find its bytes changed, but makes no use of them. */
#include <thinwire/thinwire_mpi.h>
#include <thinwire/thinwire_plugin.h>

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        tw_status try_status = (call);                                                                                 \
        if (try_status != TW_OK) return try_status;                                                                    \
    } while (0)

enum { SPINS = 50, SHORTEST_NAP = 20 * 1000, LONGEST_NAP = 200 * 1000 /* nanoseconds */ };
#define GRACE 1.0 /* seconds */

typedef struct transport {
    MPI_Comm comm;
    int largest_tag;
    int finalises;    /* MPI was initialised here */
    _Atomic int left; /* the group: no wait has anything to wait for */
} transport;

typedef struct request {
    MPI_Request mpi;
    int peer, is_send;
    size_t size;
    int over, error; /* over: MPI is done with it, with this error and status */
    MPI_Status status;
} request;

static tw_status fail_mpi(const char *what, int error)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length, class = MPI_ERR_OTHER;
    MPI_Error_string(error, text, &length);
    MPI_Error_class(error, &class);
    return tw_fail(class == MPI_ERR_TRUNCATE ? TW_ERROR_PACKET : TW_ERROR_PEER, "%s: %s", what, text);
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

static int start_transfer(transport *mpi, int peer, int tag, void *data, size_t size, int is_send, MPI_Request *started)
{
    MPI_Datatype type = MPI_BYTE;
    int count = (int)size, error;
    if (size > INT_MAX) {
        error = create_span(size, &type);
        if (error != MPI_SUCCESS) return error;
        count = 1;
    }
    error = is_send ? MPI_Isend(data, count, type, peer, tag, mpi->comm, started)
                    : MPI_Irecv(data, count, type, peer, tag, mpi->comm, started);
    if (type != MPI_BYTE) MPI_Type_free(&type); /* MPI keeps it until the transfer is over */
    return error;
}

static tw_status start(transport *mpi, int peer, unsigned channel, void *data, size_t size, int is_send, void **handle)
{
    if (channel > (unsigned)mpi->largest_tag)
        return tw_fail(TW_ERROR_UNSUPPORTED, "this MPI has tags for %d channels, no more", mpi->largest_tag);
    request *made = malloc(sizeof *made);
    if (!made) return tw_fail(TW_ERROR_MEMORY, "no memory for a request");
    *made = (request){.peer = peer, .is_send = is_send, .size = size};
    int error = start_transfer(mpi, peer, (int)channel, data, size, is_send, &made->mpi);
    if (error == MPI_SUCCESS) {
        *handle = made;
        return TW_OK;
    }
    free(made);
    return fail_mpi("a message could not be started", error);
}

static tw_status start_send(void *self, int peer, unsigned channel, const void *src, size_t size, void **handle)
{
    return start(self, peer, channel, (void *)(uintptr_t)src, size, 1, handle); /* MPI only reads it */
}

static tw_status start_recv(void *self, int peer, unsigned channel, void *dst, size_t capacity, void **handle)
{
    return start(self, peer, channel, dst, capacity, 0, handle);
}

/* --- waiting ------------------------------------------------------------------------------------------------- */

static void nap(long nanoseconds)
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

/* 1 when the request is over, or there is nothing to wait for any more. */
static int poll_request(void *self, void *handle, double timeout)
{
    const transport *mpi = self;
    double deadline = tw_clock() + timeout;
    long rest = SHORTEST_NAP;
    for (int polls = 1;; polls++) {
        if (is_over(handle) || mpi->left) return 1;
        if (tw_clock() >= deadline) return 0;
        if (polls <= SPINS) continue;
        nap(rest);
        rest = rest * 2 < LONGEST_NAP ? rest * 2 : LONGEST_NAP;
    }
}

/* A receive whose message has begun to come cannot be cancelled: its buffer is written to until it is there. */
static void take_back(transport *mpi, request *one)
{
    MPI_Cancel(&one->mpi);
    if (!one->is_send && !mpi->left) poll_request(mpi, one, GRACE);
    if (!is_over(one)) MPI_Request_free(&one->mpi);
}

static int message_size(const request *taken, size_t *size)
{
    MPI_Count bytes = (MPI_Count)taken->size; /* the status of a send does not know */
    int error = taken->is_send ? MPI_SUCCESS : MPI_Get_elements_x(&taken->status, MPI_BYTE, &bytes);
    if (error == MPI_SUCCESS) *size = (size_t)bytes;
    return error;
}

static tw_status wait_request(void *self, void *handle, double timeout, size_t *size)
{
    transport *mpi = self;
    request taken = *(request *)handle;
    free(handle);
    poll_request(mpi, &taken, timeout);
    if (taken.over) {
        int error = taken.error == MPI_SUCCESS ? message_size(&taken, size) : taken.error;
        return error == MPI_SUCCESS ? TW_OK : fail_mpi("a message failed", error);
    }
    take_back(mpi, &taken);
    if (mpi->left)
        return tw_fail(TW_ERROR_PEER, "the exchange with rank %d ended because another one failed", taken.peer);
    return tw_fail(TW_ERROR_PEER, "rank %d did not answer within %g seconds", taken.peer, timeout);
}

/* --- the comm ------------------------------------------------------------------------------------------------ */

static void leave(void *self)
{
    ((transport *)self)->left = 1;
}

static void destroy(void *self)
{
    transport *mpi = self;
    if (!mpi->left) {
        if (mpi->comm != MPI_COMM_NULL) MPI_Comm_free(&mpi->comm);
        if (mpi->finalises) MPI_Finalize();
    }
    free(mpi);
}

static const tw_transport_ops ops = {.version = TW_TRANSPORT_VERSION,
                                     .name = "mpi",
                                     .start_send = start_send,
                                     .start_recv = start_recv,
                                     .wait = wait_request,
                                     .poll = poll_request,
                                     .leave = leave,
                                     .destroy = destroy};

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

static tw_status create(MPI_Comm original, int finalises, tw_comm **comm)
{
    int rank, size;
    transport *mpi = calloc(1, sizeof *mpi);
    if (!mpi) return tw_fail(TW_ERROR_MEMORY, "no memory for the MPI transport");
    mpi->comm = MPI_COMM_NULL;
    mpi->finalises = finalises;
    tw_status status = duplicate(original, mpi);
    if (status != TW_OK) {
        destroy(mpi);
        return status;
    }
    MPI_Comm_rank(mpi->comm, &rank);
    MPI_Comm_size(mpi->comm, &size);
    return tw_comm_create_custom(&ops, mpi, rank, size, comm);
}

static tw_status need_comm(tw_comm **comm)
{
    return comm ? TW_OK : tw_fail(TW_ERROR_ARGUMENT, "the argument comm is NULL, and this call needs it");
}

tw_status tw_comm_create_mpi(MPI_Comm original, tw_comm **comm)
{
    TRY(need_comm(comm));
    TRY(check_threads());
    return create(original, 0, comm);
}

/* What tw_comm_open("mpi") calls. */
TW_API tw_status tw_transport_open(tw_comm **comm);

tw_status tw_transport_open(tw_comm **comm)
{
    int initialised, provided;
    TRY(need_comm(comm));
    MPI_Initialized(&initialised);
    if (!initialised && MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
        return tw_fail(TW_ERROR_SYSTEM, "MPI could not be initialised");
    tw_status status = check_threads();
    if (status != TW_OK && !initialised) MPI_Finalize();
    return status != TW_OK ? status : create(MPI_COMM_WORLD, !initialised, comm);
}
