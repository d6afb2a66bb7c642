/* schedule.h - the learning rate of every step, in closed form: any step can be asked for, and there is nothing to save
 * but what a plateau schedule has learnt. */
#ifndef TRAINER_SCHEDULE_H
#define TRAINER_SCHEDULE_H

#include <thinwire/thinwire.h>

#define SCHEDULE_MILESTONES 16

typedef enum schedule_kind {
    SCHEDULE_CONSTANT,
    SCHEDULE_STEP,
    SCHEDULE_COSINE,
    SCHEDULE_DECAY,
    SCHEDULE_PLATEAU,
    SCHEDULE_ISQRT
} schedule_kind;

typedef struct schedule {
    schedule_kind kind;
    double rate;     /* after warm-up, before any decay */
    uint64_t warmup; /* steps of linear warm-up: rate * (step + 1) / warmup */
    uint64_t steps;  /* of the whole run */
    size_t milestone_count;
    uint64_t milestones[SCHEDULE_MILESTONES]; /* SCHEDULE_STEP: the steps at which the rate falls to a tenth */
    double factor;                            /* SCHEDULE_DECAY, SCHEDULE_PLATEAU: of each fall */
    uint64_t full_epochs;                     /* SCHEDULE_DECAY: before the first */
    uint64_t steps_per_epoch;
    double best_loss; /* SCHEDULE_PLATEAU: the lowest told; infinite before any */
    double falls;     /* SCHEDULE_PLATEAU: so far */
} schedule;

/* `text` is "constant", "cosine" (to 0 at the run's end), "step" (a tenth at 1/2 and at 3/4 of the run), or "step:A,B"
 * with milestones of one's own: below 1 they are fractions of the run, from 1 on they are epochs. "decay:F,E"
 * multiplies the rate by F at the end of epoch E and of every later one (Zaremba et al. 2014); "plateau:F" at the end
 * of each epoch that did not lower the validation loss. "isqrt" falls as 1 / sqrt(step) after its warm-up (Vaswani et
 * al. 2017), without which it is refused; "isqrt:S" warms up for share S of the run, whatever `warmup` says. */
tw_status schedule_parse(const char *text, double rate, uint64_t warmup, uint64_t steps, uint64_t steps_per_epoch,
                         schedule *out);

/* Whether it wants to be told validation losses: of a text that nobody has parsed yet, or NULL. */
int schedule_is_plateau(const char *text);

/* The rate of step `step`, 0 .. steps-1. */
double schedule_rate(const schedule *s, uint64_t step);

/* Tells the validation loss at the end of an epoch, the same on every rank. Only a plateau schedule minds. */
void schedule_observe(schedule *s, double validation_loss);

#endif
