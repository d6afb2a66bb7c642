/* adam.h - Adam's direction (directions.h), behind which a scheme compresses.
 *
 * g may be a rank's share of the mean, 1/N of its own gradient. The ranks' m then add up to that of the mean. Their
 * v do as far as what they have in common is small beside their noise: variances of independent shares add. So a
 * rank takes N times its own v for that of the mean, and nothing about v is exchanged. Where all ranks have the same
 * gradient, that is N times too small; where there is one rank, it is exact. */
#ifndef TW_ADAM_H
#define TW_ADAM_H

#include "directions.h"

#include <thinwire/thinwire.h>

typedef struct tw_adam {
    double beta1, beta2, epsilon;
} tw_adam;

/* Whoever asks a scheme for its momentum would think that one without beta1 has no moments. */
tw_status tw_adam_check(double beta1, double beta2);

/* The step after `before` others. `shares`: N, or 1 for a whole gradient. */
tw_adam_step tw_adam_begin(const tw_adam *adam, int nesterov, uint64_t before, int shares);

/* When squares that all ranks have in common are renewed by an exact gradient: `kappa` times at each interval of 1, 2,
 * 4... steps (0/1 Adam; Lu et al., ICLR 2023). How many of the first `steps` steps do; kappa of 0: none. */
uint64_t tw_adam_refreshes(uint64_t kappa, uint64_t steps);

/* What has to be added to the momentum for a direction to be gone in the steps to come, of which each keeps beta1 of
 * the momentum: fresh / beta1 of it is the inverse of beta1 + beta1^2 + ... */
static inline float tw_adam_owed(const tw_adam_step *s, float direction, float second)
{
    float divisor = s->correct_root * sqrtf(second) + s->epsilon;
    return tw_adam_bounded(direction * (s->fresh / s->beta1) * (divisor / s->correction));
}

#endif
