/* tw_comm_open("mpi") in a program that was not linked with MPI and does not initialise it. Runs under mpirun. */
#include "support/cmocka.h"

#include <thinwire/thinwire.h>

TEST(mpi_is_loaded_initialised_and_finalised)
{
    tw_comm *comm;
    assert_int_equal(tw_comm_open("mpi", &comm), TW_OK);
    assert_string_equal(tw_comm_transport(comm), "mpi");
    int ranks = tw_comm_size(comm);
    float value = (float)tw_comm_rank(comm);
    assert_int_equal(ranks, 2); /* and not a group of its own for every process */
    assert_int_equal(tw_comm_allreduce(comm, &value, 1), TW_OK);
    assert_true(value == 1);
    tw_comm_destroy(comm);
    assert_int_equal(tw_comm_open("mpi", &comm), TW_ERROR_ORDER); /* MPI can be initialised once only */
}

RUN_TESTS(NULL, NULL)
