/* A rank played by nobody: the library's phantom, at the pace of a worker. */
#include "actor.h"
#include "error.h"
#include "scheme.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_plan.h>

typedef struct phantom {
    const sim_setup *setup;
    pace pace;
    tw_comm *comm;
    char *spec;
    tw_phantom *worker;
} phantom;

tw_status sim_noise(const layout *t, uint64_t seed, float **noise)
{
    size_t count = 2 * t->elements + TW_NOISE_MARGIN;
    *noise = malloc(count * sizeof **noise);
    if (!*noise) return tw_fail(TW_ERROR_MEMORY, "no memory for gradients of %zu parameters", t->elements);
    return tw_phantom_noise(*noise, count, seed);
}

static tw_status phantom_create(const sim_setup *setup, tw_comm *comm, void **self)
{
    phantom *p = calloc(1, sizeof *p);
    if (!p) return tw_fail(TW_ERROR_MEMORY, "no memory for a worker");
    *self = p;
    *p = (phantom){.setup = setup, .comm = comm};
    return pace_begin(&setup->pace, tw_comm_rank(comm), tw_comm_size(comm), (uint64_t)setup->settings.steps,
                      setup->layout->count, &p->pace);
}

static const char *phantom_spec(void *self)
{
    return ((phantom *)self)->spec;
}

static uint64_t phantom_steps(void *self)
{
    return (uint64_t)((phantom *)self)->setup->settings.steps;
}

static uint64_t phantom_gradients(void *self)
{
    (void)self;
    return 1;
}

static uint64_t phantom_sent(void *self)
{
    return actor_sent(((phantom *)self)->comm);
}

static tw_status phantom_begin(void *self)
{
    phantom *p = self;
    const sim_setup *s = p->setup;
    p->spec = s->sample ? strdup(s->settings.sync) : scheme_for_run(s->settings.sync, (uint64_t)s->settings.steps);
    if (!p->spec) return tw_fail(TW_ERROR_MEMORY, "no memory for the spec of --sync");
    return tw_phantom_create(p->comm, p->spec, s->layout->tensors, s->layout->count, s->noise,
                             (uint64_t)s->settings.seed, &p->worker);
}

static tw_status phantom_step(void *self, uint64_t number, double *loss)
{
    phantom *p = self;
    *loss = (double)NAN;
    pace_other(&p->pace);
    return tw_phantom_step(p->worker, number, pace_gradient_ready, &p->pace);
}

static tw_status phantom_end(void *self, actor_end *end)
{
    phantom *p = self;
    end->parameters = p->setup->layout->elements;
    end->loss = end->metric = (double)NAN;
    return tw_phantom_finish(p->worker, &end->distance);
}

static void phantom_destroy(void *self)
{
    phantom *p = self;
    if (!p) return;
    tw_phantom_destroy(p->worker);
    free(p->spec);
    free(p);
}

const actor_kind sim_phantom = {phantom_create, phantom_spec, phantom_steps, phantom_gradients, phantom_sent,
                                phantom_begin,  phantom_step, phantom_end,   phantom_destroy,   1};
