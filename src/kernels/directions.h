/* directions.h - Adam's direction (Kingma and Ba, ICLR 2015), element by element, of a gradient g:
 *     m = beta1*m + (1 - beta1)*g;  v = beta2*v + (1 - beta2)*g^2
 *     direction = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)
 * And of one whose v stands still while the ranks share m (1-bit Adam): m over a divisor, the root of v or 1.
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

/* The direction of moments. */
static inline float tw_adam_direction(const tw_adam_step *s, float first, float second)
{
    float direction = s->correction * first / (s->correct_root * sqrtf(second) + s->epsilon);
    return fmaxf(fminf(direction, TW_ADAM_LARGEST), -TW_ADAM_LARGEST);
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

/* What all elements have in common of a step in which m is shared, and v stands still. */
typedef struct tw_shared_step {
    tw_adam_step adam; /* its direction alone: that of m as the ranks have shared it */
    int divides;       /* m is shared over what the direction divides it by */
    float kept, fresh; /* of m, and of a gradient, in what a rank would have for m */
    float most;        /* that a gradient over its divisor is taken for */
} tw_shared_step;

/* What the m of element i is divided by where it is shared; 0 of an element that never had a gradient, and does not
 * move. `second` is NULL where there is no v. */
static inline float tw_adam_divisor(const tw_shared_step *s, const float *second, size_t i)
{
    if (!second) return 1;
    if (second[i] <= 0) return 0;
    return s->divides ? s->adam.correct_root * sqrtf(second[i]) + s->adam.epsilon : 1;
}

typedef struct tw_directions_rows {
    /* g becomes its direction. */
    void (*adapt)(const tw_adam_step *step, float *first, float *second, float *g, size_t n);
    /* momentum_select of kernels.h, with the direction of a*g for what is added to v. */
    size_t (*adapt_select)(const tw_adam_step *step, float *first, float *second, float *v, float *g, size_t n, float a,
                           float threshold, uint32_t number, uint32_t *index, float *value, size_t *done);
    /* share = (kept*m + fresh*g) / divisor, term by term; 0 where that is 0. `second` may be NULL, as it may below. */
    void (*share)(const tw_shared_step *step, const float *first, const float *second, const float *g, float *share,
                  size_t n);
    /* g * divisor becomes m, which is written past the cache if that is asked (as by tw_addition), and g its direction;
     * without v that is m. */
    void (*adopt)(const tw_shared_step *step, float *first, const float *second, float *g, size_t n, int past);
} tw_directions_rows;
/* As TW_KERNEL_LOOPS. */
#define TW_DIRECTIONS_LOOPS .adapt = adapt, .adapt_select = adapt_select, .share = share, .adopt = adopt

/* The reference. */
extern const tw_directions_rows tw_directions_scalar;

#endif
