/* The same of thinwire_folder.h. */
#include "rows.h"

#include <thinwire/thinwire_folder.h>

/* What tw_comm_open looks up; thinwire_plugin.h has its type. */
tw_status tw_transport_open(tw_comm **comm);

static void test_folder(void **state)
{
    (void)state;
    tw_comm *comm = NULL;
    NEEDED(tw_folder_join, path, NULL, 0, 1, 1, &comm);
    NEEDED(tw_folder_join, comm, "/nonexistent", 0, 1, 1, NULL);
    NEEDED(tw_transport_open, comm, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_folder)};
    return rows_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
