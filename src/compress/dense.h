/* dense.h - some tensors of a message, summed exactly in one all-reduce. */
#ifndef TW_DENSE_H
#define TW_DENSE_H

#include "scheme.h"

/* Which tensors of the scheme's message, and the array their values travel in. */
typedef struct tw_dense {
    tw_scheme *scheme;
    int compressed; /* takes the tensors whose `compressed` flag equals this */
    size_t count;   /* elements in all */
    float *values;  /* one tensor after the other */
} tw_dense;

/* Allocates; a message without such tensors gives count 0, and then pack must not be called. */
tw_status tw_dense_create(tw_dense *dense, tw_scheme *scheme, int compressed);
void tw_dense_destroy(tw_dense *dense);

/* Collects gradient * scale and asks for the all-reduce. A rank whose gradient is not finite makes the sum so. */
void tw_dense_pack(tw_dense *dense, float scale, tw_round *round);
/* After the round: 0 if the sum is not finite. */
int tw_dense_is_finite(const tw_dense *dense);
/* Hands the sums back to the gradients. */
void tw_dense_unpack(const tw_dense *dense);

/* Momentum for tensors that were reduced exactly, the same on every rank: velocity = m*velocity + g, and the step goes
 * along it, or with nesterov along g + m*velocity (Sutskever et al. 2013 as most frameworks have it). */
typedef struct tw_velocity {
    float *now, *before;
    size_t count;
} tw_velocity;

tw_status tw_velocity_create(tw_velocity *velocity, size_t count);
void tw_velocity_destroy(tw_velocity *velocity);
/* Remembers the velocity as it is: what revert returns to. */
void tw_velocity_mark(tw_velocity *velocity);
void tw_velocity_apply(tw_velocity *velocity, float *values, float momentum, int nesterov);
void tw_velocity_revert(tw_velocity *velocity);

#endif
