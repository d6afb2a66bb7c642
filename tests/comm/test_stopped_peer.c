/* Memory of a caller whose message was given up is the caller's, though MPI goes on with the message. One of two
 * processes is stopped in the middle of a large message, past the other's deadline, and continued when the other has
 * its memory back and has written to it, or made it unreadable. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_mpi.h>
#include <thinwire/thinwire_plugin.h>

#include "support/cmocka.h"

#define CHECK(condition) check(condition, __LINE__, #condition)
#define DEADLINE 1.0
#define PATIENCE 60.0

enum { FLOATS = 4 << 20, LARGE = 128 << 10, SIGN = 7 };
static const size_t bytes = FLOATS * sizeof(float);
static int rank;

/* The other process would wait for one that a failed assertion has taken out. */
static void check(int holds, int line, const char *text)
{
    if (holds) return;
    fprintf(stderr, "rank %d, line %d: %s (%s)\n", rank, line, text, tw_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* --- the message in whose middle this process stops ------------------------------------------------------------ */

typedef enum trap { NONE, AT_SEND, AT_RECEIVE } trap;

static _Atomic int armed;
static _Atomic int under_way; /* MPI has not done its part of the message */
static MPI_Request large;

static void stop_at(trap at, MPI_Count count, const MPI_Request *request)
{
    int expected = at;
    if (count < LARGE || !atomic_compare_exchange_strong(&armed, &expected, NONE)) return;
    large = *request;
    under_way = 1;
    kill(getpid(), SIGSTOP);
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request *request)
{
    int error = PMPI_Isend(data, count, type, peer, tag, comm, request);
    stop_at(AT_SEND, count, request);
    return error;
}

int MPI_Irecv(void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request *request)
{
    int error = PMPI_Irecv(data, count, type, peer, tag, comm, request);
    stop_at(AT_RECEIVE, count, request);
    return error;
}

int MPI_Test(MPI_Request *request, int *over, MPI_Status *status)
{
    int watched = under_way && *request == large, error = PMPI_Test(request, over, status);
    if (watched && *over) under_way = 0;
    return error;
}

static void carry_on_until_it_is_over(void)
{
    double deadline = tw_clock() + PATIENCE;
    for (int over = 0; under_way && !over;) {
        PMPI_Request_get_status(large, &over, MPI_STATUS_IGNORE);
        CHECK(tw_clock() < deadline);
    }
    under_way = 0;
}

/* --- two processes --------------------------------------------------------------------------------------------- */

static int is_stopped(pid_t pid)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    CHECK(file && fscanf(file, "%*d %*s %c", &state) == 1);
    fclose(file);
    return state == 'T';
}

static void wait_until_stopped(pid_t pid)
{
    double deadline = tw_clock() + PATIENCE;
    while (!is_stopped(pid)) {
        CHECK(tw_clock() < deadline);
        usleep(1000);
    }
}

static tw_comm *open_comm(pid_t pids[2])
{
    tw_comm *comm = NULL;
    pid_t own = getpid();
    CHECK(tw_comm_create_mpi(MPI_COMM_WORLD, &comm) == TW_OK);
    CHECK(tw_comm_size(comm) == 2);
    CHECK(tw_comm_allgather(comm, &own, sizeof own, pids) == TW_OK);
    return comm;
}

/* Memory of whole pages, so that it can be taken out of everybody's reach. */
static float *make_values(float value)
{
    float *values = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(values != MAP_FAILED);
    for (size_t i = 0; i < FLOATS; i++) values[i] = value;
    return values;
}

static int are_all(const float *values, float value)
{
    for (size_t i = 0; i < FLOATS; i++)
        if (values[i] != value) return 0;
    return 1;
}

static void forbid(float *values)
{
    CHECK(mprotect(values, bytes, PROT_NONE) == 0);
}

/* Rank 0, which has its memory back: the other does its part of the message now. */
static void let_it_end(pid_t pid)
{
    int sign = 0;
    CHECK(kill(pid, SIGCONT) == 0);
    PMPI_Recv(&sign, 1, MPI_INT, 1, SIGN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(sign == SIGN);
}

/* Rank 1, which has been continued. */
static void say_it_is_over(void)
{
    int sign = SIGN;
    carry_on_until_it_is_over();
    PMPI_Send(&sign, 1, MPI_INT, 0, SIGN, MPI_COMM_WORLD);
}

/* --- a broadcast ------------------------------------------------------------------------------------------------ */

static void give_up_broadcast(tw_comm *comm, pid_t peer, int root)
{
    float *values = make_values(root == 0 ? 1 : 2);
    wait_until_stopped(peer);
    CHECK(tw_comm_set_timeout(comm, DEADLINE) == TW_OK);
    CHECK(tw_comm_broadcast(comm, root, values, bytes) == TW_ERROR_PEER);
    if (root == 0)
        forbid(values); /* a read would end this process */
    else
        for (size_t i = 0; i < FLOATS; i++) values[i] = 3;
    let_it_end(peer);
    CHECK(root == 0 || are_all(values, 3));
    munmap(values, bytes);
}

static void stop_in_broadcast(tw_comm *comm, int root)
{
    float *values = make_values(2);
    armed = root == 0 ? AT_RECEIVE : AT_SEND;
    tw_status status = tw_comm_broadcast(comm, root, values, bytes);
    CHECK(armed == NONE);
    CHECK(status == TW_OK || status == TW_ERROR_PEER);
    CHECK(status != TW_OK || are_all(values, root == 0 ? 1 : 2));
    forbid(values);
    say_it_is_over();
    munmap(values, bytes);
}

static void broadcast_from(int root)
{
    pid_t pids[2];
    tw_comm *comm = open_comm(pids);
    if (rank == 0)
        give_up_broadcast(comm, pids[1], root);
    else
        stop_in_broadcast(comm, root);
    tw_comm_destroy(comm);
}

TEST(nothing_is_written_to_what_was_given_back)
{
    broadcast_from(1);
}

TEST(nothing_is_read_from_what_was_given_back)
{
    broadcast_from(0);
}

/* --- a reducer and a gossip, which end in time, too ------------------------------------------------------------- */

static const tw_tensor table = {"w", 1, {FLOATS / 16}};

/* What each rank does between the creation, which is a collective, and the exchange. */
static void get_ready(tw_comm *comm, pid_t peer)
{
    armed = rank == 1 ? AT_SEND : NONE;
    if (rank == 1) return;
    wait_until_stopped(peer);
    CHECK(tw_comm_set_timeout(comm, DEADLINE / 2) == TW_OK);
}

static tw_status reduce(tw_comm *comm, pid_t peer, float *values)
{
    tw_reducer *reducer;
    CHECK(tw_reducer_create(comm, "allreduce", &table, 1, &reducer) == TW_OK);
    get_ready(comm, peer);
    CHECK(tw_reducer_submit(reducer, 0, values) == TW_OK);
    tw_status status = tw_reducer_wait(reducer);
    tw_reducer_destroy(reducer);
    return status;
}

static tw_status mix(tw_comm *comm, pid_t peer, float *values)
{
    tw_gossip *gossip;
    CHECK(tw_gossip_create(comm, "dpsgd", &table, 1, (const float *const *)&values, &gossip) == TW_OK);
    get_ready(comm, peer);
    tw_status status = tw_gossip_add(gossip, (const float *const *)&values);
    if (status == TW_OK) status = tw_gossip_finish(gossip, &values);
    tw_gossip_destroy(gossip);
    return status;
}

static void exchange_by(tw_status (*exchange)(tw_comm *comm, pid_t peer, float *values))
{
    pid_t pids[2];
    tw_comm *comm = open_comm(pids);
    float *values = make_values(1);
    tw_status status = exchange(comm, pids[!rank], values);
    CHECK(status == TW_ERROR_PEER);
    CHECK(armed == NONE);
    forbid(values);
    if (rank == 0)
        let_it_end(pids[1]);
    else
        say_it_is_over();
    munmap(values, bytes);
    tw_comm_destroy(comm);
}

TEST(a_reducer_gives_its_gradients_back)
{
    exchange_by(reduce);
}

TEST(a_gossip_gives_its_weights_back)
{
    exchange_by(mix);
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int failed = cmocka_run_group_tests(all_tests, NULL, NULL);
    if (failed) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return 0;
}
