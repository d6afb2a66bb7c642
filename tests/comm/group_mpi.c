/* Ranks as the processes that mpirun started. */
#include "group.h"

#include <thinwire/thinwire_mpi.h>

void group_begin(int *argc, char ***argv)
{
    int provided;
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
    CHECK(provided == MPI_THREAD_MULTIPLE);
}

void group_end(void)
{
    if (group_failures()) MPI_Abort(MPI_COMM_WORLD, 1); /* the others may wait for this rank in a case it left early */
    MPI_Finalize();
}

int group_size(int index)
{
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return index == 0 ? size : 0;
}

void group_run(int size, rank_program program, const void *context)
{
    tw_comm *comm;
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(tw_comm_create_mpi(MPI_COMM_WORLD, &comm) == TW_OK);
    group_seal(&comm);
    CHECK(tw_comm_size(comm) == size);
    program(comm, context);
}

void group_meet(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}
