#include "warmup.h"

#include <math.h>

static const double ALL_SENT = 2000;       /* steps; the density is the square of this over the run's steps */
static const double LEAST_DENSITY = 0.001; /* of the DGC paper */
static const double MOST_DENSITY = 0.25;   /* where its warm-up begins */

/* Levels above the final density. */
static int levels(const tw_warmup *warmup, double density)
{
    int count = 0;
    for (double level = warmup->density; level > density; level /= 4) count++;
    return count;
}

int tw_warmup_is_on(const tw_warmup *warmup, uint64_t step, double density)
{
    return step < (uint64_t)warmup->steps && warmup->density > density;
}

double tw_warmup_density(const tw_warmup *warmup, uint64_t step, double density)
{
    if (!tw_warmup_is_on(warmup, step, density)) return density;
    uint64_t level = step * (uint64_t)levels(warmup, density) / (uint64_t)warmup->steps;
    double now = warmup->density;
    while (level--) now /= 4;
    return now;
}

double tw_warmup_most(const tw_warmup *warmup, double density)
{
    return tw_warmup_density(warmup, 0, density);
}

void tw_warmup_of_run(uint64_t steps, double *density, int64_t *warmup_steps)
{
    const int64_t LONGEST = 400;
    double part = ALL_SENT / (double)(steps ? steps : 1);
    *density = fmin(fmax(part * part, LEAST_DENSITY), MOST_DENSITY);
    *warmup_steps = steps / 20 < (uint64_t)LONGEST ? (int64_t)(steps / 20) : LONGEST;
}

void tw_warmup_of_adam(uint64_t steps, double *density, int64_t *warmup_steps)
{
    const double LONGEST = 1e9; /* that the option takes */
    *density = 0.04;
    *warmup_steps = (int64_t)fmin((double)steps * 2 / 3, LONGEST);
}
