/* The same of thinwire_sealed.h. */
#include "rows.h"

#include <thinwire/thinwire_sealed.h>

/* What tw_comm_open looks up; thinwire_plugin.h has its type. */
tw_status tw_transport_open(tw_comm **comm);

static tw_comm *make_inner(void)
{
    tw_comm *inner = NULL;
    assert_int_equal(tw_comm_create_threads(1, &inner), TW_OK);
    return inner;
}

/* A refused call has destroyed the comm it was given: the leak checker would say so if not. */
static void test_sealed(void **state)
{
    (void)state;
    static const unsigned char key[32];
    unsigned char read[32];
    tw_comm *made = NULL;
    NEEDED(tw_comm_create_sealed, inner, NULL, key, sizeof key, &made);
    NEEDED(tw_comm_create_sealed, key, make_inner(), NULL, sizeof key, &made);
    NEEDED(tw_comm_create_sealed, comm, make_inner(), key, sizeof key, NULL);
    NEEDED(tw_seal_read_key, path, NULL, read, NULL);
    NEEDED(tw_seal_read_key, key, "/nonexistent", NULL, NULL);
    NEEDED(tw_transport_open, comm, NULL);
    WITHOUT(tw_seal_read_key, exposed, tw_seal_read_key("/nonexistent", read, NULL) == TW_ERROR_IO);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sealed)};
    return rows_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
