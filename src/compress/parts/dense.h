/* dense.h - some tensors of a message, summed in one all-reduce, in fp32 or in half precision. */
#ifndef TW_DENSE_H
#define TW_DENSE_H

#include "adam.h"
#include "scheme.h"

/* Which tensors of the scheme's message, and how they travel. */
typedef struct tw_dense_settings {
    int compressed;  /* takes the tensors whose `compressed` flag equals this */
    tw_dtype dtype;  /* TW_F32, TW_F16 or TW_BF16 */
    int feedback;    /* what rounding to half precision loses is kept and added to the next step's values */
    float *residual; /* with it: where it is kept, if the scheme has a place for it; NULL: in the dense's own */
} tw_dense_settings;

typedef struct tw_dense {
    tw_scheme *scheme;
    tw_dense_settings settings;
    size_t count; /* elements in all */
    void *values; /* what travels: one tensor after the other */
    float *place; /* where this step's travel instead, because they lie there so: in the gradients; NULL: they do not */
    float *residual; /* with feedback: what rounding has lost so far; else NULL */
    uint16_t *own;   /* with feedback: what this rank sent last, for revert: values soon holds the sum */
    uint64_t packed; /* the step that packed last, by scheme->begun */
    int tells;       /* a sum that nobody has a share of is told from one of zeros: see is_nobodys */
    float largest;   /* with feedback: the most a rank sends, so that no sum of N leaves the format */
} tw_dense;

/* Allocates; a message without such tensors gives count 0, and then pack must not be called. */
tw_status tw_dense_create(tw_dense *dense, tw_scheme *scheme, tw_dense_settings settings);
void tw_dense_destroy(tw_dense *dense);

/* Bytes of the values that travel. */
size_t tw_dense_bytes(const tw_dense *dense);

/* Collects gradient * scale, which is finite, as it travels. */
void tw_dense_collect(tw_dense *dense, float scale);
/* Collects it and asks for the all-reduce. A rank whose gradient is not finite makes the sum so, and keeps its residual
 * as it is. */
void tw_dense_pack(tw_dense *dense, float scale, tw_round *round);
/* After the round: hands the sums back to the gradients. 0 if they are not finite. */
int tw_dense_unpack(const tw_dense *dense);
/* The same, but adds the values to the gradients. 0 if they, not the sums, are not finite. */
int tw_dense_add(const tw_dense *dense);
/* Rounds what stands in the gradients once, as an all-reduce rounds its sum. 0 if it is not finite then. */
int tw_dense_round(const tw_dense *dense);
/* Takes the step back: what it sent, if it came to that, returns to the residual, if there is one. */
void tw_dense_revert(tw_dense *dense);
/* The residual, if there is one, as "rounding/NAME". */
tw_status tw_dense_walk(tw_dense *dense, tw_walk *walk);

/* What the values of an all-reduce travel as: the words of the options that choose it, in the order of the dtypes. */
#define TW_DENSE_CHOICES "fp32|fp16|bf16"
tw_dtype tw_dense_dtype(int choice);
/* Bytes of a value. */
size_t tw_dense_width(tw_dtype dtype);
/* Writes n floats to values[at] and on, rounded to `dtype`; reads n from there. */
void tw_dense_put(tw_dtype dtype, void *values, size_t at, const float *src, size_t n);
void tw_dense_get(tw_dtype dtype, const void *values, size_t at, float *dst, size_t n);

/* Whether all are zero; the first that is not ends the search. */
int tw_dense_is_zero(const float *x, size_t n);

/* The largest value a rank may send for the sum of N to stay in the format: for fp16 the largest of which N add up to
 * no more than 65,504; for others infinity, since they reach as far as fp32. */
float tw_dense_largest_share(tw_dtype dtype, int size);

/* Momentum for tensors that were reduced, the same on every rank: velocity = m*velocity + g, and the step goes along
 * it, or with nesterov along g + m*velocity (Sutskever et al. 2013 as most frameworks have it). One that adapts steps
 * along Adam's direction instead. */
typedef struct tw_velocity {
    tw_dense *dense;
    float *now, *before;                 /* Adam's m */
    float *squares_now, *squares_before; /* Adam's v; NULL: it does not adapt. The latter is the owner's meanwhile
                                            whose steps let squares stand still */
    enum {
        TW_VELOCITY_NO_STEP,
        TW_VELOCITY_IN_PLACE, /* before has what now had */
        TW_VELOCITY_ELSEWHERE /* before is what now was, and squares have stayed */
    } taken;                  /* since the mark */
} tw_velocity;

tw_status tw_velocity_create(tw_velocity *velocity, tw_dense *dense, int adapts);
void tw_velocity_destroy(tw_velocity *velocity);
/* Before a step: revert returns to the velocity as it is. */
void tw_velocity_mark(tw_velocity *velocity);
/* Turns the sums in the gradients into steps; where a tensor is absent on every rank, nothing moves. */
void tw_velocity_apply(tw_velocity *velocity, float momentum, int nesterov);
void tw_velocity_adapt(tw_velocity *velocity, const tw_adam_step *step);
/* The same, where what is in the gradients is the velocity itself as ranks share it, which comes in its place; squares
 * stay as they are. A tensor of zeros is absent on every rank. */
void tw_velocity_replace(tw_velocity *velocity, const tw_shared_step *step, const float *divisor);
void tw_velocity_revert(tw_velocity *velocity);
/* The velocity, as "momentum/NAME", and Adam's squares as "second_moment/NAME". */
tw_status tw_velocity_walk(tw_velocity *velocity, tw_walk *walk);

#endif
