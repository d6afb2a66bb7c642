/* launch.h - seating the workers of a run: as threads of this process, or as this process's rank among an MPI
 * launcher's. */
#ifndef TRAINER_LAUNCH_H
#define TRAINER_LAUNCH_H

#include "settings.h"

/* What the program ends with. */
enum { EXIT_DONE = 0, EXIT_INPUT = 2, EXIT_PEER_LOST = 3, EXIT_DIVERGED = 4, EXIT_INTERRUPTED = 130 };

/* Runs the training to its end; returns the exit code. A failure has been told, once, on standard error. */
int launch(const train_settings *settings);

/* Whether ranks come from a launcher, one a process, rather than being threads of this one: by a `transport` of
 * settings.h, and where that is auto, by what a launcher leaves in the environment. */
int launch_has_ranks(int transport);

/* Tells tw_last_error(), unless another process of the same MPI job will: what fails before the ranks know each other
 * fails on all of them alike. Returns EXIT_INPUT. */
int launch_refuse(void);

#endif
