#include "dense.h"

#include "error.h"
#include "kernels.h"
#include "memory.h"

#include <math.h>
#include <string.h>

static int takes(const tw_dense *dense, size_t tensor)
{
    return dense->scheme->tensors[tensor].compressed == dense->compressed;
}

tw_status tw_dense_create(tw_dense *dense, tw_scheme *scheme, int compressed)
{
    *dense = (tw_dense){.scheme = scheme, .compressed = compressed};
    for (size_t i = 0; i < scheme->count; i++)
        if (takes(dense, i)) dense->count += scheme->tensors[i].count;
    return tw_allocate(dense->count, sizeof(float), &dense->values);
}

void tw_dense_destroy(tw_dense *dense)
{
    tw_free(dense->values);
}

void tw_dense_pack(tw_dense *dense, float scale, tw_round *round)
{
    const tw_scheme *scheme = dense->scheme;
    float *at = dense->values;
    for (size_t i = 0; i < scheme->count; i++) {
        if (!takes(dense, i)) continue;
        memcpy(at, scheme->gradients[i], scheme->tensors[i].count * sizeof *at);
        at += scheme->tensors[i].count;
    }
    if (scale != 1) tw_kernels_best()->scale(dense->values, scale, dense->count);
    if (!scheme->finite) dense->values[0] = NAN;
    round->kind = TW_ROUND_ALLREDUCE;
    round->values = dense->values;
    round->count = dense->count;
    round->dtype = TW_F32;
}

int tw_dense_is_finite(const tw_dense *dense)
{
    return tw_kernels_best()->all_finite(dense->values, dense->count);
}

void tw_dense_unpack(const tw_dense *dense)
{
    const tw_scheme *scheme = dense->scheme;
    const float *at = dense->values;
    for (size_t i = 0; i < scheme->count; i++) {
        if (!takes(dense, i)) continue;
        memcpy(scheme->gradients[i], at, scheme->tensors[i].count * sizeof *at);
        at += scheme->tensors[i].count;
    }
}

tw_status tw_velocity_create(tw_velocity *velocity, size_t count)
{
    velocity->count = count;
    TW_TRY(tw_allocate(count, sizeof(float), &velocity->now));
    return tw_allocate(count, sizeof(float), &velocity->before);
}

void tw_velocity_destroy(tw_velocity *velocity)
{
    tw_free(velocity->now);
    tw_free(velocity->before);
}

void tw_velocity_mark(tw_velocity *velocity)
{
    memcpy(velocity->before, velocity->now, velocity->count * sizeof *velocity->now);
}

void tw_velocity_apply(tw_velocity *velocity, float *values, float momentum, int nesterov)
{
    for (size_t i = 0; i < velocity->count; i++) {
        float now = momentum * velocity->now[i] + values[i];
        values[i] = nesterov ? momentum * now + values[i] : now;
        velocity->now[i] = now;
    }
}

void tw_velocity_revert(tw_velocity *velocity)
{
    memcpy(velocity->now, velocity->before, velocity->count * sizeof *velocity->now);
}
