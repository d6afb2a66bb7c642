/* trained.h - a network that was trained, out of a checkpoint, for the commands that use it. */
#ifndef TRAINER_COMMANDS_TRAINED_H
#define TRAINER_COMMANDS_TRAINED_H

#include "task.h"

typedef struct trained {
    const task_ops *ops;
    task_predictor *predictor;
} trained;

/* `path` is a run's folder, one of its checkpoints, or a model.safetensors; `which`: of a run's folder, see
 * model_file.h. After a failure there is nothing to close. */
tw_status trained_open(const char *path, const char *which, trained *t);

/* The option that says so, into the struct that has such a text. */
#define TRAINED_ROW(at)                                                                                                \
    {                                                                                                                  \
        "checkpoint", "WHICH", OPTION_TEXT, at, "best",                                                                \
            .help = "Which checkpoint of a run folder: best by validation, last, or the number of a step. Without a "  \
                    "validation set "                                                                                  \
                    "the best is the last"                                                                             \
    }
void trained_close(trained *t);

#endif
