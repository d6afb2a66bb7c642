/* task.h - a workload: the data, the network that learns from it, and how good it got.
 *
 * The training loop knows a workload through this header alone. To add one, write a file with a task_ops (image.c is
 * the model) and name it in list.c. */
#ifndef TRAINER_TASK_H
#define TRAINER_TASK_H

#include "options.h"
#include "precision.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <thinwire/thinwire.h>

typedef struct task_ops task_ops;

/* What was seen of a data set, as sums: ranks add theirs. Whole numbers stay below 2^53, so doubles hold them. */
enum { TASK_PARTS = 6 };
typedef struct task_score {
    double loss;              /* natural logarithm, summed over `count` */
    double count;             /* of what the loss is a mean over: images, tokens, utterances */
    double parts[TASK_PARTS]; /* the task's own: what its metrics are made of */
} task_score;

void task_score_add(task_score *sum, const task_score *score);

/* A figure of merit. The first of a task's is the one a run is summed up with. */
typedef struct task_metric {
    const char *name; /* "accuracy" */
    double (*value)(const task_score *score);
    bool percent; /* 0 .. 1, shown to people as 0 .. 100 % */
} task_metric;

/* "accuracy 91.63 %" */
enum { TASK_METRIC_TEXT = 64 };
const char *task_metric_text(const task_metric *metric, const task_score *score, char text[TASK_METRIC_TEXT]);

/* A workload's data, in memory, and its settings. All workers of a process share it and nobody changes it. */
typedef struct task {
    const task_ops *ops;
    const void *settings;       /* the task's own; borrowed */
    char path[4096];            /* where the data came from */
    char description[128];      /* "60000 training and 10000 test images" */
    char identity[128];         /* of the training data: what a checkpoint and the run that resumes it must share */
    char note[1024];            /* what a person should know of it before a run, such as what was left out; mostly "" */
    const task_metric *metrics; /* ends with one without a name */
    const char *items;          /* what task_score.count counts: "images" */
    const char *batch_of;       /* what --batch counts */
} task;

/* Where a worker stands among the others. */
typedef struct learner_place {
    int rank, size;
    size_t batch; /* of each worker, a step */
    uint64_t seed;
    nn_precision precision; /* that it computes in */
} learner_place;

/* One worker's network and its way through the data. All parameters stand in one array and all gradients in another,
 * tensor after tensor, so that update, checkpoint and exchange are loops over one array. A learner belongs to one
 * thread. A task's file has a struct that begins with it. */
typedef struct learner {
    const task *task;
    learner_place place;
    const char *model;        /* the network's name */
    const tw_tensor *tensors; /* the trainable ones, in forward order */
    size_t tensor_count;
    float *parameters, *gradients;
    size_t parameter_count;
    const tw_tensor *buffer_tensors; /* what is not trained but belongs to the network: running statistics */
    size_t buffer_tensor_count;
    float *buffers;
    size_t buffer_count;
    uint64_t steps_per_epoch;
} learner;

/* Called by step when tensor `index`'s gradient is complete (backward order); the gradient will not be touched again
 * before the next step. A failure ends the step and is passed on. */
typedef tw_status (*learner_gradient_ready)(void *context, size_t index, float *gradient);

/* What is looked at while a run goes on, and what it is summed up with. The same where a task has no validation set. */
typedef enum task_split { TASK_VALIDATION, TASK_TEST } task_split;

struct task_ops {
    const char *name;       /* "image" */
    const char *summary;    /* one line */
    const char *examples;   /* for the help page, every line ending in \n */
    const option_row *rows; /* the task's own options, offsets into its settings */
    size_t row_count;
    size_t settings_bytes; /* at most TASK_SETTINGS_MOST */
    bool has_validation;

    /* The default of one of the shared options (the optimiser's, the schedule's), given the task's own settings, or,
     * for the help page, NULL. NULL leaves it as it is. May be NULL. */
    const char *(*fallback)(const void *settings, const char *option);

    /* Reads the data. Files are not trusted: what is wrong with them is TW_ERROR_IO or TW_ERROR_FORMAT, with a sentence
     * that names the file. `settings` stay where they are. */
    tw_status (*load)(const void *settings, task **out);
    void (*release)(task *t);

    /* TW_ERROR_ARGUMENT when a step of so many workers with such a batch takes more than the data have. Known before a
     * worker is made. */
    tw_status (*fits)(const task *t, const learner_place *place);

    size_t learner_bytes; /* of the task's own struct */
    /* Fills a learner of zeros in whose task and place are set: its network, with initial parameters that are a
     * function of the seed alone, and all that a learner shows. */
    tw_status (*open)(learner *l);
    /* Frees what open made, also when that failed half way; the learner itself is the caller's. */
    void (*close)(learner *l);

    /* Forward and backward over the worker's share of global step `step` (counted from 0 over all epochs). Gradients of
     * the MEAN loss are written, not added. What is drawn at random depends on seed and step, not on what was before.
     */
    tw_status (*step)(learner *l, uint64_t step, learner_gradient_ready ready, void *context, task_score *score);
    /* Adds up part `part` of `parts` of a split: together the parts are the whole. */
    tw_status (*evaluate)(learner *l, task_split split, size_t part, size_t parts, task_score *score);

    /* What a learner carries from step to step beside its parameters, into and out of a checkpoint under names that
     * begin with `prefix`. NULL where there is nothing. */
    tw_status (*save)(const learner *l, const char *prefix, tw_state *state);
    tw_status (*restore)(learner *l, const char *prefix, const tw_state *state);
    /* Text that makes the weights useful without the data: a vocabulary, feature settings. NULL where there is none. */
    tw_status (*describe)(const learner *l, tw_state *state);
};

/* A worker's learner; NULL is none. */
tw_status task_learner_create(const task *t, const learner_place *place, learner **out);
void task_learner_destroy(learner *l);

/* Where in an order of an epoch's items the worker's batch of global step `step` begins: the steps take one global
 * batch after the other, of which worker r's is the r-th slice. */
size_t task_slice(const learner *l, uint64_t step);

/* For `fits`: where the data have `count` of what --batch counts. */
tw_status task_check_batch(const task *t, const learner_place *place, size_t count);

/* Room for any task's settings, in the structs that hold one. */
enum { TASK_SETTINGS_MOST = 512 };

extern const task_ops image_task, lm_task, asr_task;

/* The tasks there are; NULL past the end. */
const task_ops *task_at(size_t index);
/* TW_ERROR_ARGUMENT lists the names when there is no such task. */
tw_status task_find(const char *name, const task_ops **ops);

#endif
