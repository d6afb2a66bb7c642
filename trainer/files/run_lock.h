/* run_lock.h - one run at a time in a run folder. The system gives the lock back when the process ends, however it
 * ends. It holds between machines as far as their file system's locks do. */
#ifndef TRAINER_RUN_LOCK_H
#define TRAINER_RUN_LOCK_H

#include <thinwire/thinwire.h>

typedef struct run_lock run_lock;

/* Locks the folder `out`. TW_ERROR_ARGUMENT says which process has it. Where the file system has no locks, *lock is
 * NULL and a line on standard error says so. */
tw_status run_lock_take(const char *out, run_lock **lock);
/* Whether `out` is still the folder that was locked, and not another one in its place. */
int run_lock_holds(const run_lock *lock, const char *out);
/* NULL is none. The file stays, empty. */
void run_lock_release(run_lock *lock);
/* The same of a run that was refused before it wrote anything: a file that was not there before goes again. */
void run_lock_withdraw(run_lock *lock);

#endif
