/* No place for a comm, in a program that never starts MPI: smoke.py cannot call what speaks of MPI's types. */
#include <thinwire/thinwire_mpi.h>

#include "support/assert.h"

/* What tw_comm_open looks up; thinwire_plugin.h has its type. */
tw_status tw_transport_open(tw_comm **comm);

TEST(test_mpi)
{
    assert_fails(tw_comm_create_mpi(MPI_COMM_WORLD, NULL), TW_ERROR_ARGUMENT, "comm");
    assert_fails(tw_transport_open(NULL), TW_ERROR_ARGUMENT, "comm");
}

RUN_TESTS(NULL, NULL)
