#include "thread.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

static struct timespec to_timespec(double seconds)
{
    double whole = floor(seconds);
    return (struct timespec){.tv_sec = (time_t)whole, .tv_nsec = (long)((seconds - whole) * 1e9)};
}

double tw_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void tw_pause(double seconds)
{
    struct timespec rest = to_timespec(seconds);
    nanosleep(&rest, NULL);
}

tw_status tw_mutex_create(tw_mutex *mutex)
{
    int error = pthread_mutex_init(mutex, NULL);
    return error ? tw_fail(TW_ERROR_SYSTEM, "no mutex: %s", strerror(error)) : TW_OK;
}

void tw_mutex_destroy(tw_mutex *mutex)
{
    pthread_mutex_destroy(mutex);
}

void tw_mutex_lock(tw_mutex *mutex)
{
    pthread_mutex_lock(mutex);
}

void tw_mutex_unlock(tw_mutex *mutex)
{
    pthread_mutex_unlock(mutex);
}

tw_status tw_condition_create(tw_condition *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* a deadline must not move when somebody sets the date */
    int error = pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
    return error ? tw_fail(TW_ERROR_SYSTEM, "no condition variable: %s", strerror(error)) : TW_OK;
}

void tw_condition_destroy(tw_condition *condition)
{
    pthread_cond_destroy(condition);
}

void tw_condition_wait(tw_condition *condition, tw_mutex *mutex)
{
    pthread_cond_wait(condition, mutex);
}

int tw_condition_wait_until(tw_condition *condition, tw_mutex *mutex, double deadline)
{
    struct timespec until = to_timespec(deadline);
    return pthread_cond_timedwait(condition, mutex, &until) != ETIMEDOUT;
}

void tw_condition_wake_all(tw_condition *condition)
{
    pthread_cond_broadcast(condition);
}

tw_status tw_thread_start(tw_thread *thread, void *(*run)(void *), void *argument)
{
    int error = pthread_create(thread, NULL, run, argument);
    return error ? tw_fail(TW_ERROR_SYSTEM, "no thread: %s", strerror(error)) : TW_OK;
}

void tw_thread_join(tw_thread thread)
{
    pthread_join(thread, NULL);
}
