/* A comm over MPI that cannot be made leaves nothing behind. Runs under mpirun. MPI's functions are counted here. */
#include <mpi.h>

#include "support/cmocka.h"

#include <thinwire/thinwire_mpi.h>

static int refuses, duplicates; /* the latter: communicators that were made and not freed */

int MPI_Irecv(void *buffer, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *request)
{
    return refuses ? MPI_ERR_OTHER : PMPI_Irecv(buffer, count, type, source, tag, comm, request);
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

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    int failed = cmocka_run_group_tests(all_tests, NULL, NULL);
    MPI_Finalize();
    return failed;
}
