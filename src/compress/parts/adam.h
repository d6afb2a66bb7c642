/* adam.h - Adam's direction (Kingma and Ba, ICLR 2015), element by element, behind which a scheme compresses:
 *     m = beta1*m + (1 - beta1)*g;  v = beta2*v + (1 - beta2)*g^2
 *     direction = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)
 *
 * g may be a rank's share of the mean, 1/N of its own gradient. The ranks' m then add up to that of the mean. Their
 * v do as far as what they have in common is small beside their noise: variances of independent shares add. So a
 * rank takes N times its own v for that of the mean, and nothing about v is exchanged. Where all ranks have the same
 * gradient, that is N times too small; where there is one rank, it is exact. */
#ifndef TW_ADAM_H
#define TW_ADAM_H

#include <math.h>
#include <stdint.h>

typedef struct tw_adam {
    double beta1, beta2, epsilon;
} tw_adam;

/* What all elements of a step have in common. */
typedef struct tw_adam_step {
    float beta1, fresh, beta2, fresh_square;
    float correction, correct_root, epsilon;
    int nesterov; /* the direction has the m of the step to come: beta1*m + (1 - beta1)*g */
} tw_adam_step;

/* The step after `before` others. `shares`: N, or 1 for a whole gradient. */
tw_adam_step tw_adam_begin(const tw_adam *adam, int nesterov, uint64_t before, int shares);

/* What is finite stays so: of v, whose squares overflow before gradients do, and of a direction that a state gives
 * rise to in which they are not of each other's size, or v is below zero: fminf and fmaxf take NaN for nothing.
 * Neither is met in training. */
#define TW_ADAM_LARGEST_SQUARE 1e36F
#define TW_ADAM_LARGEST 1e30F

/* The direction of moments. */
static inline float tw_adam_direction(const tw_adam_step *step, float first, float second)
{
    float direction = step->correction * first / (step->correct_root * sqrtf(second) + step->epsilon);
    return fmaxf(fminf(direction, TW_ADAM_LARGEST), -TW_ADAM_LARGEST);
}

/* What has to be added to the momentum for a direction to be gone in the steps to come, of which each keeps beta1 of the
 * momentum: fresh / beta1 of it is the inverse of beta1 + beta1^2 + ... */
static inline float tw_adam_owed(const tw_adam_step *step, float direction, float second)
{
    float divisor = step->correct_root * sqrtf(second) + step->epsilon;
    float owed = direction * (step->fresh / step->beta1) * (divisor / step->correction);
    return fmaxf(fminf(owed, TW_ADAM_LARGEST), -TW_ADAM_LARGEST);
}

/* A gradient's direction. The moments are brought up to it. */
static inline float tw_adam_take(const tw_adam_step *step, float gradient, float *first, float *second)
{
    float fresh = step->fresh * gradient;
    *first = step->beta1 * *first + fresh;
    *second = fminf(step->beta2 * *second + step->fresh_square * (gradient * gradient), TW_ADAM_LARGEST_SQUARE);
    float ahead = step->nesterov ? step->beta1 * *first + fresh : *first;
    return tw_adam_direction(step, ahead, *second);
}

#endif
