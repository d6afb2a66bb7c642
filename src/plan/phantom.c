/* A rank played by nobody: a table of tensors whose gradients are noise, through the same reducers, gossips and outer
 * loops. */
#include "error.h"
#include "memory.h"
#include "plan.h"
#include "thread.h"

#include <math.h>
#include <string.h>
#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_outer.h>

#define STEP_SIZE 1e-3f   /* of a gossip's steps, as a learning rate */
#define FORWARD (1.0 / 3) /* the backward pass makes two products where the forward pass makes one */
enum { PLACE = TW_NOISE_MARGIN, PORTIONS = 8 }; /* places are so many floats apart, for the processor's sake */

struct tw_phantom {
    const tw_tensor *table;
    size_t count, elements;
    const float *noise;
    uint64_t seed;
    int rank;
    tw_reducer *reducer; /* one of the three */
    tw_gossip *gossip;
    tw_outer *outer;
    float *values, *own; /* gradients or weights; and what these were before the end */
    float **tensors;     /* in values */
    const float **steps;
};

/* Nearly Gaussian, as the sum of eight numbers that are even is; libm's logarithm differs between processors. */
tw_status tw_phantom_noise(float *noise, size_t count, uint64_t seed)
{
    const double DEVIATION = 65536 * 0.81649658092772603; /* of the sum: the root of 8/12 */
    TW_TRY(tw_need(noise, "noise"));
    for (size_t i = 0; i < count; i++) {
        uint32_t words[4], sum = 0;
        tw_random(seed, 1, i, words);
        for (int w = 0; w < 4; w++) sum += (words[w] & 0xFFFF) + (words[w] >> 16);
        noise[i] = STEP_SIZE * (float)(((double)sum - 4 * 65535) / DEVIATION);
    }
    return TW_OK;
}

/* ---- the time of a pass ------------------------------------------------------------------------------------------ */

/* How much of a pass has gone by when so many gradients are there. It goes by in portions, as each costs a change of
 * threads. */
static double gone_by(size_t ready, size_t tensors)
{
    size_t portion = ready * PORTIONS / tensors;
    size_t first = (portion * tensors + PORTIONS - 1) / PORTIONS; /* that is in this portion */
    if (ready == tensors) return 1;
    return portion ? FORWARD + (1 - FORWARD) * (double)first / (double)tensors : 0;
}

void tw_phantom_pass(double seconds, size_t ready, size_t tensors)
{
    if (ready < 1 || ready > tensors) return;
    tw_let_pass(seconds * (gone_by(ready, tensors) - gone_by(ready - 1, tensors)));
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

static tw_status phantom_place(tw_phantom *p)
{
    size_t offset = 0;
    for (size_t i = 0; i < p->count; i++) p->elements += tw_tensor_count(&p->table[i]);
    TW_TRY(tw_allocate(p->elements, sizeof *p->values, &p->values));
    TW_TRY(tw_allocate(p->count, sizeof *p->tensors, &p->tensors));
    TW_TRY(tw_allocate(p->count, sizeof *p->steps, &p->steps));
    for (size_t i = 0; i < p->count; offset += tw_tensor_count(&p->table[i++])) p->tensors[i] = p->values + offset;
    return TW_OK;
}

static tw_status phantom_begin(tw_phantom *p, tw_comm *comm, const char *spec)
{
    tw_plan_kind kind;
    TW_TRY(tw_spec_kind(spec, &kind));
    TW_TRY(phantom_place(p));
    if (kind == TW_PLAN_GRADIENTS) return tw_reducer_create(comm, spec, p->table, p->count, &p->reducer);
    if (kind == TW_PLAN_WEIGHTS)
        return tw_gossip_create(comm, spec, p->table, p->count, (const float *const *)p->tensors, &p->gossip);
    TW_TRY(tw_outer_create(comm, spec, p->table, p->count, &p->outer));
    TW_TRY(tw_outer_show_moments(p->outer, p->tensors, p->tensors)); /* which are as large */
    return tw_outer_begin(p->outer, p->tensors);
}

tw_status tw_phantom_create(tw_comm *comm, const char *spec, const tw_tensor *tensors, size_t count, const float *noise,
                            uint64_t seed, tw_phantom **phantom)
{
    tw_phantom *p;
    TW_TRY(tw_need(comm, "comm"));
    TW_TRY(tw_need(spec, "spec"));
    TW_TRY(tw_need(tensors, "tensors"));
    TW_TRY(tw_need(noise, "noise"));
    TW_TRY(tw_need(phantom, "phantom"));
    TW_TRY(tw_allocate(1, sizeof *p, &p));
    *p = (tw_phantom){.table = tensors, .count = count, .noise = noise, .seed = seed, .rank = tw_comm_rank(comm)};
    tw_status status = phantom_begin(p, comm, spec);
    if (status == TW_OK)
        *phantom = p;
    else
        tw_phantom_destroy(p);
    return status;
}

void tw_phantom_destroy(tw_phantom *p)
{
    if (!p) return;
    tw_reducer_destroy(p->reducer);
    tw_gossip_destroy(p->gossip);
    tw_outer_destroy(p->outer);
    tw_free(p->values);
    tw_free(p->own);
    tw_free(p->tensors);
    tw_free(p->steps);
    tw_free(p);
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

static void nothing(void *context)
{
    (void)context;
}

/* Where the gradients of this rank's step begin. */
static const float *strip_of(const tw_phantom *p, uint64_t number)
{
    uint32_t words[4];
    tw_random(p->seed, 2 + (uint64_t)p->rank, number, words);
    return p->noise + words[0] % (p->elements / PLACE + 1) * PLACE;
}

static tw_status phantom_reduce(tw_phantom *p, const float *strip, tw_phantom_ready ready, void *context)
{
    memcpy(p->values, strip, p->elements * sizeof *strip);
    for (size_t i = p->count; i-- > 0;) {
        ready(context);
        TW_TRY(tw_reducer_submit(p->reducer, i, p->tensors[i]));
    }
    return tw_reducer_wait(p->reducer);
}

static tw_status phantom_gossip(tw_phantom *p, const float *strip, tw_phantom_ready ready, void *context)
{
    TW_TRY(tw_gossip_read(p->gossip, p->tensors));
    for (size_t i = p->count; i-- > 0;) {
        ready(context);
        p->steps[i] = strip + (p->tensors[i] - p->values);
    }
    return tw_gossip_add(p->gossip, p->steps);
}

/* The worker's own step, and perhaps a round, before which alone somebody looks at what the step came to. */
static tw_status phantom_update(tw_phantom *p, const float *strip, tw_phantom_ready ready, void *context)
{
    tw_outer_event event;
    for (size_t i = 0; i < p->count; i++) ready(context);
    int due = tw_outer_is_due(p->outer);
    for (size_t i = 0; due && i < p->elements; i++) p->values[i] += strip[i];
    return tw_outer_step(p->outer, p->tensors, &event);
}

tw_status tw_phantom_step(tw_phantom *p, uint64_t number, tw_phantom_ready ready, void *context)
{
    TW_TRY(tw_need(p, "phantom"));
    if (!ready) ready = nothing;
    tw_status status = p->outer    ? phantom_update(p, strip_of(p, number), ready, context)
                       : p->gossip ? phantom_gossip(p, strip_of(p, number), ready, context)
                                   : phantom_reduce(p, strip_of(p, number), ready, context);
    return tw_status_is_error(status) ? status : TW_OK;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static double distance_between(const float *a, const float *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum);
}

tw_status tw_phantom_finish(tw_phantom *p, double *distance)
{
    double nowhere;
    TW_TRY(tw_need(p, "phantom"));
    if (!distance) distance = &nowhere;
    *distance = 0;
    if (p->reducer) return TW_OK;
    if (p->gossip) TW_TRY(tw_gossip_read(p->gossip, p->tensors));
    if (!p->own) TW_TRY(tw_allocate(p->elements, sizeof *p->own, &p->own));
    memcpy(p->own, p->values, p->elements * sizeof *p->own);
    tw_status status = p->gossip ? tw_gossip_finish(p->gossip, p->tensors) : tw_outer_finish(p->outer, p->tensors);
    if (status == TW_OK) *distance = distance_between(p->values, p->own, p->elements);
    return status;
}
