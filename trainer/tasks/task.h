/* task.h - a workload: the data, the network that learns from it, and how good it got.
 *
 * The training loop knows a workload through this header alone. To add one, write a file that defines NAME_task
 * (image.c is the model), and name it in TASKS. */
#ifndef TRAINER_TASK_H
#define TRAINER_TASK_H

#include "options.h"
#include "pager.h"
#include "precision.h"
#include "stage.h"

#include <cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <thinwire/thinwire.h>

typedef struct task_ops task_ops;

/* The text of a checkpoint that says where it was read from. */
#define TASK_FILE "file"
/* The text of a checkpoint of what the shapes of its tensors do not tell of a network; NULL where they tell all. */
#define TASK_NETWORK "transformer"
enum { TASK_NETWORK_TEXT = 256 }; /* room for it */
/* What a checkpoint's adapters are multiplied by, a number in fp64. */
#define TASK_ADAPTER_SCALE "adapters.scale"

/* What was seen of a data set, as sums: ranks add theirs. Whole numbers stay below 2^53, so doubles hold them. */
enum { TASK_PARTS = 24 };
typedef struct task_score {
    double loss;              /* natural logarithm, summed over `count` */
    double count;             /* of what the loss is a mean over: images, tokens, utterances */
    double parts[TASK_PARTS]; /* the task's own: what its metrics are made of */
} task_score;

void task_score_add(task_score *sum, const task_score *score);

/* A figure of merit. The first of a task's is the one a run is summed up with. */
typedef struct task_metric {
    const char *name;                         /* "accuracy" */
    double (*value)(const task_score *score); /* NULL: it is one of the score's parts as it stands, */
    bool percent;                             /* 0 .. 1, shown to people as 0 .. 100 % */
    bool falls;                               /* as training succeeds: an error, a perplexity */
    int part;                                 /* namely this one */
} task_metric;

double task_metric_value(const task_metric *metric, const task_score *score);

/* "accuracy 91.63 %" */
enum { TASK_METRIC_TEXT = 64 };
const char *task_metric_text(const task_metric *metric, const task_score *score, char text[TASK_METRIC_TEXT]);

enum { TASK_NOTE = 1024 };
/* A workload's data, in memory, and its settings. All workers of a process share it and nobody changes it. */
typedef struct task {
    const task_ops *ops;
    const void *settings;       /* the task's own; borrowed */
    char path[4096];            /* where the data came from */
    char description[256];      /* "60000 training and 10000 test images" */
    char identity[128];         /* of the training data: what a checkpoint and the run that resumes it must share */
    char content[32];           /* what tells data apart whose identity is the same; "" where it says all */
    uint32_t held_out;          /* checksum of the validation data; 0: there are none */
    char note[TASK_NOTE];       /* what a person should know of it before a run, such as what was left out; mostly "" */
    uint64_t held_steps;        /* in the first so many of a run its last layer alone learns; mostly 0 */
    const task_metric *metrics; /* ends with one without a name */
    /* What a person should see beside the first of them, in a line. NULL: nothing. */
    void (*tell)(const task_score *score, char *text, size_t room);
    const char *items;    /* what task_score.count counts: "images" */
    const char *batch_of; /* what --batch counts */
    bool measures_steps;  /* a step's score has what the metrics are made of, so that a run's journal tells them */
    bool has_validation;  /* data held out to look at while a run goes on, and to choose models by */
    bool has_test;        /* and data to tell at the end how good it got; a task has one of the two at least */
} task;

/* Where a worker stands among the others. */
typedef struct learner_place {
    int rank, size;
    size_t batch; /* of each worker, a step */
    uint64_t seed;
    nn_precision precision; /* that it computes in */
    pager *pager;           /* brings in what it computes with; NULL: all of it is in memory */
    const nn_stage *stage;  /* the part of the network that it computes; NULL: all of it */
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
    const nn_unit *units; /* where the network can be cut; none: nowhere */
    size_t unit_count;
    bool based; /* they are another network's, which --init-from names, and the tensors are adapters beside them:
                 * checkpoints say which network, and do not hold them */
    bool buffers_stand;  /* nobody changes them: all workers have the same ones, always */
    size_t held_tensors; /* the first so many do not move in the step that was just taken; their gradients are zeros */
    uint64_t steps_per_epoch;
    double seconds_waited; /* for data, in all steps since it was opened */

    /* The run's, for a learner that changes on its way; set when it is open, before its first step. */
    uint64_t steps, warmup;
    /* Replaces `values` by their sums over all workers, the same bits on each: every worker calls it with as many, as
     * often, inside step before the first gradient is ready, and inside evaluate. NULL where workers are not at the
     * same step, and in an evaluation of one alone: what is counted is then each worker's own. */
    tw_status (*sum)(void *context, float *values, size_t count);
    void *sum_context;
    int (*stops)(void); /* whether the run is asked to stop; NULL: it cannot be */
    bool left;          /* of a stage: all of them leave the evaluation under way with this batch */
} learner;

/* Asked between the batches of an evaluation, which then leaves out the rest. */
bool learner_stops(const learner *l);

/* Called by step when tensor `index`'s gradient is complete (backward order); the gradient will not be touched again
 * before the next step. A failure ends the step and is passed on. */
typedef tw_status (*learner_gradient_ready)(void *context, size_t index, float *gradient);

/* The data that are held out. */
typedef enum task_split { TASK_VALIDATION, TASK_TEST } task_split;
enum { TASK_SPLITS = 2 };

/* What is looked at while a run goes on, and what the run is summed up with. Where there is only one of the two, it is
 * both. */
task_split task_watched(const task *t);
task_split task_final(const task *t);
const char *task_split_name(task_split split); /* "validation", "test" */

/* A network that is used without the data it was trained on, made of what `describe` wrote. A task's file has a struct
 * that begins with it. Its weights are zeros until somebody fills them, as the tables say. */
typedef struct task_predictor {
    const tw_tensor *tensors;
    size_t tensor_count;
    float *parameters;
    const tw_tensor *buffer_tensors;
    size_t buffer_tensor_count;
    float *buffers;
} task_predictor;

/* Where an answer goes: one of the two is there. */
typedef struct task_answer {
    FILE *text;       /* for people */
    const char *name; /* and what the file is called there, in one line; NULL where there is none */
    bool is_among;    /* it is one of several: the text says which */
    cJSON *json;      /* for programs: an object, which gets the answer's members */
} task_answer;

/* Objects to fill, which become files of these names and .json, beside a network's weights. */
typedef struct task_folder {
    cJSON *config, *tokenizer, *tokenizer_config;
    const uint8_t *pieces; /* what tokenizer.model is to hold, the network's own; NULL: there is to be none */
    size_t pieces_size;
} task_folder;

/* A default of a shared option. */
typedef struct task_suit {
    const char *option, *value;
} task_suit;

/* The value that a list, which ends with zeros, has for an option; NULL: it has none. */
const char *task_suit_of(const task_suit *suits, const char *option);

/* What a worker holds in memory at least, in floats. */
typedef struct task_sizes {
    double parameters;
    double activations;  /* what the forward pass of a step leaves for the backward pass */
    const char *smaller; /* what makes them fewer: "--width" */
} task_sizes;

struct task_ops {
    const char *name;       /* "image" */
    const char *summary;    /* one line */
    const char *examples;   /* for the help page, every line ending in \n */
    const option_row *rows; /* the task's own options, offsets into its settings of TASK_SETTINGS_MOST bytes at most */
    size_t row_count;

    /* The default of one of the shared options (the optimiser's, the schedule's), given the task's own settings, or,
     * for the help page, NULL. NULL leaves it as it is. May be NULL. */
    const char *(*fallback)(const void *settings, const char *option);

    /* Prints what a person asked to see in place of a run, on standard output; *shown: whether anything was. May be
     * NULL. */
    tw_status (*show)(const void *settings, bool *shown);

    /* Another task whose checkpoints a run may begin with, too: it takes what it has of them. NULL: none. */
    const char *begins_with;
    /* Before the data are read: gives options that shape the network, and that nobody has set, the values of the
     * checkpoint whose weights the run begins with; its text TASK_FILE is where it was read. TW_ERROR_ARGUMENT and
     * TW_ERROR_STATE say what does not go with it. NULL: options alone shape the network. */
    tw_status (*take_sizes)(options *set, const void *settings, const tw_state *state);

    /* What a worker with such a batch holds, known before the data are read. NULL: nobody looks whether it is there. */
    tw_status (*sizes)(const void *settings, size_t batch, task_sizes *sizes);

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
    /* Adds up part `part` of `parts` of a split that the task has: together the parts are the whole. */
    tw_status (*evaluate)(learner *l, task_split split, size_t part, size_t parts, task_score *score);

    /* What a learner carries from step to step beside its parameters, into and out of a checkpoint under names that
     * begin with `prefix`. NULL where there is nothing. */
    tw_status (*save)(const learner *l, const char *prefix, tw_state *state);
    tw_status (*restore)(learner *l, const char *prefix, const tw_state *state);
    /* Text that makes the weights useful without the data: a vocabulary, feature settings. NULL where there is none. */
    tw_status (*describe)(const learner *l, tw_state *state);
    const char *labels; /* the name of its text that says what the last layer's rows stand for; NULL: none does */

    /* What is called of a network that is used; NULL where networks of this task answer nothing.
     *
     * Uses the network of a checkpoint, whose file is anybody's: `elements` is how many values it holds, and a network
     * with more weights is refused. */
    tw_status (*predictor_open)(const tw_state *state, size_t elements, task_predictor **out);
    void (*predictor_close)(task_predictor *p);
    /* Answers a file. What cannot be read is TW_ERROR_IO or TW_ERROR_FORMAT, with a line that names the file. `use` has
     * the options of use_rows. `path` is NULL where the task answers without a file. */
    tw_status (*predict)(task_predictor *p, const void *use, const char *path, const task_answer *answer);
    /* For a program that does not know the task: what rebuilds the network, into an object; and tensors that stand in
     * no table, but that PyTorch has, into the state. */
    tw_status (*describe_network)(const task_predictor *p, cJSON *network, tw_state *tensors);
    /* For Hugging Face's transformers, which has a network like this under these names of tensors. NULL, or
     * TW_ERROR_UNSUPPORTED with a sentence, where it has none. */
    tw_status (*describe_folder)(const task_predictor *p, task_folder *folder);
    /* The other way: such a folder, of which nothing is trusted, as the task's checkpoint. NULL where there is none. */
    tw_status (*read_folder)(const char *folder, tw_state **state);

    const option_row *use_rows; /* of using a network, offsets into structs of their own of TASK_USE_MOST at most */
    size_t use_row_count;
    const char *used_by;     /* the command that is predict for this task alone; NULL: there is none */
    const char *use_summary; /* "FILE is ...": a sentence for the help */
    const char *use_examples;
    bool answers_without_file;
};

/* A worker's learner; NULL is none. */
tw_status task_learner_create(const task *t, const learner_place *place, learner **out);
void task_learner_destroy(learner *l);

/* Where in an order of an epoch's items the worker's batch of global step `step` begins: the steps take one global
 * batch after the other, of which worker r's is the r-th slice. */
size_t task_slice(const learner *l, uint64_t step);

/* For `fits`: where the data have `count` of what --batch counts. */
tw_status task_check_batch(const task *t, const learner_place *place, size_t count);

/* "60000 training and 10000 test", or with "6000 validation" among them. */
enum { TASK_COUNTS_TEXT = 96 };
const char *task_counts_text(size_t train, const size_t held[TASK_SPLITS], char text[TASK_COUNTS_TEXT]);

/* Room for any task's settings, in the structs that hold one. */
enum { TASK_SETTINGS_MOST = 512 };
enum { TASK_USE_MOST = 128, TASKS_MOST = 8 };

/* The tasks there are. A new one is one line here. */
#define TASKS(X)                                                                                                       \
    X(image)                                                                                                           \
    X(lm)                                                                                                              \
    X(asr)                                                                                                             \
    X(w2v_bert)

#define DECLARE_TASK(name) extern const task_ops name##_task;
TASKS(DECLARE_TASK)
#undef DECLARE_TASK

/* The same as a list; NULL past the end. */
const task_ops *task_at(size_t index);
const char *task_name(size_t index);
/* TW_ERROR_ARGUMENT lists the names when there is no such task. */
tw_status task_find(const char *name, const task_ops **ops);

#endif
