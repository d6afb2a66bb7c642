#include "disk.h"
#include "agree.h"
#include "error.h"
#include "folder.h"
#include "stamp.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A file that only the first of those that share the folder can make: the name is of this one election. */
static tw_status put_mark(const char *path, int *first)
{
    int mark = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    *first = mark >= 0;
    if (mark >= 0) close(mark);
    if (mark >= 0 || errno == EEXIST) return TW_OK;
    return tw_fail(TW_ERROR_IO, "%s could not be made: %s", path, strerror(errno));
}

static tw_status stand(const char *folder, const char *name, char path[CHECKPOINT_PATH], int *first)
{
    snprintf(path, CHECKPOINT_PATH, "%s/.first-%s", folder, name);
    return put_mark(path, first);
}

/* Rank 0 comes before all others. */
tw_status disk_elect(worker *w, const char *folder, int *first)
{
    char name[RUN_NAME] = "", path[CHECKPOINT_PATH] = "";
    *first = w->rank == 0;
    if (strcmp(tw_comm_transport(w->comm), "threads") == 0) return TW_OK;
    if (w->rank == 0) stamp_name_run(name);
    TW_TRY(agree_status(w, w->rank == 0 ? stand(folder, name, path, first) : TW_OK));
    TW_TRY(tw_comm_broadcast(w->comm, 0, name, sizeof name));
    tw_status status = agree_status(w, w->rank > 0 ? stand(folder, name, path, first) : TW_OK);
    if (*first) unlink(path);
    return status;
}
