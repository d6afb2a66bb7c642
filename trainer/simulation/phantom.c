/* A rank played by nobody: a table of tensors whose gradients are noise, through the same reducers, gossips and outer
 * loops. Every rank and step has gradients of its own, cut out of one long strip of noise at a place drawn for it. */
#include "actor.h"
#include "error.h"
#include "tensor_table.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_outer.h>

#define STEP_SIZE 1e-3f /* of a gossip's steps, as a learning rate */
enum { PLACE = 16 };    /* floats: places are so far apart, for the processor's sake */

typedef struct phantom {
    const sim_setup *setup;
    pace pace;
    tw_comm *comm;
    tw_reducer *reducer; /* one of the three */
    tw_gossip *gossip;
    tw_outer *outer;
    float *values;   /* gradients, or weights */
    float **tensors; /* in it */
    const float **steps;
} phantom;

tw_status sim_noise(const layout *t, uint64_t seed, float **noise)
{
    size_t count = 2 * t->elements + PLACE;
    float *values = malloc(count * sizeof *values);
    if (!values) return tw_fail(TW_ERROR_MEMORY, "no memory for gradients of %zu parameters", t->elements);
    for (size_t i = 0; i < count; i++) {
        uint32_t words[4];
        tw_random(seed, 1, i, words);
        double radius = sqrt(-2 * log(((double)words[0] + 1) / 4294967296.0));
        values[i] = STEP_SIZE * (float)(radius * cos(2 * acos(-1.0) * words[1] / 4294967296.0));
    }
    *noise = values;
    return TW_OK;
}

/* Where the gradients of this rank's step begin. */
static const float *strip_of(const phantom *p, uint64_t number)
{
    uint32_t words[4];
    tw_random((uint64_t)p->setup->settings.seed, 2 + (uint64_t)tw_comm_rank(p->comm), number, words);
    return p->setup->noise + words[0] % (p->setup->layout->elements / PLACE + 1) * PLACE;
}

static tw_status phantom_allocate(phantom *p)
{
    const layout *t = p->setup->layout;
    p->values = calloc(t->elements, sizeof *p->values);
    p->tensors = calloc(t->count, sizeof *p->tensors);
    p->steps = calloc(t->count, sizeof *p->steps);
    if (!p->values || !p->tensors || !p->steps)
        return tw_fail(TW_ERROR_MEMORY, "no memory for the gradients of a worker");
    tensor_table_place(t->tensors, t->count, p->values, p->tensors);
    return TW_OK;
}

static tw_status phantom_create(const sim_setup *setup, tw_comm *comm, void **self)
{
    const train_settings *s = &setup->settings;
    phantom *p = calloc(1, sizeof *p);
    if (!p) return tw_fail(TW_ERROR_MEMORY, "no memory for a worker");
    *self = p;
    *p = (phantom){.setup = setup, .comm = comm};
    TW_TRY(pace_begin(&setup->pace, tw_comm_rank(comm), tw_comm_size(comm), (uint64_t)s->steps, setup->layout->count,
                      &p->pace));
    return phantom_allocate(p);
}

static uint64_t phantom_steps(void *self)
{
    return (uint64_t)((phantom *)self)->setup->settings.steps;
}

static tw_status phantom_begin(void *self)
{
    phantom *p = self;
    const layout *t = p->setup->layout;
    const char *sync = p->setup->settings.sync;
    if (p->setup->gossips)
        return tw_gossip_create(p->comm, sync, t->tensors, t->count, (const float *const *)p->tensors, &p->gossip);
    if (!p->setup->updates) return tw_reducer_create(p->comm, sync, t->tensors, t->count, &p->reducer);
    TW_TRY(tw_outer_create(p->comm, sync, t->tensors, t->count, &p->outer));
    TW_TRY(tw_outer_show_moments(p->outer, p->tensors, p->tensors)); /* which are as large */
    return tw_outer_begin(p->outer, p->tensors);
}

static tw_status reduce(phantom *p, const float *strip)
{
    const layout *t = p->setup->layout;
    memcpy(p->values, strip, t->elements * sizeof *strip);
    for (size_t i = t->count; i-- > 0;) {
        pace_gradient_ready(&p->pace);
        TW_TRY(tw_reducer_submit(p->reducer, i, p->tensors[i]));
    }
    return tw_reducer_wait(p->reducer);
}

static tw_status gossip(phantom *p, const float *strip)
{
    const layout *t = p->setup->layout;
    TW_TRY(tw_gossip_read(p->gossip, p->tensors));
    for (size_t i = t->count; i-- > 0;) {
        pace_gradient_ready(&p->pace);
        p->steps[i] = strip + (p->tensors[i] - p->values);
    }
    return tw_gossip_add(p->gossip, p->steps);
}

/* The worker's own step, and perhaps a round, before which alone somebody looks at what the step came to. */
static tw_status phantom_update(phantom *p, const float *strip)
{
    const layout *t = p->setup->layout;
    tw_outer_event event;
    for (size_t i = 0; i < t->count; i++) pace_gradient_ready(&p->pace);
    int due = tw_outer_is_due(p->outer);
    for (size_t i = 0; due && i < t->elements; i++) p->values[i] += strip[i];
    return tw_outer_step(p->outer, p->tensors, &event);
}

static tw_status phantom_take(phantom *p, const float *strip)
{
    if (p->outer) return phantom_update(p, strip);
    return p->gossip ? gossip(p, strip) : reduce(p, strip);
}

static tw_status phantom_step(void *self, uint64_t number, double *loss)
{
    phantom *p = self;
    *loss = (double)NAN;
    pace_other(&p->pace);
    tw_status status = phantom_take(p, strip_of(p, number));
    return tw_status_is_error(status) ? status : TW_OK; /* nobody applies the step: a skipped one takes its time, too */
}

static tw_status phantom_end(void *self, actor_end *end)
{
    phantom *p = self;
    size_t count = p->setup->layout->elements;
    end->parameters = count;
    end->loss = end->metric = (double)NAN;
    if (p->reducer) return TW_OK;
    if (p->gossip) TW_TRY(tw_gossip_read(p->gossip, p->tensors));
    float *own = malloc(count * sizeof *own);
    if (!own) return tw_fail(TW_ERROR_MEMORY, "no memory for the weights of a worker");
    memcpy(own, p->values, count * sizeof *own);
    tw_status status = p->gossip ? tw_gossip_finish(p->gossip, p->tensors) : tw_outer_finish(p->outer, p->tensors);
    end->distance = status == TW_OK ? actor_distance(p->values, own, count) : 0;
    free(own);
    return status;
}

static void phantom_destroy(void *self)
{
    phantom *p = self;
    if (!p) return;
    tw_reducer_destroy(p->reducer);
    tw_gossip_destroy(p->gossip);
    tw_outer_destroy(p->outer);
    free(p->values);
    free(p->tensors);
    free(p->steps);
    free(p);
}

const actor_kind sim_phantom = {phantom_create, phantom_steps, phantom_begin,
                                phantom_step,   phantom_end,   phantom_destroy};
