/* kill_at N COUNT PROGRAM [WORD...] - runs a program and kills it, as SIGKILL does, in front of its N-th system call
 * that changes files: opening for writing, write, fsync, ftruncate, rename, link, unlink, mkdir and rmdir, of all its
 * threads together. With N = 0 it runs to its end. COUNT is a file that is told how many there were.
 *
 * Ends with the program's exit code, with 128 and the signal's number when it was killed, and with 77 where the system
 * does not let one process trace another. A seccomp filter picks the calls, so that no other one is slowed down. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CANNOT_TRACE = 77 };

#define OFFSET(field) (unsigned)offsetof(struct seccomp_data, field)
#define LOAD(at) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at)
#define PASS BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define STOP BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE)
/* Goes on with the next instruction where the number is another. */
#define UNLESS_CALL(number, instructions) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, instructions)
#define STOP_AT(number) UNLESS_CALL(number, 1), STOP
/* A call that opens a file stops when its flags say that it is to be written. */
#define STOP_AT_OPEN(number, flags)                                                                                    \
    UNLESS_CALL(number, 4), LOAD(OFFSET(args[flags])),                                                                 \
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, 0, 1), STOP, PASS
/* One that writes stops unless it writes to the terminal. */
#define STOP_AT_WRITE(number)                                                                                          \
    UNLESS_CALL(number, 4), LOAD(OFFSET(args[0])), BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 2, 0, 1), STOP, PASS

static struct sock_filter filter[] = {
    LOAD(OFFSET(nr)),
    STOP_AT_OPEN(SYS_openat, 2),
    STOP_AT_WRITE(SYS_write),
    STOP_AT_WRITE(SYS_pwrite64),
    STOP_AT_WRITE(SYS_writev),
    STOP_AT(SYS_fsync),
    STOP_AT(SYS_fdatasync),
    STOP_AT(SYS_ftruncate),
    STOP_AT(SYS_renameat),
    STOP_AT(SYS_renameat2),
    STOP_AT(SYS_linkat),
    STOP_AT(SYS_unlinkat),
    STOP_AT(SYS_mkdirat),
#ifdef SYS_open /* newer processors have none of these */
    STOP_AT_OPEN(SYS_open, 1),
    STOP_AT(SYS_creat),
    STOP_AT(SYS_rename),
    STOP_AT(SYS_link),
    STOP_AT(SYS_unlink),
    STOP_AT(SYS_mkdir),
    STOP_AT(SYS_rmdir),
#endif
    PASS,
};

/* In the child: to be traced, and filtered, from its first own instruction on. */
static int become(char **words)
{
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) return CANNOT_TRACE;
    raise(SIGSTOP);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return CANNOT_TRACE;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return CANNOT_TRACE;
    execvp(words[0], words);
    fprintf(stderr, "kill_at: %s: %m\n", words[0]);
    return 127;
}

static int code_of(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* What a stopped thread gets to see when it goes on: a signal that was meant for it, or none. */
static int signal_for(int status)
{
    int number = WSTOPSIG(status);
    return status >> 16 || number == SIGTRAP || number == SIGSTOP ? 0 : number;
}

static int trace(pid_t child, long kill_at, long *count)
{
    int status;
    for (;;) {
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0 && errno == EINTR) continue;
        if (thread < 0) return CANNOT_TRACE;
        if (!WIFSTOPPED(status)) {
            if (thread == child) return code_of(status);
            continue;
        }
        int call = status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8);
        if (call && ++*count == kill_at) kill(child, SIGKILL);
        ptrace(PTRACE_CONT, thread, NULL, (void *)(long)signal_for(status));
    }
}

static int run(long kill_at, char **words, long *count)
{
    int status;
    long options = PTRACE_O_EXITKILL | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                   PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC;
    pid_t child = fork();
    if (child < 0) return CANNOT_TRACE;
    if (child == 0) _exit(become(words));
    if (waitpid(child, &status, 0) < 0 || !WIFSTOPPED(status)) return CANNOT_TRACE;
    if (ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)options) != 0) {
        kill(child, SIGKILL);
        return CANNOT_TRACE;
    }
    ptrace(PTRACE_CONT, child, NULL, NULL);
    return trace(child, kill_at, count);
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: kill_at N COUNT PROGRAM [WORD...]\n");
        return 2;
    }
    long count = 0;
    int code = run(strtol(argv[1], NULL, 10), argv + 3, &count);
    FILE *file = fopen(argv[2], "w");
    if (!file || fprintf(file, "%ld\n", count) < 0 || fclose(file) != 0) return 2;
    return code;
}
