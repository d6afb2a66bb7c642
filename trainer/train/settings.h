/* settings.h - everything a training run is told: the options of `thinwire train`, their defaults and their record. */
#ifndef TRAINER_SETTINGS_H
#define TRAINER_SETTINGS_H

#include "task.h"
#include <cJSON.h>
#include <stdbool.h>
#include <thinwire/thinwire.h>

#define SYNC_AUTO "auto"       /* of --sync: see trainer/run/automatic.h */
enum { WORKERS_MOST = 16384 }; /* of a comm, as thinwire.h says */

/* Texts are the option set's; NULL where nothing was given. */
typedef struct train_settings {
    const task_ops *task;
    const options *set; /* where these values came from */
    bool momentum_given, nesterov_given;
    char *task_name; /* the same task */

    char *sync;            /* a reducer's or a gossip's spec */
    char *sync_in_full;    /* the same with every option written out; the worker's */
    char *sync_as_run;     /* and with what the run's length and optimiser have made of them; likewise */
    char *link;            /* of --sync auto: see network.h; NULL: it is measured */
    char *planned_link;    /* the line that --sync auto has chosen for; NULL: a person chose */
    char *planned_changes; /* what it chose later: see changes.h. NULL: nothing */
    int transport;         /* transport_choice */
    char *plugin;          /* see plugins_load */
    char *schedule;        /* see schedule_parse */
    char *slow, *pause;    /* see slowdown_parse */
    char *join;            /* see join.h; NULL: the workers are threads, or MPI's */
    char *key_file;        /* see join.h and seal.h */
    char *out;             /* the run folder; NULL writes nothing; "": the first worker chooses one */
    char *resume;    /* NULL: begin anew; "": the newest checkpoint in `out`; else a checkpoint, or a run's folder */
    char *init_from; /* NULL: random weights; else a checkpoint or a run's folder to begin with */
    char *config;
    char *dump_gradients; /* a folder; NULL keeps none */
    char *dump_steps;     /* see dump_parse */
    char *memory_budget;  /* "200MB"; NULL: none */
    char *pipeline;       /* see exchange_pipeline.h; NULL: none */
    char *json;           /* a file for summary.json's content too; "-" is standard output */
    long workers;         /* 0: one thread, or as many as the launcher started */
    long rank;            /* with join: the one this process wants; -1: any */
    long epochs, steps, batch, warmup, seed, evaluate_every, checkpoint_every, check_every;
    int optimizer; /* optimiser_kind */
    int compute;   /* nn_precision */
    double lr, momentum, beta2, epsilon, weight_decay, clip, timeout, patience;
    double expect_ratio; /* 0: nothing is expected */
    bool nesterov, quiet, seal;
    bool changing;    /* no option: the workers come and go, see group.h. Each knows of its own failures alone */
    bool forget_lost; /* with resume: see checkpoint_files.h */
    max_align_t own[TASK_SETTINGS_MOST / sizeof(max_align_t)]; /* the task's */
} train_settings;

typedef enum transport_choice { TRANSPORT_AUTO, TRANSPORT_THREADS, TRANSPORT_MPI, TRANSPORT_TCP } transport_choice;

/* The table of options for a task, for parsing and help: its own and those of every run. */
typedef struct train_page {
    option_row rows[OPTIONS_MOST];
    char description[1024], lender[64];
    option_page page;
} train_page;
tw_status settings_page(const task_ops *ops, train_page *page);
/* For a command that takes some of train's options: adds those that it wants to its own, whose page names them. */
tw_status settings_lend_rows(const task_ops *ops, bool (*wants)(const option_row *row), train_page *own);
/* Gives what nobody has set the defaults that suit the task, as far as they depend on its other settings.
 * TW_ERROR_ARGUMENT as options_check_beside. */
tw_status settings_complete(const task_ops *ops, options *set);

/* One setting that a checkpoint and the run that resumes it must agree on. */
typedef struct setting_text {
    const char *key, *value; /* the value is the settings' own text, or stands in `space` */
    const option_row *row;   /* NULL where it is no option */
    char space[OPTION_TEXT_MOST];
} setting_text;

/* The task, the workers, and any option. */
enum { SETTINGS_IDENTITY = OPTIONS_MOST + 2 };

/* What decides a run's bits from one step to the next, apart from the data, and from learning rate, weight decay, clip
 * and length, which may be changed on resuming. Returns how many they are. */
size_t settings_identity(const train_settings *settings, int workers, setting_text identity[SETTINGS_IDENTITY]);

/* All of them, for the record: a member for each row of the table. NULL when memory ran out. */
cJSON *settings_json(const train_settings *settings);
/* The same as a YAML file that --config reads back. */
tw_status settings_write(const train_settings *settings, const char *path);

#endif
