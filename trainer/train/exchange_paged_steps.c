/* exchange_paged_steps.c - a step is what the norm of the whole gradient decides, and every group takes it when it
 * comes in. */
#include "clip.h"
#include "error.h"
#include "exchange_paged.h"
#include "pages.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* As clip_norm does it. */
tw_status paged_take(worker *w, size_t begin, size_t end)
{
    const paged_way *way = paged_way_of(w);
    for (size_t i = begin; i < end && way->scale != 1; i++) way->gradients[i] *= way->scale;
    return optimiser_step_range(w->optimiser, begin, end, way->gradients, way->parameters);
}

void paged_destroy(worker *w)
{
    paged_way *way = paged_way_of(w);
    for (size_t i = 0; i < PAGER_SHARED; i++) pages_give(way->shared[i], w->learner->parameter_count);
    free(way->squares);
}

tw_status paged_submit(worker *w, size_t index, float *gradient)
{
    paged_way_of(w)->squares[index] = clip_squares(gradient, tw_tensor_count(&w->learner->tensors[index]));
    return TW_OK;
}

double paged_squares(const worker *w)
{
    double squares = 0;
    for (size_t i = 0; i < w->learner->tensor_count; i++) squares += paged_way_of(w)->squares[i];
    return squares;
}

void paged_begin_step(worker *w, float rate, double squares)
{
    const double limit = w->settings.clip;
    paged_way_of(w)->scale = limit > 0 ? clip_scale(squares, limit) : 1;
    optimiser_begin(w->optimiser, rate);
}

/* ---- one worker ---- */

/* What a checkpoint brought is in the file. */
static tw_status paged_begin(worker *w)
{
    return pager_reload(w->pager);
}

static tw_status paged_apply(worker *w, float rate)
{
    const double squares = paged_squares(w);
    if (!(sqrt(squares) <= TW_LARGEST_NORM)) {
        paged_way_of(w)->skipped++;
        TW_TRY(pager_step(w->pager, 0));
        return tw_fail(TW_SKIPPED, "a gradient held NaN or infinity, or was above %g", TW_LARGEST_NORM);
    }
    paged_begin_step(w, rate, squares);
    return pager_step(w->pager, PAGER_TAKE);
}

static const char *paged_plan(const worker *w, size_t index)
{
    (void)w, (void)index;
    return "stays";
}

static tw_status paged_add_totals(const worker *w, totals *sums)
{
    sums->values[TOTAL_STEPS_SKIPPED] += paged_way_of(w)->skipped;
    return TW_OK;
}

/* What a reducer of one worker remembers, so that either goes on from the other's checkpoint: how many steps there
 * were. */
static tw_status paged_save(worker *w, const char *prefix, tw_state *state)
{
    char name[128];
    snprintf(name, sizeof name, "%sscheme/steps", prefix);
    return tw_state_put(state, name, TW_U64, 1, (size_t[]){1}, &w->step);
}

const exchange paged_exchange = {
    .replicas = 1,
    .bytes = sizeof(paged_way),
    .destroy = paged_destroy,
    .begin = paged_begin,
    .submit = paged_submit,
    .apply = paged_apply,
    .plan = paged_plan,
    .add_totals = paged_add_totals,
    .counts_hosts = 1,
    .save = paged_save,
};
