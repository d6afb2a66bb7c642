/* The same of thinwire_tcp.h. */
#include "rows.h"

#include <stdlib.h>
#include <string.h>

#include <thinwire/thinwire_tcp.h>

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
                                       cmocka_unit_test(test_join), cmocka_unit_test(test_options_of_any_size)};
    return rows_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
