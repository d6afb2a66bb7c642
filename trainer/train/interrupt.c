#include "interrupt.h"
#include <signal.h>
#include <stddef.h>
#include <time.h>

/* A signal handler can reach nothing but a global. */
static volatile sig_atomic_t asked;     /* by the program itself */
static volatile sig_atomic_t signalled; /* by a signal */
static struct timespec signalled_at;    /* written and read by the handler alone, which nothing interrupts */

static double seconds_since(const struct timespec *then)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - then->tv_sec) + (double)(now.tv_nsec - then->tv_nsec) * 1e-9;
}

/* The first signal asks; a later one means it. One that comes at once is the same wish told twice, as by a terminal and
 * by a program that runs this one (timeout does). */
static void ask(int signal_number)
{
    if (signalled && seconds_since(&signalled_at) >= 2) {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
    if (!signalled) clock_gettime(CLOCK_MONOTONIC, &signalled_at);
    signalled = 1;
}

void interrupt_listen(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    enum { COUNT = sizeof signals / sizeof *signals };
    struct sigaction action = {.sa_handler = ask, .sa_flags = SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < COUNT; i++) sigaddset(&action.sa_mask, signals[i]);
    for (int i = 0; i < COUNT; i++) {
        int under_nohup = signals[i] == SIGHUP && sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN;
        if (!under_nohup) sigaction(signals[i], &action, NULL);
    }
    /* A pipe that nobody reads any more is then a write that fails: see progress.c. */
    signal(SIGPIPE, SIG_IGN);
    /* A file that may not grow is then a write that fails, which is told, instead of a process that dies. */
    signal(SIGXFSZ, SIG_IGN);
}

void interrupt_ask(void)
{
    asked = 1;
}

int interrupt_asked(void)
{
    return asked || signalled;
}
