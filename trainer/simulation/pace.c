#include "pace.h"
#include "error.h"
#include <math.h>
#include <thinwire/thinwire_plan.h>

#define LONGEST_PASS 1e7 /* on average, in seconds: the others wait 1e9 at most, and jitter may draw the longer */
#define STREAM 0x7061636500000000u

tw_status pace_begin(const pace_model *model, int rank, int size, uint64_t steps, size_t tensors, pace *p)
{
    *p = (pace){.model = model, .rank = rank, .tensors = tensors};
    TW_TRY(slowdown_parse(model->slow, model->pause, rank, size, steps, &p->slowdown));
    if (p->slowdown.greatest * model->step_seconds <= LONGEST_PASS) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "--slow %s: a pass of %g s takes more than %g s then; choose a smaller factor",
                   model->slow, model->step_seconds, LONGEST_PASS);
}

/* In (0, 1]. */
static double pace_uniform(uint32_t word)
{
    return ((double)word + 1) / 4294967296.0;
}

/* Of mean 1 and standard deviation `jitter`. */
static double pace_draw(const pace_model *model, const uint32_t words[4])
{
    double jitter = model->jitter, logarithm = -log(pace_uniform(words[0]));
    if (model->form == PACE_EXPONENTIAL) return 1 - jitter + jitter * logarithm;
    double normal = sqrt(2 * logarithm) * cos(2 * acos(-1.0) * pace_uniform(words[1]));
    double variance = log1p(jitter * jitter);
    return exp(sqrt(variance) * normal - variance / 2);
}

/* Of pass `number`, counted from 0; drawn by (seed, rank, number) alone. */
static double pace_seconds(const pace *p, uint64_t number)
{
    uint32_t words[4];
    double seconds = p->slowdown.factor * p->model->step_seconds;
    if (p->model->jitter == 0) return seconds;
    tw_random(p->model->seed, STREAM + (uint64_t)p->rank, number, words);
    return seconds * pace_draw(p->model, words);
}

void pace_pause(const pace *p, uint64_t step)
{
    tw_world_compute(slowdown_extra(&p->slowdown, step, 0));
}

void pace_part_passed(void *context, uint64_t batch, double part)
{
    tw_world_compute(part * pace_seconds(context, batch));
}

void pace_gradient_ready(void *context)
{
    pace *p = context;
    if (p->ready == 0) p->seconds = pace_seconds(p, p->passes);
    tw_phantom_pass(p->seconds, ++p->ready, p->tensors);
    if (p->ready < p->tensors) return;
    pace_pause(p, p->passes + 1);
    p->passes++;
    p->ready = 0;
}

void pace_other(const pace *p)
{
    tw_world_compute(p->model->other_seconds);
}
