/* The same of thinwire_mpi.h, in a program that never starts MPI. */
#include "rows.h"

#include <thinwire/thinwire_mpi.h>

/* What tw_comm_open looks up; thinwire_plugin.h has its type. */
tw_status tw_transport_open(tw_comm **comm);

static void test_mpi(void **state)
{
    (void)state;
    NEEDED(tw_comm_create_mpi, comm, MPI_COMM_WORLD, NULL);
    NEEDED(tw_transport_open, comm, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mpi)};
    return rows_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
