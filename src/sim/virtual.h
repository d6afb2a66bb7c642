/* virtual.h - threads that run one at a time, under a clock that moves only when all of them wait.
 *
 * The threads are real ones of the system, but only the one that holds the baton runs. It keeps it until it waits; then
 * the next runnable one has it, first come, first served. When none is runnable, time jumps to the earliest timer. So
 * whatever such threads do has the same order, the same times and the same bits in every run. Each takes this clock by
 * tw_time_take; the library does not notice. */
#ifndef TW_SIM_VIRTUAL_H
#define TW_SIM_VIRTUAL_H

#include "timers.h"

#include <thinwire/thinwire_plugin.h>

typedef struct tw_virtual tw_virtual;               /* a set of threads and their clock */
typedef struct tw_virtual_thread tw_virtual_thread; /* one of them */

/* To whom a thread belongs; whom it starts belongs to the same. */
typedef struct tw_virtual_owner {
    int rank;                             /* for reports */
    double element_seconds, byte_seconds; /* what work on a message takes */
    void *context;
} tw_virtual_owner;

/* stack_bytes: of each thread. */
tw_status tw_virtual_create(size_t stack_bytes, tw_virtual **made);
void tw_virtual_destroy(tw_virtual *all);

/* Adds a thread, runnable from now on: from inside, or from outside before tw_virtual_run. */
tw_status tw_virtual_start(tw_virtual *all, tw_virtual_owner owner, void *(*run)(void *), void *argument,
                           void **started);
/* From outside: lets the threads run until all have ended. TW_ERROR_ORDER when those that are left wait for something
 * that cannot come any more: the text says who for what, and the threads are ended where they stand. */
tw_status tw_virtual_run(tw_virtual *all);

double tw_virtual_now(const tw_virtual *all);
tw_timers *tw_virtual_timers(tw_virtual *all);

/* Whose thread the calling one is; NULL outside. */
tw_virtual *tw_virtual_here(void);

/* All of these from inside. */
tw_virtual_owner tw_virtual_owned_by(void);
/* Lets some time pass. */
void tw_virtual_pause(double seconds);
/* Stands in a line until woken (1) or until the clock reads `deadline` (0); INFINITY for no deadline. `what` is for
 * the report of a deadlock: "rank 3 waits for <what>". */
int tw_virtual_wait(tw_waiters *line, double deadline, const char *what);
void tw_virtual_wake_all(tw_waiters *line);
/* Who stands in the line returns at `time` at the latest. */
void tw_virtual_hasten(tw_waiters *line, double time);

#endif
