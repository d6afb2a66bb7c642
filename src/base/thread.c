#include "thread.h"

#include "sized.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <time.h>

static _Thread_local const tw_time_ops *virtual_ops;
_Thread_local void *tw_virtual_self;

tw_status tw_time_take(const tw_time_ops *ops, void *thread)
{
    tw_time_ops given;
    TW_TRY(tw_need(ops, "ops"));
    TW_TRY(tw_need(thread, "thread"));
    TW_TRY(tw_read_sized(&given, sizeof given, ops, "tw_time_ops"));
    if (!given.clock || !given.wait || !given.wake || !given.start || !given.join || !given.charge)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "a clock has all of its functions: clock, wait, wake, start, join and charge");
    if (tw_virtual_self) return tw_fail(TW_ERROR_ORDER, "the thread is under a clock of its own already");
    virtual_ops = ops;
    tw_virtual_self = thread;
    return TW_OK;
}

static int virtual_wait(tw_waiters *line, double deadline, const char *what)
{
    return virtual_ops->wait(tw_virtual_self, line, deadline, what);
}

static struct timespec to_timespec(double seconds)
{
    double whole = floor(seconds);
    return (struct timespec){.tv_sec = (time_t)whole, .tv_nsec = (long)((seconds - whole) * 1e9)};
}

double tw_clock(void)
{
    if (tw_virtual_self) return virtual_ops->clock(tw_virtual_self);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void tw_pause(double seconds)
{
    if (tw_virtual_self) {
        tw_waiters nobody = {NULL};
        virtual_wait(&nobody, tw_clock() + seconds, "time to pass");
        return;
    }
    struct timespec rest = to_timespec(seconds);
    nanosleep(&rest, NULL);
}

void tw_let_pass(double seconds)
{
    if (tw_virtual_self && seconds > 0) tw_pause(seconds);
}

void tw_charge(uint64_t elements, uint64_t bytes)
{
    if (tw_virtual_self) virtual_ops->charge(tw_virtual_self, elements, bytes);
}

tw_status tw_mutex_create(tw_mutex *mutex)
{
    mutex->waiters = (tw_waiters){NULL};
    int error = pthread_mutex_init(&mutex->real, NULL);
    return error ? tw_fail(TW_ERROR_SYSTEM, "no mutex: %s", strerror(error)) : TW_OK;
}

void tw_mutex_destroy(tw_mutex *mutex)
{
    pthread_mutex_destroy(&mutex->real);
}

void tw_mutex_lock(tw_mutex *mutex)
{
    if (!tw_virtual_self)
        pthread_mutex_lock(&mutex->real);
    else
        while (pthread_mutex_trylock(&mutex->real)) virtual_wait(&mutex->waiters, (double)INFINITY, "a lock");
}

void tw_mutex_unlock(tw_mutex *mutex)
{
    pthread_mutex_unlock(&mutex->real);
    if (tw_virtual_self) virtual_ops->wake(tw_virtual_self, &mutex->waiters, 0);
}

tw_status tw_condition_create(tw_condition *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* a deadline must not move when somebody sets the date */
    condition->waiters = (tw_waiters){NULL};
    int error = pthread_cond_init(&condition->real, &attributes);
    pthread_condattr_destroy(&attributes);
    return error ? tw_fail(TW_ERROR_SYSTEM, "no condition variable: %s", strerror(error)) : TW_OK;
}

void tw_condition_destroy(tw_condition *condition)
{
    pthread_cond_destroy(&condition->real);
}

/* Nobody else runs between the unlocking and the waiting: no wake-up is lost. */
static int wait_in_world(tw_condition *condition, tw_mutex *mutex, double deadline)
{
    tw_mutex_unlock(mutex);
    int woken = virtual_wait(&condition->waiters, deadline, "a condition");
    tw_mutex_lock(mutex);
    return woken;
}

void tw_condition_wait(tw_condition *condition, tw_mutex *mutex)
{
    if (tw_virtual_self)
        wait_in_world(condition, mutex, (double)INFINITY);
    else
        pthread_cond_wait(&condition->real, &mutex->real);
}

int tw_condition_wait_until(tw_condition *condition, tw_mutex *mutex, double deadline)
{
    if (tw_virtual_self) return wait_in_world(condition, mutex, deadline);
    struct timespec until = to_timespec(deadline);
    return pthread_cond_timedwait(&condition->real, &mutex->real, &until) != ETIMEDOUT;
}

void tw_condition_wake_all(tw_condition *condition)
{
    if (tw_virtual_self)
        virtual_ops->wake(tw_virtual_self, &condition->waiters, 1);
    else
        pthread_cond_broadcast(&condition->real);
}

/* A thread inherits what its maker blocks. The program's handlers belong on its own threads, so this one blocks all
 * signals but those that a thread brings upon itself, and the one that profilers send. */
static int start_without_signals(pthread_t *thread, void *(*run)(void *), void *argument)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&blocked, own[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

tw_status tw_thread_start(tw_thread *thread, void *(*run)(void *), void *argument)
{
    *thread = (tw_thread){.simulated = NULL};
    if (tw_virtual_self) return virtual_ops->start(tw_virtual_self, run, argument, &thread->simulated);
    int error = start_without_signals(&thread->real, run, argument);
    return error ? tw_fail(TW_ERROR_SYSTEM, "no thread: %s", strerror(error)) : TW_OK;
}

void tw_thread_join(tw_thread thread)
{
    if (thread.simulated)
        virtual_ops->join(tw_virtual_self, thread.simulated);
    else
        pthread_join(thread.real, NULL);
}
