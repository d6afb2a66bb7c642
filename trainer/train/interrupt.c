#include "interrupt.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

enum { SIGNALS = 3 };
static const int listened[SIGNALS] = {SIGINT, SIGTERM, SIGHUP};

/* A signal handler can reach nothing but a global. */
static volatile sig_atomic_t asked;     /* by the program itself */
static volatile sig_atomic_t signalled; /* by a signal */
static volatile sig_atomic_t ending;    /* the code that a signal ends the process with; 0: it goes on */
static volatile sig_atomic_t answers;   /* the first signal, on stderr */
static struct timespec signalled_at;    /* written and read by the handler alone, which nothing interrupts */

static double seconds_since(const struct timespec *then)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - then->tv_sec) + (double)(now.tv_nsec - then->tv_nsec) * 1e-9;
}

static int takes_text(int descriptor)
{
    struct pollfd ready = {.fd = descriptor, .events = POLLOUT};
    return poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT);
}

/* A step, or a round of local updates, may take long. A handler may write, and use nothing of stdio. Where nobody
 * reads, as on a terminal that is halted, it would wait, and no later signal would be heard. */
static void answer(void)
{
    static const char text[] =
        "thinwire: the run stops after this step, or round of local updates; a second Ctrl-C, two "
        "seconds from now or later, ends it at once\n";
    const int before = errno;
    ssize_t written = 0;
    if (answers && takes_text(STDERR_FILENO)) written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written; /* there is nobody to tell */
    errno = before;
}

/* The first signal asks; a later one means it. One that comes at once is the same wish told twice, as by a terminal and
 * by a program that runs this one (timeout does). */
static void ask(int signal_number)
{
    if (ending) _exit(ending);
    if (signalled && seconds_since(&signalled_at) >= 2) {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
    if (signalled) return;
    clock_gettime(CLOCK_MONOTONIC, &signalled_at);
    signalled = 1;
    answer();
}

static void *attend(void *signals)
{
    pthread_sigmask(SIG_UNBLOCK, signals, NULL);
    for (;;) pause();
    return NULL;
}

/* A handler on the stack of a thread that is in one of oneDNN's AVX2 or AVX-512 kernels damages what that kernel works
 * with (tried with oneDNN 2.x and a timer's signals; they seem to keep values below the stack pointer). So handlers run
 * in a thread that does nothing else. This thread blocks the signals; those that it starts, and those that they start,
 * inherit that. */
static void attend_elsewhere(void)
{
    static sigset_t signals;
    pthread_t listener;
    sigemptyset(&signals);
    for (int i = 0; i < SIGNALS; i++) sigaddset(&signals, listened[i]);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    if (pthread_create(&listener, NULL, attend, &signals) == 0)
        pthread_detach(listener);
    else
        pthread_sigmask(SIG_UNBLOCK, &signals, NULL); /* a signal that is heard in the wrong place is still heard */
}

static void handle(int signal_number)
{
    struct sigaction action = {.sa_handler = ask, .sa_flags = SA_RESTART}, before;
    int under_nohup = signal_number == SIGHUP && sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < SIGNALS; i++) sigaddset(&action.sa_mask, listened[i]);
    if (!under_nohup) sigaction(signal_number, &action, NULL);
}

void interrupt_listen(void)
{
    static int listens;
    if (listens) return;
    listens = 1;
    for (int i = 0; i < SIGNALS; i++) handle(listened[i]);
    attend_elsewhere();
    /* A pipe that nobody reads any more is then a write that fails: see progress.c. */
    signal(SIGPIPE, SIG_IGN);
}

void interrupt_answers(void)
{
    answers = 1;
}

void interrupt_ask(void)
{
    asked = 1;
}

void interrupt_ends_with(int code)
{
    ending = code;
    if (code && signalled) _exit(code);
}

int interrupt_asked(void)
{
    return asked || signalled;
}
