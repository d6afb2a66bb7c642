#include "mpi_start.h"
#include "error.h"
#include "exit.h"
#include "launcher.h"
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define LEAST_SECONDS 20.0

typedef struct watch {
    double seconds;
    pthread_mutex_t mutex; /* guards the next two */
    pthread_cond_t changed;
    int opened;
} watch;

static struct timespec seconds_from_now(double seconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    double whole = floor(seconds), rest = (double)at.tv_nsec + (seconds - whole) * 1e9;
    at.tv_sec += (time_t)whole + (rest >= 1e9);
    at.tv_nsec = (long)(rest >= 1e9 ? rest - 1e9 : rest);
    return at;
}

/* The thread inside MPI_Init cannot be reached: the process ends as it is. */
static void *end_when_late(void *argument)
{
    watch *self = argument;
    struct timespec deadline = seconds_from_now(self->seconds);
    pthread_mutex_lock(&self->mutex);
    while (!self->opened && pthread_cond_timedwait(&self->changed, &self->mutex, &deadline) != ETIMEDOUT) {
    }
    if (!self->opened) {
        fprintf(
            stderr,
            "thinwire: MPI_Init did not end within %g seconds: a rank may have died while starting; see --timeout\n",
            self->seconds);
        _exit(EXIT_PEER_LOST);
    }
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

static void create_watch(watch *self)
{
    pthread_condattr_t steady;
    pthread_mutex_init(&self->mutex, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&self->changed, &steady);
    pthread_condattr_destroy(&steady);
}

static void end_watch(watch *self, pthread_t thread)
{
    pthread_mutex_lock(&self->mutex);
    self->opened = 1;
    pthread_cond_signal(&self->changed);
    pthread_mutex_unlock(&self->mutex);
    pthread_join(thread, NULL);
}

tw_status mpi_start_within(const char *transport, double seconds, tw_comm **comm)
{
    seconds = fmax(seconds, LEAST_SECONDS);
    TW_TRY(launcher_read_seconds(&seconds));
    watch self = {.seconds = seconds};
    pthread_t thread;
    create_watch(&self);
    int started = pthread_create(&thread, NULL, end_when_late, &self) == 0;
    tw_status status = started ? tw_comm_open(transport, comm)
                               : tw_fail(TW_ERROR_SYSTEM, "the system has no thread left to watch MPI_Init");
    if (started) end_watch(&self, thread);
    pthread_cond_destroy(&self.changed);
    pthread_mutex_destroy(&self.mutex);
    return status;
}
