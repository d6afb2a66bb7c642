/* What the library's own threads take from the thread that starts them. */
#include "support/cmocka.h"

#include <signal.h>

#include "thread.h"

static void *read_mask(void *mask)
{
    pthread_sigmask(SIG_BLOCK, NULL, mask);
    return NULL;
}

/* A handler of the program would run on the stack of a thread that the program does not know. */
TEST(test_signals_do_not_reach_it)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPROF};
    static const int others[] = {SIGINT, SIGTERM, SIGHUP, SIGALRM, SIGCHLD, SIGUSR1, SIGUSR2, SIGWINCH};
    sigset_t before, inside, after;
    tw_thread thread;
    read_mask(&before);
    assert_int_equal(tw_thread_start(&thread, read_mask, &inside), TW_OK);
    read_mask(&after);
    tw_thread_join(thread);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) assert_false(sigismember(&inside, own[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_true(sigismember(&inside, others[i]));
    for (int number = 1; number <= SIGRTMAX; number++)
        assert_int_equal(sigismember(&after, number), sigismember(&before, number));
}

RUN_TESTS(NULL, NULL)
