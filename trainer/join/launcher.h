/* launcher.h - what mpirun or srun left in the environment of the processes that it started, and a person in that of
 * processes that are to come together. */
#ifndef TRAINER_LAUNCHER_H
#define TRAINER_LAUNCHER_H

#include <thinwire/thinwire.h>

/* Whether ranks come from a launcher, one a process, rather than being threads of this one: by a `transport` of
 * settings.h, and where that is auto, by the environment. */
int launcher_has_ranks(int transport);
/* The rank an MPI launcher's environment speaks of; 0 where there is none. */
int launcher_rank(void);
/* Tasks that srun has started, of which this process is one; 0 where it has not. A script of sbatch is no task of a
 * step. */
int launcher_tasks(void);
/* How long they wait for each other: what THINWIRE_JOIN_SECONDS says, or else what it is already. */
tw_status launcher_read_seconds(double *seconds);

/* Tells tw_last_error(), unless another process of the same MPI job will: what fails before the ranks know each other
 * fails on all of them alike. Returns EXIT_INPUT. */
int launcher_refuse(void);

#endif
