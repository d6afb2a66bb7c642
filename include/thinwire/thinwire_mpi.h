/* thinwire_mpi.h - thinwire over MPI. Link with -lthinwire_mpi -lthinwire and compile with mpicc.
 *
 * MPI is used two-sided, from several threads: initialise it with MPI_Init_thread(.., MPI_THREAD_MULTIPLE, ..). */
#ifndef THINWIRE_MPI_H
#define THINWIRE_MPI_H

#include <mpi.h>
#include <thinwire/thinwire.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a comm of the ranks of mpi_comm, which is duplicated: thinwire's messages never meet the caller's. Collective.
 * TW_ERROR_UNSUPPORTED if MPI was initialised below MPI_THREAD_MULTIPLE. Destroy the comm before MPI_Finalize. */
TW_API tw_status tw_comm_create_mpi(MPI_Comm mpi_comm, tw_comm **comm);

#ifdef __cplusplus
}
#endif
#endif
