/* Preloaded into a program: it is killed as it reads or writes a piece of a file at a place, writes to a file, or
 * sends something, as KILL_AT says, once the file KILL_AFTER is there. KILL_MARK is a file that it leaves then, and
 * KILL_WITH the number of another signal. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* "pwrite 3 4000": in the third pwrite at byte 4000 or behind. "sendmsg 3 0": as the third message is to be sent. */
static void count(const char *call, off_t place)
{
    static atomic_int calls;
    char name[16];
    int number;
    long least;
    const char *when = getenv("KILL_AT"), *after = getenv("KILL_AFTER");
    if (!when || !after || access(after, F_OK) != 0 || sscanf(when, "%15s %d %ld", name, &number, &least) != 3) return;
    if (strcmp(name, call) != 0 || place < least || atomic_fetch_add(&calls, 1) + 1 != number) return;
    if (getenv("KILL_MARK")) (void)open(getenv("KILL_MARK"), O_WRONLY | O_CREAT, 0666);
    kill(getpid(), getenv("KILL_WITH") ? atoi(getenv("KILL_WITH")) : SIGKILL);
}

__attribute__((visibility("default"))) ssize_t pread(int file, void *data, size_t bytes, off_t place)
{
    static ssize_t (*next)(int, void *, size_t, off_t);
    if (!next) next = (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    count("pread", place);
    return next(file, data, bytes, place);
}

__attribute__((visibility("default"))) ssize_t pwrite(int file, const void *data, size_t bytes, off_t place)
{
    static ssize_t (*next)(int, const void *, size_t, off_t);
    if (!next) next = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
    count("pwrite", place);
    return next(file, data, bytes, place);
}

__attribute__((visibility("default"))) ssize_t write(int file, const void *data, size_t bytes)
{
    static ssize_t (*next)(int, const void *, size_t);
    if (!next) next = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    struct stat about;
    if (file > 2 && fstat(file, &about) == 0 && S_ISREG(about.st_mode)) count("write", 0);
    return next(file, data, bytes);
}

__attribute__((visibility("default"))) ssize_t send(int line, const void *data, size_t bytes, int flags)
{
    static ssize_t (*next)(int, const void *, size_t, int);
    if (!next) next = (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
    count("send", 0);
    return next(line, data, bytes, flags);
}

__attribute__((visibility("default"))) ssize_t sendmsg(int line, const struct msghdr *message, int flags)
{
    static ssize_t (*next)(int, const struct msghdr *, int);
    if (!next) next = (ssize_t(*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
    count("sendmsg", 0);
    return next(line, message, flags);
}
