/* launch.h - seating the workers of a run: as threads of this process, or as this process's rank among an MPI
 * launcher's. */
#ifndef TRAINER_LAUNCH_H
#define TRAINER_LAUNCH_H

#include "settings.h"

/* Runs the training to its end; returns the exit code. A failure has been told, once, on standard error. */
int launch(const train_settings *settings);

#endif
