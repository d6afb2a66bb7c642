/* warmup.h - the warm-up of the schemes that select: the density falls by fours to its final value (Lin et al. 2018,
 * section 3.4: 25 %, 6.25 %, 1.5625 %, 0.4 %, then the final 0.1 %). */
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
    {"warmup_steps",                                                                                                   \
     TW_OPTION_INTEGER,                                                                                                \
     offsetof(type, warmup.steps),                                                                                     \
     steps_initially,                                                                                                  \
     0,                                                                                                                \
     1e9,                                                                                                              \
     NULL,                                                                                                             \
     "steps over which the density falls to its final value"},                                                         \
    {                                                                                                                  \
        "warmup_density", TW_OPTION_REAL, offsetof(type, warmup.density), "0.25", 1e-7, 1, NULL,                       \
            "density of the first of these steps; each next level is a quarter"                                        \
    }

/* 1 while step `step` (from 0) is part of the way down to `density`. */
int tw_warmup_is_on(const tw_warmup *warmup, uint64_t step, double density);

/* The density of step `step`; `density` once it is over. */
double tw_warmup_density(const tw_warmup *warmup, uint64_t step, double density);

/* The highest density that any step has. */
double tw_warmup_most(const tw_warmup *warmup, double density);

#endif
