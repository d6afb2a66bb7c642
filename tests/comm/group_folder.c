/* Ranks as threads of this process that see each other over files in a folder. All groups of a program meet in the same
 * one, after each other, and what one of them left there must not hurt the next. */
#include "support/folder.h"

#include <thinwire/thinwire_folder.h>

enum { MOST = 5 };
#include "group_ranks.h"

static void remove_at_end(void)
{
    remove_folder(NULL);
}

static void group_open(int size)
{
    void *made;
    (void)size;
    if (!*test_folder) CHECK(make_folder(&made) == 0 && atexit(remove_at_end) == 0);
}

static tw_status group_join(int rank, int size, tw_comm **comm)
{
    return tw_folder_join(test_folder, rank, size, 60, NULL, NULL, comm);
}
