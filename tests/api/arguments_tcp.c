/* The same of thinwire_tcp.h and thinwire_members.h. */
#include "rows.h"

#include <stdlib.h>
#include <string.h>

#include <thinwire/thinwire_members.h>

/* What tw_comm_open looks up; thinwire_plugin.h has its type. */
tw_status tw_transport_open(tw_comm **comm);

static void test_listen(void **state)
{
    (void)state;
    tw_tcp *tcp = NULL;
    const char *last = "";
    NEEDED(tw_tcp_listen, tcp, NULL, NULL);
    WITHOUT(tw_tcp_listen, options, tw_tcp_listen(NULL, &tcp) == TW_OK && tcp);
    WITHOUT(tw_tcp_address, tcp, *tw_tcp_address(NULL) == 0);
    WITHOUT(tw_tcp_refused, tcp, tw_tcp_refused(NULL, &last) == 0 && *last == 0);
    WITHOUT(tw_tcp_refused, last, tw_tcp_refused(tcp, NULL) == 0);
    NOTHING(tw_tcp_destroy, tcp, NULL);
    tw_tcp_destroy(tcp);
}

static void test_connect(void **state)
{
    (void)state;
    tw_tcp *tcp = NULL;
    tw_comm *comm = NULL;
    assert_int_equal(tw_tcp_listen(NULL, &tcp), TW_OK);
    const char *addresses[] = {tw_tcp_address(tcp)};
    NEEDED(tw_tcp_connect, tcp, NULL, 0, 1, addresses, 1, &comm);
    NEEDED(tw_tcp_connect, addresses, tcp, 0, 1, NULL, 1, &comm);
    NEEDED(tw_tcp_connect, comm, tcp, 0, 1, addresses, 1, NULL);
    tw_tcp_destroy(tcp);
}

static void test_join(void **state)
{
    (void)state;
    tw_comm *comm = NULL;
    NEEDED(tw_tcp_join, meeting, NULL, 0, 1, NULL, 1, &comm);
    NEEDED(tw_tcp_join, comm, "127.0.0.1:1", 0, 1, NULL, 1, NULL);
    WITHOUT(tw_tcp_join, options, tw_tcp_join("no port", 0, 1, NULL, 1, &comm) == TW_ERROR_ARGUMENT);
    NEEDED(tw_transport_open, comm, NULL);
}

static void test_members(void **state)
{
    (void)state;
    const char *meeting = "127.0.0.1:1"; /* where a process that is not root listens at no port, nor does anybody */
    tw_members *members = NULL;
    tw_comm *comm = NULL, *alone;
    tw_members_outcome due;
    tw_generation generation = {.struct_size = sizeof generation};
    NEEDED(tw_members_environment, options, NULL);
    NEEDED(tw_members_join, meeting, NULL, "", NULL, NULL, &members);
    NEEDED(tw_members_join, subject, meeting, NULL, NULL, NULL, &members);
    NEEDED(tw_members_join, members, meeting, "", NULL, NULL, NULL);
    WITHOUT(tw_members_join, options, tw_members_join("no port", "", NULL, NULL, &members) == TW_ERROR_ARGUMENT);
    WITHOUT(tw_members_join, tcp, tw_members_join("no port", "", NULL, NULL, &members) == TW_ERROR_ARGUMENT);
    WITHOUT(tw_members_address, members, *tw_members_address(NULL) == 0);
    WITHOUT(tw_members_opened, members, tw_members_opened(NULL) == 0);
    NEEDED(tw_members_next, members, NULL, 0, 0, &generation, &comm);
    tw_members_options options = {.struct_size = sizeof options, .quorum = -1};
    assert_int_equal(tw_members_join(meeting, "", &options, NULL, &members), TW_ERROR_ARGUMENT);
    options.quorum = 0;
    options.grace = -1;
    assert_int_equal(tw_members_join(meeting, "", &options, NULL, &members), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_members_join("127.0.0.1:49999", "", NULL, NULL, &members), TW_OK);
    NEEDED(tw_members_next, generation, members, 0, 0, NULL, &comm);
    NEEDED(tw_members_next, comm, members, 0, 0, &generation, NULL);
    generation.struct_size = 3;
    assert_int_equal(tw_members_next(members, 0, 0, &generation, &comm), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_comm_create_threads(1, &alone), TW_OK);
    NEEDED(tw_members_due, members, NULL, alone, TW_MEMBERS_STAY, &due);
    NEEDED(tw_members_due, due, members, alone, TW_MEMBERS_STAY, NULL);
    NEEDED(tw_members_due, comm, members, NULL, TW_MEMBERS_STAY, &due);
    tw_comm_destroy(alone);
    NOTHING(tw_members_destroy, members, NULL);
    tw_members_destroy(members);
}

/* One that demands something of which this library has not heard is not served without it. */
static void test_options_of_any_size(void **state)
{
    (void)state;
    tw_tcp *tcp = NULL;
    tw_comm *comm = NULL;
    static const size_t wrong[] = {0, 1, sizeof(size_t) + 1, 1032, SIZE_MAX};
    struct {
        tw_tcp_options known;
        const void *later;
    } newer = {.later = wrong};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        newer.known.struct_size = wrong[i];
        assert_int_equal(tw_tcp_listen(&newer.known, &tcp), TW_ERROR_ARGUMENT);
        assert_non_null(strstr(tw_last_error(), "struct_size"));
    }
    newer.known.struct_size = sizeof newer;
    assert_int_equal(tw_tcp_listen(&newer.known, &tcp), TW_ERROR_UNSUPPORTED);
    assert_int_equal(tw_tcp_join("127.0.0.1:1", 0, 1, &newer.known, 1, &comm), TW_ERROR_UNSUPPORTED);
    assert_non_null(strstr(tw_last_error(), "newer"));
    assert_true(!tcp && !comm);
    newer.later = NULL;
    assert_int_equal(tw_tcp_listen(&newer.known, &tcp), TW_OK);
    tw_tcp_destroy(tcp);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_listen), cmocka_unit_test(test_connect),
                                       cmocka_unit_test(test_join), cmocka_unit_test(test_members),
                                       cmocka_unit_test(test_options_of_any_size)};
    return rows_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
