/* What tw_comm_open("folder") calls: a folder that the environment tells of. */
#include "check.h"
#include "environment.h"

#include <stdlib.h>

#include <thinwire/thinwire_folder.h>
#include <thinwire/thinwire_plugin.h>

TW_API tw_status tw_transport_open(tw_comm **comm);

tw_status tw_transport_open(tw_comm **comm)
{
    const char *path = getenv("THINWIRE_FOLDER");
    int rank = -1, size = 0;
    double seconds = 600;
    TRY(tw_given(comm, "comm"));
    if (!path) return tw_fail(TW_ERROR_ARGUMENT, "transport \"folder\" needs a shared folder: set THINWIRE_FOLDER");
    TRY(tw_environment_group("folder", &rank, &size, &seconds));
    return tw_folder_join(path, rank, size, seconds, NULL, NULL, comm);
}
