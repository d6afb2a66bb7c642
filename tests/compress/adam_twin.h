/* adam_twin.h - a second Adam, as optimisers write it, which knows nothing of messages, and its tests' tensors. */
#ifndef ADAM_TWIN_H
#define ADAM_TWIN_H

#include "gradients.h"
#include "support/assert.h"

enum { RANKS = 4, TENSORS = 2, MATRIX = 60 * 50, BIAS = 70 };
static const tw_tensor table[TENSORS] = {{"a.weight", 2, {60, 50}}, {"a.bias", 1, {BIAS}}};
static const size_t counts[TENSORS] = {MATRIX, BIAS};

static const float BETA1 = 0.75F, EPSILON = 0x1p-20F; /* what a spec can say exactly */
#define BETA1_EPSILON "momentum=0.75,epsilon=9.5367431640625e-7"

typedef struct twin {
    float matrix[2][MATRIX], bias[2][BIAS]; /* the first and the second moment */
    float *first[TENSORS], *second[TENSORS];
    float beta2;
    uint64_t steps;
} twin;

static twin *twin_create(float beta2)
{
    twin *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->beta2 = beta2;
    t->first[0] = t->matrix[0];
    t->second[0] = t->matrix[1];
    t->first[1] = t->bias[0];
    t->second[1] = t->bias[1];
    return t;
}

/* `ranks`: 1 for a whole gradient, else that of how many ranks it is a share. */
static float twin_ahead(twin *t, size_t tensor, size_t i, float g, int ranks, int nesterov)
{
    float *m = &t->first[tensor][i], *v = &t->second[tensor][i];
    *m = BETA1 * *m + (1 - BETA1) * g;
    *v = t->beta2 * *v + (1 - t->beta2) * (g * g);
    float m_root = (float)(1 / (1 - pow((double)BETA1, (double)t->steps)));
    float v_root = (float)(sqrt(ranks) / sqrt(1 - pow((double)t->beta2, (double)t->steps)));
    float first = nesterov ? BETA1 * *m + (1 - BETA1) * g : *m;
    return m_root * first / (v_root * sqrtf(*v) + EPSILON);
}

static float twin_direction(twin *t, size_t tensor, size_t i, float g)
{
    return twin_ahead(t, tensor, i, g, 1, 0);
}

#endif
