/* resume.h - what a run was told, out of the config.yaml in its folder: for --resume, which goes on as the run was
 * begun without being told it all again. */
#ifndef TRAINER_RESUME_H
#define TRAINER_RESUME_H

#include "settings.h"

/* The task of the run in a folder, or of one of its checkpoints. A run of version 0.1 says it in its checkpoints only.
 * TW_ERROR_IO and TW_ERROR_FORMAT name the file. */
tw_status resume_task(const char *path, const task_ops **ops);

/* TW_ERROR_ARGUMENT when a file of options says that it is of another task. */
tw_status resume_check_task(const char *file, const task_ops *ops);

/* Gives `set`, whose target `settings` is, what the run at `path` was told, where neither the command line nor --config
 * says anything. What starts it may be another way: folder, transport, and number of workers where a launcher decides
 * that. TW_ERROR_ARGUMENT names an option that has to stay as it was, and both values. Where the run has left no
 * config.yaml, nothing is inherited. */
tw_status resume_inherit(const char *path, options *set, train_settings *settings);

#endif
