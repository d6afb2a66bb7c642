/* plan.h - the inside of tw_plan, shared by its files. */
#ifndef TW_PLAN_PLAN_H
#define TW_PLAN_PLAN_H

#include "candidates.h"

#include <thinwire/thinwire_plan.h>

enum { TW_PLAN_ROWS = 32 };

struct tw_plan {
    tw_plan_question question; /* whose table and functions are the caller's: not looked at after make */
    size_t elements;           /* of its whole table */
    tw_plan_row rows[TW_PLAN_ROWS];
    char left_out[TW_PLAN_ROWS][512]; /* of the rows */
    double seen_from[TW_PLAN_ROWS]; /* of the rows: the steps of the shortest run that it was measured in; 0: of none */
    size_t count;
    const tw_plan_row *chosen, *dense; /* of rows */
    char why[512];                     /* chosen: a sentence */
};

/* plan.c: of what is predicted and known; a choice that is nearly as fast as the fastest, and stands before it, wins.
 * TW_ERROR_ARGUMENT where none may be chosen. */
tw_status tw_plan_choose(tw_plan *plan, int kinds, int unmeasured);

/* thin.c: a table that stands for a larger one. Tensors that are alike stand for one another, and one that is alone
 * becomes shorter. */
typedef struct tw_thin {
    tw_tensor *tensors; /* whose names are the larger one's */
    size_t count, elements;
    double times; /* that it is smaller */
} tw_thin;
tw_status tw_thin_create(const tw_tensor *tensors, size_t count, size_t elements, tw_thin *thin);
void tw_thin_release(tw_thin *thin);

/* predict.c: what a step takes in a world, on average over the run, and what its end takes after the last one. */
typedef struct tw_prediction {
    double step_seconds, bytes_per_step, end_seconds, end_bytes;
} tw_prediction;
tw_status tw_predict(const tw_plan_question *question, const tw_thin *thin, const float *noise, const char *spec,
                     double codec_seconds, tw_prediction *prediction);

/* trial.c: how long one candidate codes an exchange of the table without peers, over all of a round, and the memory it
 * takes for that. `once`: its time decides nothing, and one round will do. */
typedef struct tw_trial {
    double seconds, memory_bytes;
} tw_trial;
tw_status tw_trial_take(const tw_thin *thin, const float *noise, const char *spec, int once, tw_trial *trial);

/* spec_words.c: what a spec's scheme or method exchanges; TW_ERROR_SPEC where there is none of that name. */
tw_status tw_spec_kind(const char *spec, tw_plan_kind *kind);
/* The name of the scheme that carries what the spec exchanges; NULL where a gossip carries weights. */
tw_status tw_spec_carrier(const char *spec, const char **name);
/* A number among its options, given or not; NaN where there is no such option. */
double tw_spec_number(const char *spec, const char *option);
/* The spec with that value of an option. tw_free releases it. */
tw_status tw_spec_with(const char *spec, const char *option, const char *value, char **with);
/* The spec as it is behind its warm-up. tw_free releases it. */
tw_status tw_spec_without_warmup(const char *spec, char **without);
/* By how much more it sends of the whole table than of the thin one: low-rank factors do not shrink as matrices do. */
tw_status tw_spec_times(const char *spec, const tw_tensor *tensors, size_t count, const tw_thin *thin, double *times);
/* The spec with messages that are so many times smaller than the whole table's would be. */
tw_status tw_spec_with_smaller_messages(const char *spec, const tw_tensor *tensors, size_t count, double times,
                                        char **with);

#endif
