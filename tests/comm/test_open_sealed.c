/* tw_comm_open("sealed"): over a transport that is opened by name, too. */
#include "support/assert.h"
#include "support/folder.h"
#include "support/language.h"

#include <thinwire/thinwire.h>

static void assert_refused(const char *over, const char *path, tw_status status, const char *says)
{
    tw_comm *comm = NULL;
    if (over) setenv("THINWIRE_SEAL_OVER", over, 1);
    if (path) setenv("THINWIRE_KEY_FILE", path, 1);
    assert_int_equal(tw_comm_open("sealed", &comm), status);
    assert_null(comm);
    if (!strstr(tw_last_error(), says)) fail_msg("'%s' does not say '%s'", tw_last_error(), says);
}

TEST(test_the_environment_says_what_to_seal)
{
    tw_comm *comm = NULL;
    assert_refused(NULL, NULL, TW_ERROR_ARGUMENT, "THINWIRE_SEAL_OVER");
    assert_refused("solo", NULL, TW_ERROR_ARGUMENT, "THINWIRE_KEY_FILE");
    assert_refused("sealed", "/nonexistent", TW_ERROR_ARGUMENT, "another transport");
    assert_refused("nobody", "/nonexistent", TW_ERROR_UNSUPPORTED, "nobody");
    assert_refused("solo", "/nonexistent/key", TW_ERROR_IO, "/nonexistent/key");
    write_text("key", "a line of text that is long enough");
    setenv("THINWIRE_KEY_FILE", in_folder("key"), 1);
    setenv("THINWIRE_SEAL_SECONDS", "soon", 1);
    assert_refused("solo", NULL, TW_ERROR_ARGUMENT, "THINWIRE_SEAL_SECONDS");
    setenv("THINWIRE_SEAL_SECONDS", "30", 1);
    assert_int_equal(tw_comm_open("sealed", &comm), TW_OK);
    assert_string_equal(tw_comm_transport(comm), "solo");
    assert_int_equal(tw_comm_barrier(comm), TW_OK);
    tw_comm_destroy(comm);
}

TEST(test_seconds_do_not_depend_on_the_language)
{
    tw_comm *comm = NULL;
    write_text("key", "a line of text that is long enough");
    setenv("THINWIRE_SEAL_OVER", "solo", 1);
    setenv("THINWIRE_KEY_FILE", in_folder("key"), 1);
    setenv("THINWIRE_SEAL_SECONDS", "2.5", 1);
    if (!choose_decimal_comma()) skip();
    tw_status status = tw_comm_open("sealed", &comm);
    setlocale(LC_ALL, "C");
    assert_int_equal(status, TW_OK);
    tw_comm_destroy(comm);
}

TEST(test_what_is_to_be_sealed_is_not_opened_bare)
{
    tw_comm *comm = NULL;
    setenv("THINWIRE_SEAL_OVER", "solo", 1);
    assert_fails(tw_comm_open("solo", &comm), TW_ERROR_ARGUMENT, "open \"sealed\"");
    setenv("THINWIRE_SEAL_OVER", "mpi", 1);
    assert_int_equal(tw_comm_open("solo", &comm), TW_OK);
    tw_comm_destroy(comm);
}

RUN_TESTS(make_folder, remove_folder)
