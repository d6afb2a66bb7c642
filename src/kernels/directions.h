/* directions.h - Adam's direction (Kingma and Ba, ICLR 2015), element by element, of a gradient g:
 *     m = beta1*m + (1 - beta1)*g;  v = beta2*v + (1 - beta2)*g^2
 *     direction = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)
 * And of one whose v stands still while the ranks share m (1-bit Adam). The divisor, sqrt(v / (1 - beta2^t)) + epsilon,
 * then stands still, too; it is 0 of an element that never had a gradient, and does not move.
 * A part of the table in kernels.h; its rules hold. */
#ifndef TW_KERNELS_DIRECTIONS_H
#define TW_KERNELS_DIRECTIONS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* What all elements of a step have in common. */
typedef struct tw_adam_step {
    float beta1, fresh, beta2, fresh_square;
    float correction, correct_root, epsilon;
    int nesterov; /* the direction has the m of the step to come: beta1*m + (1 - beta1)*g */
} tw_adam_step;

/* What is finite stays so: of v, whose squares overflow before gradients do, and of a direction that a state gives
 * rise to in which they are not of each other's size, or v is below zero: fminf and fmaxf take NaN for nothing.
 * Neither is met in training. */
#define TW_ADAM_LARGEST_SQUARE 1e36F
#define TW_ADAM_LARGEST 1e30F

/* Of NaN, `most`. By comparisons, as vectors have it: fminf makes something else of a NaN that signals. */
static inline float tw_adam_within(float x, float most)
{
    float lower = x < most ? x : most;
    return lower > -most ? lower : -most;
}

static inline float tw_adam_bounded(float moment)
{
    return tw_adam_within(moment, TW_ADAM_LARGEST);
}

/* The direction of moments. */
static inline float tw_adam_direction(const tw_adam_step *s, float first, float second)
{
    return tw_adam_bounded(s->correction * first / (s->correct_root * sqrtf(second) + s->epsilon));
}

/* A gradient's direction. The moments are brought up to it. */
static inline float tw_adam_take(const tw_adam_step *s, float gradient, float *first, float *second)
{
    float fresh = s->fresh * gradient;
    *first = s->beta1 * *first + fresh;
    *second = fminf(s->beta2 * *second + s->fresh_square * (gradient * gradient), TW_ADAM_LARGEST_SQUARE);
    float ahead = s->nesterov ? s->beta1 * *first + fresh : *first;
    return tw_adam_direction(s, ahead, *second);
}

/* What all elements have in common of a step in which v stands still. */
typedef struct tw_shared_step {
    float kept, fresh; /* of m, and of a gradient, in what a rank would have for m */
    float most;        /* that a gradient is taken for, once it is divided */
    float correction;  /* of m */
    int divides;       /* m is divided before it is shared; else after */
} tw_shared_step;

typedef struct tw_directions_rows {
    /* g becomes its direction. */
    void (*adapt)(const tw_adam_step *step, float *first, float *second, float *g, size_t n);
    /* momentum_select of kernels.h, with the direction of a*g for what is added to v. */
    size_t (*adapt_select)(const tw_adam_step *step, float *first, float *second, float *v, float *g, size_t n, float a,
                           float threshold, uint32_t number, uint32_t *index, float *value, size_t *done);
    /* share = kept*m + fresh*g, each divided if the step divides; 0 of what does not move. `divisor` may be NULL, here
     * and below: it is 1 then. */
    void (*share)(const tw_shared_step *step, const float *first, const float *divisor, const float *g, float *share,
                  size_t n);
    /* What arrived in g becomes m, and g its direction. `past`: m is for later, as tw_addition's dst may be. */
    void (*adopt)(const tw_shared_step *step, float *first, const float *divisor, float *g, size_t n, int past);
} tw_directions_rows;
/* As TW_KERNEL_LOOPS. */
#define TW_DIRECTIONS_LOOPS .adapt = adapt, .adapt_select = adapt_select, .share = share, .adopt = adopt

/* The reference. */
extern const tw_directions_rows tw_directions_scalar;

#endif
