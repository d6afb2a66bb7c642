/* thread.h - the only threads, waits and clock of the library, so that the simulator can own them: on a thread that has
 * taken another clock (tw_time_take), each of these does the same under that. */
#ifndef TW_BASE_THREAD_H
#define TW_BASE_THREAD_H

#include <pthread.h>
#include <thinwire/thinwire_plugin.h>

#include "error.h"

/* What the calling thread gave to tw_time_take; NULL: it is under the machine's clock. Only thread.c writes it. */
extern _Thread_local void *tw_virtual_self;

typedef struct tw_mutex {
    pthread_mutex_t real;
    tw_waiters waiters;
} tw_mutex;

typedef struct tw_condition {
    pthread_cond_t real;
    tw_waiters waiters;
} tw_condition;

typedef struct tw_thread {
    pthread_t real;
    void *simulated; /* NULL: it is none */
} tw_thread;

tw_status tw_mutex_create(tw_mutex *mutex);
void tw_mutex_destroy(tw_mutex *mutex);
void tw_mutex_lock(tw_mutex *mutex);
void tw_mutex_unlock(tw_mutex *mutex);

tw_status tw_condition_create(tw_condition *condition);
void tw_condition_destroy(tw_condition *condition);
void tw_condition_wait(tw_condition *condition, tw_mutex *mutex);
/* Waits at most until tw_clock() reads `deadline`; 0 when it passed. May wake early: test the predicate again. */
int tw_condition_wait_until(tw_condition *condition, tw_mutex *mutex, double deadline);
void tw_condition_wake_all(tw_condition *condition);

/* TW_ERROR_SYSTEM when the system has no thread left. */
tw_status tw_thread_start(tw_thread *thread, void *(*run)(void *), void *argument);
void tw_thread_join(tw_thread thread);

/* Gives the processor away for about `seconds`: for polling a library that cannot wake us (MPI). */
void tw_pause(double seconds);
/* Lets virtual time pass, as if the thread computed for so long; under the machine's clock it does nothing. */
void tw_let_pass(double seconds);

/* Working on so many elements, or on so many bytes that others sent, takes time that a virtual clock does not see:
 * there as much of it passes as that clock says. Elsewhere this does nothing. */
void tw_charge(uint64_t elements, uint64_t bytes);

#endif
