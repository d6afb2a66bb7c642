/* simulate.h - what the files behind `thinwire simulate` share. */
#ifndef TRAINER_SIMULATE_H
#define TRAINER_SIMULATE_H

#include "experiment.h"

typedef struct simulate_settings {
    train_settings train; /* the first member: simulate takes many options of train's */
    char *workers, *syncs, *pipelines, *link, *overhead, *parameters, *trace;
    int gradients_off, form;
    long workers_per_host;
    double step_time, jitter, codec_rate, until_loss;
} simulate_settings;

/* One run that was asked for, and what came of it. */
typedef struct simulate_row {
    const char *sync;  /* or what --pipeline says */
    int workers;       /* or stages */
    int micro_batches; /* of a step of a pipeline; 0: it is none */
    sim_result result;
} simulate_row;

/* What a recorded run took. */
typedef struct simulate_record {
    train_settings settings; /* the run's own */
    train_page page;
    options set;         /* that holds the texts */
    uint64_t steps;      /* of the run, of which `settings` may have fewer */
    char *spec;          /* --sync, as it suits so many, with as large a share of warm-up in fewer */
    double step_seconds; /* of each worker, exchange included; without evaluation and checkpoints */
    double pass_seconds, jitter, other_seconds;     /* of a worker that nobody slows */
    double codec_seconds, bytes_received, elements; /* a step */
} simulate_record;

/* Reads a run's folder; release the record with simulate_release_record. */
tw_status simulate_read_record(const char *folder, simulate_record *record);
void simulate_release_record(simulate_record *record);

/* All runs, and the model of machines and network they were made with. */
typedef struct simulation {
    const simulate_settings *settings;
    sim_setup setup;
    double codec_rate; /* bytes a second */
    simulate_row *rows;
    size_t row_count;
    simulate_record record; /* of --trace */
    simulate_row recorded;  /* that run again, in a world */
    layout layout;          /* of phantoms, and what they are made of */
    float *noise;
} simulation;

/* simulate_options.c: the link and its overhead; and the rows, scheme by scheme and then the pipelines, once it is sure
 * that each can be (their lists are cut at the semicolons). */
tw_status simulate_read_network(const simulate_settings *s, tw_world_options *world);
tw_status simulate_make_rows(simulate_settings *s, simulation *all);

/* simulate_report.c: lines of a table as the runs end, and the JSON of all. */
void simulate_print_head(FILE *stream);
void simulate_print_row(FILE *stream, const simulation *all, const simulate_row *row);
void simulate_print_record(FILE *stream, const simulation *all);
tw_status simulate_write_json(const simulation *all, const char *path);
/* Gradients a virtual second where nobody is slow and the network costs nothing. */
double simulate_ideal(const simulation *all, const simulate_row *row);

/* simulate_plot.c: simulate.svg, and the curves it is made of, in the folder `out`. */
tw_status simulate_plot(const simulation *all, const char *out);

#endif
