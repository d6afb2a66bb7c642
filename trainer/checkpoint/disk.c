#include "disk.h"
#include "agree.h"
#include "error.h"
#include "folder.h"
#include "stamp.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK ".first-"

/* A file that only the first of those that share the folder can make: the name is of this one election. Its maker has
 * it locked until it goes, so that nobody takes it for one that a killed run has left. */
typedef struct mark {
    char path[CHECKPOINT_PATH];
    int descriptor; /* below 0: another rank was first */
} mark;

/* Whether it still has its name: somebody may have swept it away before it was locked. Where the file system has no
 * locks, nobody sweeps. */
static bool disk_keep(const mark *m)
{
    struct stat own;
    if (flock(m->descriptor, LOCK_EX) != 0) return true;
    return fstat(m->descriptor, &own) != 0 || own.st_nlink > 0;
}

static tw_status stand(const char *folder, const char *name, mark *m)
{
    snprintf(m->path, sizeof m->path, "%s/" MARK "%s", folder, name);
    for (;;) {
        m->descriptor = open(m->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (m->descriptor < 0 && errno != EEXIST)
            return tw_fail(TW_ERROR_IO, "%s could not be made: %s", m->path, strerror(errno));
        if (m->descriptor < 0 || disk_keep(m)) return TW_OK;
        close(m->descriptor);
    }
}

static void step_down(mark *m)
{
    if (m->descriptor < 0) return;
    unlink(m->path);
    close(m->descriptor);
}

/* ---- what killed elections have left ----------------------------------------------------------------------------- */

static bool is_mark(const char *name)
{
    if (strncmp(name, MARK, sizeof MARK - 1) != 0) return false;
    name += sizeof MARK - 1;
    return strlen(name) == RUN_NAME - 1 && name[strspn(name, "0123456789abcdef")] == '\0';
}

/* An empty file that still has its name. */
static bool is_left(int file)
{
    struct stat about;
    return fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_size == 0 && about.st_nlink > 0;
}

/* Whoever could lock it knows that its maker has gone, or will see that its name has. It may have been swept, and made
 * anew, while we came to lock it. */
static void sweep_one(int folder, const char *name)
{
    int left = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (left < 0) return;
    if (flock(left, LOCK_EX | LOCK_NB) == 0 && is_left(left)) unlinkat(folder, name, 0);
    close(left);
}

static void sweep(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));)
        if (is_mark(entry->d_name)) sweep_one(dirfd(folder), entry->d_name);
    closedir(folder);
}

/* ---- the election ------------------------------------------------------------------------------------------------ */

static tw_status elect(worker *w, const char *folder, mark *m)
{
    char name[RUN_NAME] = "";
    if (w->rank == 0) stamp_name_run(name);
    TW_TRY(agree_status(w, w->rank == 0 ? stand(folder, name, m) : TW_OK));
    TW_TRY(agree_text(w->comm, name, sizeof name));
    return agree_status(w, w->rank > 0 ? stand(folder, name, m) : TW_OK);
}

/* Rank 0 comes before all others. */
tw_status disk_elect(worker *w, const char *folder, int *first)
{
    mark own = {.descriptor = -1};
    tw_status status = TW_OK;
    *first = w->rank == 0;
    if (strcmp(tw_comm_transport(w->comm), "threads") != 0) {
        status = elect(w, folder, &own);
        *first = own.descriptor >= 0;
    }
    if (*first) sweep(folder);
    step_down(&own);
    return status;
}
