/* tw_comm_open with the shared library, as a program uses it; the transports come from transport_*.c. */
#include <string.h>

#include "support/assert.h"

#include <thinwire/thinwire.h>

TEST(a_transport_beside_the_library_is_found)
{
    tw_comm *comm;
    float value = 5;
    assert_int_equal(tw_comm_open("solo", &comm), TW_OK);
    assert_string_equal(tw_comm_transport(comm), "solo");
    assert_int_equal(tw_comm_size(comm), 1);
    assert_int_equal(tw_comm_allreduce(comm, &value, 1), TW_OK);
    assert_true(value == 5);
    tw_comm_destroy(comm);
}

TEST(a_missing_library_is_named)
{
    tw_comm *comm = NULL;
    assert_fails(tw_comm_open("pigeon", &comm), TW_ERROR_UNSUPPORTED, "libthinwire_pigeon.so");
    assert_null(comm);
}

TEST(a_library_that_is_no_transport_is_refused)
{
    tw_comm *comm = NULL;
    assert_fails(tw_comm_open("hollow", &comm), TW_ERROR_UNSUPPORTED, "tw_transport_open");
    assert_null(comm);
}

TEST(names_are_no_paths)
{
    tw_comm *comm = NULL;
    const char *const names[] = {"", "../solo", "solo.so", "Solo", "a_name_that_is_longer_than_any_transport_has"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(tw_comm_open(names[i], &comm), TW_ERROR_ARGUMENT);
    assert_null(comm);
}

RUN_TESTS(NULL, NULL)
