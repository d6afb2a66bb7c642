/* schedule.h - the learning rate of every step, in closed form: nothing to save, any step can be asked for. */
#ifndef TRAINER_SCHEDULE_H
#define TRAINER_SCHEDULE_H

#include <thinwire/thinwire.h>

#define SCHEDULE_MILESTONES 16

typedef enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_STEP, SCHEDULE_COSINE } schedule_kind;

typedef struct schedule {
    schedule_kind kind;
    double rate;     /* after warm-up, before any decay */
    uint64_t warmup; /* steps of linear warm-up: rate * (step + 1) / warmup */
    uint64_t steps;  /* of the whole run */
    size_t milestone_count;
    uint64_t milestones[SCHEDULE_MILESTONES]; /* SCHEDULE_STEP: the steps at which the rate falls to a tenth */
} schedule;

/* `text` is "constant", "cosine" (to 0 at the run's end), "step" (a tenth at 1/2 and at 3/4 of the run), or "step:A,B"
 * with milestones of one's own: below 1 they are fractions of the run, from 1 on they are epochs. */
tw_status schedule_parse(const char *text, double rate, uint64_t warmup, uint64_t steps, uint64_t steps_per_epoch,
                         schedule *out);

/* The rate of step `step`, 0 .. steps-1. */
double schedule_rate(const schedule *s, uint64_t step);

#endif
