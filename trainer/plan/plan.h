/* plan.h - which way of exchanging suits a network, an optimiser and a line. Each candidate's codec is timed on this
 * machine, and its step is predicted by the simulator, on the network's own tensors. */
#ifndef TRAINER_PLAN_H
#define TRAINER_PLAN_H

#include "candidates.h"
#include "experiment.h"

typedef struct plan_question {
    const layout *layout;
    int workers;   /* 2 or more */
    int optimizer; /* optimiser_kind */
    uint64_t steps, seed;
    pace_model pace;
    tw_world_options world; /* the line */
    double codec_rate;      /* bytes a second at which schemes pass over memory; 0: each is timed */
    int unmeasured;         /* a candidate whose cost nobody has measured may be taken, too */
    FILE *progress;         /* gets a line for each candidate; NULL: none */
} plan_question;

enum { PLAN_ROWS = 32, PLAN_SPEC = 128 };
enum { PLAN_RANKS = 64 }; /* between which lines can be measured */

/* What is predicted of a candidate. */
typedef struct plan_row {
    const char *spec;
    const candidate_cost *cost; /* known of a run of this length; NULL: it was not measured */
    char left_out[512];         /* why it cannot be taken; "": it can */
    double step_seconds;        /* of a worker, on average over the run */
    double utilisation;         /* the share of it that computes */
    double bytes_per_step;      /* that a worker sends */
    double memory_bytes;        /* that the exchange takes on a worker; NAN: unknown */
    double codec_seconds;       /* of a step, measured here on one thread */
    double target_seconds;      /* step_seconds as long as it takes more steps */
} plan_row;

typedef struct plan {
    plan_row rows[PLAN_ROWS];
    size_t count;
    const plan_row *chosen, *dense; /* of rows */
    char why[512];                  /* chosen: a sentence */
} plan;

/* TW_ERROR_ARGUMENT for a single worker. */
tw_status plan_make(const plan_question *question, plan *answer);

/* Of what is predicted and known; a choice that is nearly as fast as the fastest, and stands before it, wins. */
void plan_choose(plan *answer, int unmeasured);

/* What a run asks: the tensors of its network, its optimiser and its length. Release the layout. `workers`: of the run.
 */
tw_status plan_question_of(const train_settings *settings, const task *work, int workers, layout *tensors,
                           plan_question *question);

/* Measures the pass of a step and what there is beside it. All ranks of `comm` measure at once, as they will
 * compute, and the slowest counts; NULL: this process alone. A collective. */
tw_status plan_find_pass(const train_settings *settings, const task *work, tw_comm *comm, pace_model *machine);

/* How long one candidate codes an exchange of these tensors without peers, over all of a round, and the memory it takes
 * for that. */
typedef struct plan_trial {
    double seconds, memory_bytes;
} plan_trial;
tw_status plan_try(const layout *tensors, const char *spec, plan_trial *trial);

#endif
