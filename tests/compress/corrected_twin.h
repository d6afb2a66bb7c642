/* corrected_twin.h - a second implementation of what dgc and sdagc have in common: clipping, momentum of what is
 * compressed on each rank, momentum of the mean of what is not. What of a tensor is sent is the test's. */
#ifndef CORRECTED_TWIN_H
#define CORRECTED_TWIN_H

#include "gradients.h"

enum { RANKS = 4, TENSORS = 3 };

static const tw_tensor table[TENSORS] = {{"a.weight", 2, {60, 50}}, {"a.bias", 1, {70}}, {"b.weight", 3, {40, 25, 9}}};

static size_t count_of(size_t tensor)
{
    return tw_tensor_count(&table[tensor]);
}

typedef struct twin {
    gradients u, v, sum;
    float velocity[70];
    double correction[RANKS][TENSORS]; /* sdagc's */
} twin;

/* The rules of a variant. `send` adds what a rank sends of a compressed tensor to `sum`, and takes it out of v. */
typedef struct rules {
    const char *spec;
    double (*density)(int step);
    double clip;
    int nesterov;
    void (*send)(twin *t, const struct rules *rules, int rank, size_t tensor, float scale, int step, const float *g,
                 float *sum);
} rules;

/* warmup_steps=12, from 0.25: 0.25, 0.0625, 0.015625 are above 0.008, four steps each. 0.25 costs more than dense with
 * four workers and wide values would; either road must give the same sums. */
static double falling_ladder(int step)
{
    return step < 4 ? 0.25 : step < 8 ? 0.0625 : step < 12 ? 0.015625 : 0.008;
}

static void twin_create(twin *t)
{
    *t = (twin){.velocity = {0}};
    gradients_create(&t->u, table, TENSORS, RANKS);
    gradients_create(&t->v, table, TENSORS, RANKS);
    gradients_create(&t->sum, table, TENSORS, 1);
    for (int r = 0; r < RANKS; r++)
        for (size_t k = 0; k < TENSORS; k++) t->correction[r][k] = 1;
}

static void twin_destroy(twin *t)
{
    gradients_destroy(&t->u);
    gradients_destroy(&t->v);
    gradients_destroy(&t->sum);
}

/* thr * N^-1/2 on the norm of g/N, as section 3.3 of the DGC paper says. */
static float twin_scale(const gradients *g, int rank, double clip)
{
    double share = gradients_norm(g, rank) / RANKS, threshold = clip / sqrt(RANKS);
    return (float)((clip > 0 && share > threshold ? threshold / share : 1) / RANKS);
}

static void twin_take(twin *t, const rules *how, const gradients *g, int rank, size_t tensor, float scale, int step)
{
    float *u = t->u.rank[rank][tensor], *v = t->v.rank[rank][tensor];
    for (size_t i = 0; i < count_of(tensor); i++) {
        float share = scale * g->rank[rank][tensor][i];
        u[i] = 0.9f * u[i] + share;
        v[i] = v[i] + (how->nesterov ? 0.9f * u[i] + share : u[i]);
    }
    how->send(t, how, rank, tensor, scale, step, g->rank[rank][tensor], t->sum.rank[0][tensor]);
}

static void twin_step(twin *t, const rules *how, const gradients *g, int step)
{
    float **sum = t->sum.rank[0];
    for (size_t k = 0; k < TENSORS; k++) memset(sum[k], 0, count_of(k) * sizeof(float));
    for (int r = 0; r < RANKS; r++) {
        float scale = twin_scale(g, r, how->clip);
        for (size_t k = 0; k < TENSORS; k += 2) twin_take(t, how, g, r, k, scale, step);
        for (size_t i = 0; i < count_of(1); i++) sum[1][i] += scale * g->rank[r][1][i];
    }
    for (size_t i = 0; i < count_of(1); i++) {
        t->velocity[i] = 0.9f * t->velocity[i] + sum[1][i];
        sum[1][i] = how->nesterov ? 0.9f * t->velocity[i] + sum[1][i] : t->velocity[i];
    }
}

static void check_twin(const rules *how)
{
    enum { STEPS = 30 };
    loopback group;
    gradients g;
    twin t;
    twin_create(&t);
    group_create(&group, &g, how->spec, table, TENSORS, RANKS);
    for (int step = 0; step < STEPS; step++) {
        gradients_draw(&g, 4, step, 0);
        twin_step(&t, how, &g, step);
        assert_false(group_step(&group, &g));
        for (size_t k = 0; k < TENSORS; k++)
            for (size_t i = 0; i < count_of(k); i++) assert_true(g.rank[0][k][i] == t.sum.rank[0][k][i]);
    }
    group_destroy(&group, &g);
    twin_destroy(&t);
}

#endif
