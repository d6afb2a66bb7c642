#include "interrupt.h"
#include <signal.h>
#include <stddef.h>

/* A signal handler can reach nothing but a global. */
static volatile sig_atomic_t asked;

static void ask(int signal_number)
{
    (void)signal_number;
    asked = 1;
}

void interrupt_listen(void)
{
    struct sigaction action = {.sa_handler = ask, .sa_flags = (int)(SA_RESTART | SA_RESETHAND)};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* A file that may not grow is then a write that fails, which is told, instead of a process that dies. */
    signal(SIGXFSZ, SIG_IGN);
}

int interrupt_asked(void)
{
    return asked != 0;
}
