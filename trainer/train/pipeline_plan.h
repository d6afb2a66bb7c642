/* pipeline_plan.h - what --pipeline says, and where the network is cut: as it says, or by layers that are measured. */
#ifndef TRAINER_PIPELINE_PLAN_H
#define TRAINER_PIPELINE_PLAN_H

#include "pipeline_cut.h"
#include "stage_line.h"
#include "worker.h"

enum { PIPELINE_ACCUMULATE = 4096 };

typedef struct pipeline_plan {
    size_t stages, accumulate; /* micro-batches whose gradients one step takes */
    size_t standby;            /* workers beside those of the stages */
    stage_values values;
    size_t ends[PIPELINE_STAGES]; /* stage s ends before that unit */
    size_t units, cut;            /* of the network; and of the ends, those that --pipeline says: none or all */
    pipeline_machine *machine;    /* this one, as it was measured */
    size_t *elements;             /* of each unit */
    char *text;                   /* --pipeline with all that was chosen; the worker's setting from then on */
} pipeline_plan;

/* What the option says, into a plan of zeros: TW_ERROR_ARGUMENT says what it may be. */
tw_status pipeline_plan_parse(const char *text, pipeline_plan *plan);
/* What --pipeline does not go with, as far as the options say it. What workers that stand by need is group_check's. */
tw_status pipeline_plan_check(const train_settings *settings);
/* How many stand by; 0 without the option, and where it cannot be read. */
size_t pipeline_standby(const char *text);
/* Into a plan of zeros: TW_ERROR_ARGUMENT and TW_ERROR_UNSUPPORTED say what does not go with it. Unless --pipeline says
 * where to cut, each layer is made alone and timed. */
tw_status pipeline_plan_open(const worker *w, pipeline_plan *plan);
/* All ranks know the ends. A collective. */
tw_status pipeline_plan_agree(worker *w, pipeline_plan *plan);
void pipeline_plan_close(pipeline_plan *plan);

#endif
