#include "interrupt.h"
#include <signal.h>
#include <stddef.h>
#include <time.h>

/* A signal handler can reach nothing but a global. */
static volatile sig_atomic_t asked;
static time_t asked_at; /* written and read by the handler alone, which nothing interrupts */

static time_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec;
}

/* The first signal asks; a later one means it. One that comes at once is the same wish told twice, as by a terminal and
 * by a program that runs this one (timeout does). */
static void ask(int signal_number)
{
    if (asked && now() - asked_at >= 2) {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
    if (!asked) asked_at = now();
    asked = 1;
}

void interrupt_listen(void)
{
    struct sigaction action = {.sa_handler = ask, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGTERM);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* A file that may not grow is then a write that fails, which is told, instead of a process that dies. */
    signal(SIGXFSZ, SIG_IGN);
}

int interrupt_asked(void)
{
    return asked != 0;
}
