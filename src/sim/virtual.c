#include "virtual.h"

#include "error.h"
#include "memory.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct tw_virtual_thread {
    tw_virtual *all;
    pthread_t real;
    sem_t baton;
    void *(*run)(void *);
    void *argument;
    tw_virtual_owner owner;
    tw_virtual_thread *older, *newer;   /* in the list of all threads */
    tw_virtual_thread *previous, *next; /* in its line */
    tw_waiters *line;                   /* it stands in, the runnable ones' included; NULL when it runs */
    tw_waiters joiners;
    tw_timer timer; /* ends its wait */
    int woken, finished;
    const char *waits_for;
};

struct tw_virtual {
    size_t stack_bytes;
    tw_timers timers;
    double now;
    tw_waiters runnable;
    tw_virtual_thread *oldest, *newest;
    size_t alive; /* threads that have not finished */
    sem_t over;   /* posted when nothing can run any more */
    int abandoned;
};

static _Thread_local tw_virtual_thread *virtual_self; /* the calling thread; NULL: it is none of these */

/* --- lines of threads ---------------------------------------------------------------------------------------- */

static void join_line(tw_waiters *line, tw_virtual_thread *thread)
{
    tw_virtual_thread *last = line->last;
    thread->line = line;
    thread->previous = last;
    thread->next = NULL;
    if (last)
        last->next = thread;
    else
        line->first = thread;
    line->last = thread;
}

static void virtual_leave_line(tw_virtual_thread *thread)
{
    tw_waiters *line = thread->line;
    if (thread->previous)
        thread->previous->next = thread->next;
    else
        line->first = thread->next;
    if (thread->next)
        thread->next->previous = thread->previous;
    else
        line->last = thread->previous;
    thread->line = NULL;
}

static void make_runnable(tw_virtual_thread *thread, int woken)
{
    virtual_leave_line(thread);
    tw_timers_disarm(&thread->all->timers, &thread->timer);
    thread->woken = woken;
    join_line(&thread->all->runnable, thread);
}

static void end_wait(tw_timer *timer)
{
    char *thread = (char *)timer - offsetof(tw_virtual_thread, timer);
    make_runnable((tw_virtual_thread *)(void *)thread, 0);
}

/* --- the baton ----------------------------------------------------------------------------------------------- */

/* The thread that runs next, after as much time as has to pass for it; NULL when none ever will. */
static tw_virtual_thread *virtual_choose(tw_virtual *all)
{
    while (all->alive && !all->runnable.first) {
        tw_timer *timer = tw_timers_take(&all->timers);
        if (!timer) return NULL;
        if (timer->time > all->now) all->now = timer->time;
        timer->fire(timer);
    }
    tw_virtual_thread *next = all->runnable.first;
    if (next) virtual_leave_line(next);
    return next;
}

static void virtual_take(sem_t *baton)
{
    while (sem_wait(baton) && errno == EINTR) {
    }
}

static void take_baton(tw_virtual_thread *self)
{
    virtual_take(&self->baton);
    if (self->all->abandoned) pthread_exit(NULL);
}

static void pass_baton(tw_virtual *all, tw_virtual_thread *next)
{
    sem_post(next ? &next->baton : &all->over);
}

int tw_virtual_wait(tw_waiters *line, double deadline, const char *what)
{
    tw_virtual_thread *self = virtual_self;
    self->waits_for = what;
    join_line(line, self);
    if (deadline < (double)INFINITY) tw_timers_arm(&self->all->timers, &self->timer, deadline);
    tw_virtual_thread *next = virtual_choose(self->all);
    if (next != self) {
        pass_baton(self->all, next);
        take_baton(self);
    }
    return self->woken;
}

void tw_virtual_wake_all(tw_waiters *line)
{
    while (line->first) make_runnable(line->first, 1);
}

void tw_virtual_hasten(tw_waiters *line, double time)
{
    for (tw_virtual_thread *thread = line->first; thread; thread = thread->next)
        if (!thread->timer.place || time < thread->timer.time)
            tw_timers_arm(&thread->all->timers, &thread->timer, time);
}

/* --- the list of threads --------------------------------------------------------------------------------------- */

static void enrol(tw_virtual *all, tw_virtual_thread *thread)
{
    thread->older = all->newest;
    *(all->newest ? &all->newest->newer : &all->oldest) = thread;
    all->newest = thread;
    all->alive++;
    join_line(&all->runnable, thread);
}

static void dismiss(tw_virtual_thread *thread)
{
    tw_virtual *all = thread->all;
    pthread_join(thread->real, NULL);
    *(thread->older ? &thread->older->newer : &all->oldest) = thread->newer;
    *(thread->newer ? &thread->newer->older : &all->newest) = thread->older;
    sem_destroy(&thread->baton);
    all->timers.reserved--;
    tw_free(thread);
}

/* --- what the library asks of its threads (tw_time_ops) ------------------------------------------------------- */

static double time_clock(void *thread)
{
    return ((tw_virtual_thread *)thread)->all->now;
}

static int time_wait(void *thread, tw_waiters *line, double deadline, const char *what)
{
    (void)thread;
    return tw_virtual_wait(line, deadline, what);
}

static void time_wake(void *thread, tw_waiters *line, int all)
{
    (void)thread;
    if (all)
        tw_virtual_wake_all(line);
    else if (line->first)
        make_runnable(line->first, 1);
}

static tw_status time_start(void *thread, void *(*run)(void *), void *argument, void **started)
{
    const tw_virtual_thread *self = thread;
    return tw_virtual_start(self->all, self->owner, run, argument, started);
}

static void time_join(void *thread, void *started)
{
    tw_virtual_thread *other = started;
    (void)thread;
    while (!other->finished) tw_virtual_wait(&other->joiners, (double)INFINITY, "a thread's end");
    dismiss(other);
}

static void time_charge(void *thread, uint64_t elements, uint64_t bytes)
{
    const tw_virtual_owner *owner = &((tw_virtual_thread *)thread)->owner;
    double seconds = (double)elements * owner->element_seconds + (double)bytes * owner->byte_seconds;
    if (seconds > 0) tw_virtual_pause(seconds);
}

static const tw_time_ops time_ops = {.struct_size = sizeof(tw_time_ops),
                                     .clock = time_clock,
                                     .wait = time_wait,
                                     .wake = time_wake,
                                     .start = time_start,
                                     .join = time_join,
                                     .charge = time_charge};

/* --- threads ------------------------------------------------------------------------------------------------- */

static void *virtual_live(void *argument)
{
    tw_virtual_thread *self = argument;
    tw_virtual *all = self->all;
    virtual_self = self;
    tw_time_take(&time_ops, self); /* a new thread has no other */
    take_baton(self);
    void *result = self->run(self->argument);
    self->finished = 1;
    all->alive--;
    tw_virtual_wake_all(&self->joiners);
    pass_baton(all, virtual_choose(all)); /* from here on, self may be freed as soon as this thread has ended */
    return result;
}

static int start_real(tw_virtual_thread *thread)
{
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error) return error;
    error = pthread_attr_setstacksize(&attributes, thread->all->stack_bytes);
    if (!error) error = pthread_create(&thread->real, &attributes, virtual_live, thread);
    pthread_attr_destroy(&attributes);
    return error;
}

tw_status tw_virtual_start(tw_virtual *all, tw_virtual_owner owner, void *(*run)(void *), void *argument,
                           void **started)
{
    tw_virtual_thread *thread;
    TW_TRY(tw_timers_reserve(&all->timers, 1));
    tw_status status = tw_allocate(1, sizeof *thread, &thread);
    if (status == TW_OK) {
        *thread = (tw_virtual_thread){.all = all, .run = run, .argument = argument, .owner = owner};
        thread->timer.fire = end_wait;
        sem_init(&thread->baton, 0, 0);
        int error = start_real(thread);
        if (!error) {
            enrol(all, thread);
            *started = thread;
            return TW_OK;
        }
        sem_destroy(&thread->baton);
        tw_free(thread);
        status = tw_fail(TW_ERROR_SYSTEM, "no thread: %s", strerror(error));
    }
    all->timers.reserved--;
    return status;
}

/* --- all of them --------------------------------------------------------------------------------------------- */

tw_status tw_virtual_create(size_t stack_bytes, tw_virtual **made)
{
    tw_virtual *all;
    TW_TRY(tw_allocate(1, sizeof *all, &all));
    all->stack_bytes = stack_bytes;
    sem_init(&all->over, 0, 0);
    *made = all;
    return TW_OK;
}

/* Waits for the threads that nobody joined; those that never ran, or cannot run any more, end where they wait. */
static void end_all(tw_virtual *all)
{
    all->abandoned = 1;
    for (tw_virtual_thread *thread = all->oldest; thread; thread = thread->newer)
        if (thread->line) virtual_leave_line(thread); /* lines may lie on the stacks of others */
    while (all->oldest) {
        sem_post(&all->oldest->baton);
        dismiss(all->oldest);
    }
    all->timers.count = 0;
}

void tw_virtual_destroy(tw_virtual *all)
{
    if (!all) return;
    end_all(all);
    sem_destroy(&all->over);
    tw_timers_free(&all->timers);
    tw_free(all);
}

static tw_status report_deadlock(const tw_virtual *all)
{
    char text[400] = "";
    size_t length = 0;
    for (const tw_virtual_thread *thread = all->oldest; thread; thread = thread->newer)
        if (!thread->finished && length < sizeof text)
            length += (size_t)snprintf(text + length, sizeof text - length, "%srank %d for %s", length ? ", " : "",
                                       thread->owner.rank, thread->waits_for);
    return tw_fail(TW_ERROR_ORDER, "at %g virtual seconds all %zu threads left wait for what cannot come: %s%s",
                   all->now, all->alive, text, length < sizeof text ? "" : " ...");
}

tw_status tw_virtual_run(tw_virtual *all)
{
    pass_baton(all, virtual_choose(all));
    virtual_take(&all->over);
    tw_status status = all->alive ? report_deadlock(all) : TW_OK;
    end_all(all);
    return status;
}

/* --- questions ----------------------------------------------------------------------------------------------- */

double tw_virtual_now(const tw_virtual *all)
{
    return all->now;
}

tw_timers *tw_virtual_timers(tw_virtual *all)
{
    return &all->timers;
}

tw_virtual *tw_virtual_here(void)
{
    return virtual_self ? virtual_self->all : NULL;
}

tw_virtual_owner tw_virtual_owned_by(void)
{
    return virtual_self->owner;
}

void tw_virtual_pause(double seconds)
{
    tw_waiters nobody = {NULL, NULL};
    tw_virtual_wait(&nobody, virtual_self->all->now + seconds, "time to pass");
}
