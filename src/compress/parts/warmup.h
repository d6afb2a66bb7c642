/* warmup.h - how the density of the schemes that select follows from the step and from the length of the run. During
 * the warm-up it falls by fours to its final value (Lin et al. 2018, section 3.4: 25 %, 6.25 %, 1.5625 %, 0.4 %, then
 * the final 0.1 %). */
#ifndef TW_WARMUP_H
#define TW_WARMUP_H

#include "spec.h"

#include <stddef.h>
#include <stdint.h>

typedef struct tw_warmup {
    int64_t steps;  /* that it takes; equally many at each level */
    double density; /* of the first level */
} tw_warmup;

/* Its two options, for a scheme's struct with a member `warmup` of that type. */
#define TW_OPTIONS_WARMUP(type, steps_initially)                                                                       \
    TW_OPTION("warmup_steps", TW_OPTION_INTEGER, offsetof(type, warmup.steps), steps_initially, 0, 1e9, NULL,          \
              "steps over which the density falls to its final value"),                                                \
        TW_OPTION("warmup_density", TW_OPTION_REAL, offsetof(type, warmup.density), "0.25", 1e-7, 1, NULL,             \
                  "density of the first of these steps; each next level is a quarter")

/* 1 while step `step` (from 0) is part of the way down to `density`. */
int tw_warmup_is_on(const tw_warmup *warmup, uint64_t step, double density);

/* The density of step `step`; `density` once it is over. */
double tw_warmup_density(const tw_warmup *warmup, uint64_t step, double density);

/* The highest density that any step has. */
double tw_warmup_most(const tw_warmup *warmup, double density);

/* What suits a run of `steps` steps. An element that never stands out is sent every 1/density steps, so its gradient is
 * late by as many, and that of the last ones is never applied. The longer the run, the later it may be: the density is
 * (2000/steps)^2, a quarter up to 4,000 steps, a hundredth at 20,000, and from 63,000 steps on the paper's thousandth.
 * The warm-up is a twentieth of the run, and no longer than 400 steps. Both rules were found by measurement
 * (docs/schemes.md). */
void tw_warmup_of_run(uint64_t steps, double *density, int64_t *warmup_steps);
/* Behind Adam: 0.04, to which the density falls during two thirds of the run, as the learning rate does. For as
 * many bytes in all that was better than one density (docs/schemes.md). */
void tw_warmup_of_adam(uint64_t steps, double *density, int64_t *warmup_steps);

#endif
