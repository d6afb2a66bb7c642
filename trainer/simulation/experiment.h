/* experiment.h - one scheme on one number of workers, from the first step to the last, in a world of its own. */
#ifndef TRAINER_EXPERIMENT_H
#define TRAINER_EXPERIMENT_H

#include "layout.h"
#include "pace.h"
#include "settings.h"
#include <stdio.h>
#include <thinwire/thinwire_sim.h>

typedef struct actor_kind actor_kind;
extern const actor_kind sim_trainee; /* a worker of `thinwire train`: its model, its data, its optimiser */
extern const actor_kind sim_phantom; /* one without a model, whose gradients are noise */

typedef struct sim_setup {
    const actor_kind *kind;
    train_settings settings; /* workers, sync and seed for all; a trainee uses the others too */
    const task *work;        /* of trainees: shared by all */
    const layout *layout;    /* of phantoms */
    const float *noise;      /* of phantoms: see sim_noise */
    int synchronous;         /* every worker takes as many steps as the others */
    int sample;              /* of phantoms: the steps are some of a run whose length is unknown */
    int shares;              /* so does it by an asynchronous scheme too, as in `thinwire train` */
    pace_model pace;
    tw_world_options world; /* workers and struct_size are filled in */
    double until_loss;      /* a training loss that ends the run; 0: none */
    FILE *progress;         /* gets a line every few seconds; NULL: none */
} sim_setup;

/* The training loss over the run: the mean over a number of gradients. */
typedef struct sim_point {
    double seconds, loss;
    uint64_t gradients;
} sim_point;

enum { SIM_POINTS = 256 };

typedef struct sim_result {
    size_t parameters;
    char *spec;         /* of --sync, as it suits the run; the caller frees it. NULL: the run did not begin */
    double seconds;     /* virtual, from the first step to the last gradient that counts */
    uint64_t gradients; /* that came in that time; of an asynchronous scheme a few more are on their way at its end, and
                         * of a pipeline each micro-batch has one */
    double rate;  /* gradients a second; by an asynchronous scheme each worker's own steps over the time they took it,
                   * summed, so that what is half done at the end counts half */
    double steps; /* of a worker, on average */
    double step_seconds;           /* that a worker took for each of its own, on average; without the run's end */
    double bytes_per_worker_step;  /* counted in the transport */
    double loss, metric, distance; /* of the consensus at the end, and root mean square of the workers' from it */
    const char *metric_name;       /* NULL where nothing was evaluated */
    uint32_t checksum;             /* of the weights at the end, where there are any */
    double seconds_to_loss;        /* negative: the loss was not reached, or not asked for */
    int diverged;                  /* the run ended early; `why` says how */
    char why[512];
    sim_point points[SIM_POINTS];
    size_t point_count;
} sim_result;

/* The scheme of `sync`, and how its workers go together. */
void sim_take_scheme(sim_setup *setup, const char *sync);
/* What the scheme passes over in memory for an element, and what each byte that came from others costs, at so many
 * bytes a second. */
void sim_take_codec_rate(sim_setup *setup, double rate);
/* Of an option --codec-rate, in GB/s. */
tw_status sim_check_codec_rate(double rate);
double sim_element_bytes(const char *sync);
#define SIM_BYTE_TOUCHES 4 /* of each byte that came from others */

/* Makes workers, as many as show it, and takes no step: what those of a run would refuse is refused. */
tw_status sim_check(const sim_setup *setup);
/* Runs it. A run that diverges is a result, not a failure. */
tw_status sim_run(const sim_setup *setup, sim_result *result);

/* The noise phantoms take their gradients from, made once for all; free() releases it. */
tw_status sim_noise(const layout *t, uint64_t seed, float **noise);

/* Seconds of a step as this machine computes it: a forward and backward pass, and what there is beside it. */
tw_status sim_measure(const train_settings *settings, const task *work, double *pass, double *other);

#endif
