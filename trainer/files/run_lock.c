#include "run_lock.h"
#include "folder.h"
#include "regular_file.h"
#include <stdbool.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

struct run_lock {
    int descriptor;
    bool made;          /* its file was not there before */
    struct stat folder; /* as it was locked */
    char path[FOLDER_PATH];
};

enum { HOLDER_TEXT = 256, TRIES_MOST = 100 };

static void describe_holder(char text[HOLDER_TEXT])
{
    char host[65] = "localhost", since[32];
    time_t now = time(NULL);
    struct tm parts;
    gethostname(host, sizeof host - 1);
    strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&now, &parts));
    snprintf(text, HOLDER_TEXT, "process %d on %s, since %s\n", (int)getpid(), host, since);
}

/* For those who find the folder locked. That the disk is full is no reason not to have the lock. */
static void leave_word(int descriptor)
{
    char text[HOLDER_TEXT];
    describe_holder(text);
    if (ftruncate(descriptor, 0) != 0 || pwrite(descriptor, text, strlen(text), 0) < 0) return;
}

static tw_status run_lock_refuse(const char *out, int descriptor)
{
    char holder[HOLDER_TEXT] = "";
    ssize_t size = pread(descriptor, holder, sizeof holder - 1, 0);
    holder[size > 0 ? size : 0] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--out %s: another run writes there (%s); wait for its end or choose another folder", out,
                   *holder ? holder : "it has not said which");
}

static tw_status lock_file(const char *out, int descriptor, run_lock **lock)
{
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) return run_lock_refuse(out, descriptor);
        fprintf(stderr, "thinwire: %s cannot be locked (%s): see to it that no other run writes there\n", out,
                strerror(errno));
        return TW_OK;
    }
    *lock = malloc(sizeof **lock);
    if (!*lock) return tw_fail(TW_ERROR_MEMORY, "no memory for the lock of %s", out);
    leave_word(descriptor);
    **lock = (run_lock){.descriptor = descriptor};
    if (stat(out, &(*lock)->folder) != 0) errno = 0; /* it has gone already: run_lock_holds will not know it */
    return TW_OK;
}

static tw_status try_to_take(const char *out, run_lock **lock)
{
    char path[FOLDER_PATH];
    int descriptor = -1;
    snprintf(path, sizeof path, "%s/run.lock", out);
    bool made = !path_exists(path);
    TW_TRY(regular_file_open(path, O_RDWR | O_CREAT, &descriptor));
    tw_status status = lock_file(out, descriptor, lock);
    if (!*lock) {
        close(descriptor);
        return status;
    }
    (*lock)->made = made;
    snprintf((*lock)->path, sizeof path, "%s", path);
    return status;
}

static bool is_same(const struct stat *one, const struct stat *other)
{
    return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

/* Else somebody took the file away between its opening and its locking: another run may lock the one that is there. */
static bool is_there(const run_lock *lock)
{
    struct stat locked, there;
    return fstat(lock->descriptor, &locked) == 0 && stat(lock->path, &there) == 0 && is_same(&locked, &there);
}

tw_status run_lock_take(const char *out, run_lock **lock)
{
    TW_TRY(try_to_take(out, lock));
    for (int tries = 1; *lock && !is_there(*lock) && tries < TRIES_MOST; tries++) {
        run_lock_release(*lock);
        *lock = NULL;
        TW_TRY(try_to_take(out, lock));
    }
    return TW_OK;
}

int run_lock_holds(const run_lock *lock, const char *out)
{
    struct stat there;
    return stat(out, &there) == 0 && is_same(&lock->folder, &there);
}

void run_lock_withdraw(run_lock *lock)
{
    if (lock && lock->made && is_there(lock) && unlink(lock->path) != 0) errno = 0; /* an empty file is left */
    run_lock_release(lock);
}

void run_lock_release(run_lock *lock)
{
    if (!lock) return;
    if (ftruncate(lock->descriptor, 0) != 0) errno = 0; /* the word in it means nothing without the lock */
    close(lock->descriptor);
    free(lock);
}
