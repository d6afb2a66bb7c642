/* MPI where it fails, or is slow: a comm that cannot be made leaves nothing behind, and a message that comes behind its
 * sender's farewell is not lost. Runs under mpirun. MPI's functions are replaced here. */
#include <mpi.h>

#include "support/cmocka.h"

#include <thinwire/thinwire_mpi.h>
#include <thinwire/thinwire_plugin.h>

#include <string.h>

enum { CHANNEL = 5 };

static int refuses, duplicates; /* the latter: communicators that were made and not freed */
static MPI_Request *late;       /* a receive whose message seems not to come before somebody tries to take it back */

int MPI_Irecv(void *buffer, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *request)
{
    if (tag == CHANNEL) late = request;
    return refuses ? MPI_ERR_OTHER : PMPI_Irecv(buffer, count, type, source, tag, comm, request);
}

int MPI_Test(MPI_Request *request, int *over, MPI_Status *status)
{
    *over = 0;
    return request == late ? MPI_SUCCESS : PMPI_Test(request, over, status);
}

int MPI_Cancel(MPI_Request *request)
{
    if (request == late) late = NULL;
    return PMPI_Cancel(request);
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *made)
{
    duplicates++;
    return PMPI_Comm_dup(comm, made);
}

int MPI_Comm_free(MPI_Comm *comm)
{
    duplicates--;
    return PMPI_Comm_free(comm);
}

TEST(who_cannot_listen_frees_its_communicator)
{
    tw_comm *comm = NULL;
    refuses = 1;
    assert_int_equal(tw_comm_create_mpi(MPI_COMM_WORLD, &comm), TW_ERROR_MEMORY);
    assert_null(comm);
    assert_int_equal(duplicates, 0);
    refuses = 0;
    assert_int_equal(tw_comm_create_mpi(MPI_COMM_WORLD, &comm), TW_OK);
    assert_int_equal(tw_comm_barrier(comm), TW_OK);
    tw_comm_destroy(comm);
    assert_int_equal(duplicates, 0);
}

/* Rank 1 sends, if at all, and leaves. */
static tw_status hear_of_who_left(int sends, char *word)
{
    tw_transport_ops ops = {.struct_size = sizeof ops};
    void *self, *handle = NULL;
    size_t size = 0;
    uint32_t check = 0;
    tw_comm *comm;
    assert_int_equal(tw_comm_create_mpi(MPI_COMM_WORLD, &comm), TW_OK);
    assert_int_equal(tw_comm_lend(comm, &ops, &self), TW_OK);
    tw_status status = TW_OK;
    if (tw_comm_rank(comm) == 0) {
        assert_int_equal(ops.start_recv(self, 1, CHANNEL, word, 1, &handle), TW_OK);
        status = ops.wait(self, handle, 3600, &size, &check);
    } else if (sends) {
        assert_int_equal(ops.start_send(self, 0, CHANNEL, "x", 1, 0, &handle), TW_OK);
        assert_int_equal(ops.wait(self, handle, 60, &size, &check), TW_OK);
    }
    tw_comm_destroy(comm);
    return status;
}

TEST(a_message_that_comes_behind_the_farewell_is_not_lost)
{
    int rank;
    char word = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    assert_int_equal(hear_of_who_left(1, &word), TW_OK);
    if (rank == 0) assert_int_equal(word, 'x');
}

TEST(what_was_never_sent_is_not_waited_for)
{
    int rank;
    char word = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    tw_status status = hear_of_who_left(0, &word);
    assert_int_equal(status, rank == 0 ? TW_ERROR_PEER : TW_OK);
    if (rank == 0) assert_non_null(strstr(tw_last_error(), "rank 1 has left the group"));
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    int failed = cmocka_run_group_tests(all_tests, NULL, NULL);
    MPI_Finalize();
    return failed;
}
