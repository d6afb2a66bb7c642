#include "process.h"

#include "error.h"

#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int watch_error;
static _Atomic unsigned forks; /* between the process that registered first and this one */

static void count_fork(void)
{
    forks++;
}

static void process_watch(void)
{
    watch_error = pthread_atfork(NULL, NULL, count_fork);
}

tw_status tw_process_note(unsigned *made)
{
    pthread_once(&once, process_watch);
    if (watch_error) return tw_fail(TW_ERROR_MEMORY, "no memory to be told of forks");
    *made = forks;
    return TW_OK;
}

int tw_process_is_child(unsigned made)
{
    return forks != made;
}

tw_status tw_process_check(unsigned made)
{
    if (!tw_process_is_child(made)) return TW_OK;
    return tw_fail(TW_ERROR_ORDER,
                   "this object was made before a fork, in the parent process; the child may only destroy "
                   "it, and make others of its own");
}
