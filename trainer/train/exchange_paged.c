/* exchange_paged.c - a step is what the norm of the whole gradient decides, and every group takes it when it comes in.
 */
#include "exchange_paged.h"
#include "clip.h"
#include "error.h"
#include "file_memory.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A gradient above is no gradient: see tw_reducer_wait. */
#define LARGEST_NORM 1e33

typedef struct paged_way {
    float *parameters, *gradients; /* what is paged; the learner shows all of it, in the file */
    double *squares;               /* of each tensor's gradient */
    double skipped;
} paged_way;

static paged_way *paged_way_of(const worker *w)
{
    return w->way;
}

/* ---- the budget ---- */

tw_status paged_parse(const char *text, size_t *bytes)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}};
    char *end;
    double number = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        double all = number * units[i].bytes;
        if (strcmp(end, units[i].name) != 0 || end == text || !(all >= 1 && all < 0x1p62)) continue;
        *bytes = (size_t)all;
        return TW_OK;
    }
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--memory-budget %s: it is a number and kB, MB, GB, KiB, MiB or GiB, such as 200MB", text);
}

static tw_status check_company(const worker *w)
{
    const train_settings *s = &w->settings;
    if (w->size > 1)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--memory-budget goes with one worker, and these are %d: what they exchange is in memory as a "
                       "whole; leave it out, or train with --workers 1",
                       w->size);
    if (strcmp(s->sync, "allreduce") != 0)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--memory-budget goes with --sync allreduce, without options, and not with %s: one worker has "
                       "nobody to send to",
                       s->sync);
    if (s->dump_gradients)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--dump-gradients keeps whole gradients in memory: leave out either it or --memory-budget");
    return TW_OK;
}

tw_status paged_open(worker *w)
{
    const train_settings *s = &w->settings;
    pager_options paging = {.states = s->optimizer == OPTIMISER_SGD ? 1 : 2,
                            .folder = s->out && *s->out ? s->out : "."};
    TW_TRY(paged_parse(s->memory_budget, &paging.budget));
    TW_TRY(check_company(w));
    return pager_create(&paging, &w->pager);
}

tw_status paged_choose(worker *w)
{
    pager_counts counts;
    pager_count(w->pager, &counts);
    if (counts.total == 0)
        return tw_fail(TW_ERROR_UNSUPPORTED, "--memory-budget: task %s has all of its network in memory; leave it out",
                       w->task->ops->name);
    if (!pager_is_needed(w->pager)) {
        pager_destroy(w->pager);
        w->pager = w->learner->place.pager = NULL;
        return TW_OK;
    }
    file_memory_use(pager_folder(w->pager));
    free(w->way);
    w->exchange = &paged_exchange;
    w->way = calloc(1, sizeof(paged_way));
    return w->way ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for a worker");
}

/* ---- steps ---- */

/* As clip_norm does it. */
static void paged_update(void *context, size_t begin, size_t end, float scale)
{
    worker *w = context;
    const paged_way *way = paged_way_of(w);
    for (size_t i = begin; i < end && scale != 1; i++) way->gradients[i] *= scale;
    optimiser_step_range(w->optimiser, begin, end, way->gradients, way->parameters);
}

tw_status paged_attach(worker *w)
{
    paged_way *way = paged_way_of(w);
    learner *l = w->learner;
    float *arrays[OPTIMISER_BUFFERS] = {0}, *shown[PAGER_STATES];
    way->parameters = l->parameters;
    way->gradients = l->gradients;
    way->squares = calloc(l->tensor_count, sizeof *way->squares);
    if (!way->squares) return tw_fail(TW_ERROR_MEMORY, "no memory for the norms of %zu tensors", l->tensor_count);
    size_t count = optimiser_arrays(w->optimiser, arrays);
    TW_TRY(pager_attach(w->pager, arrays, paged_update, w));
    for (size_t i = 0; i < count; i++) shown[i] = pager_state(w->pager, i);
    optimiser_show(w->optimiser, shown);
    l->parameters = pager_values(w->pager);
    return TW_OK;
}

static void paged_destroy(worker *w)
{
    free(paged_way_of(w)->squares);
}

/* What a checkpoint brought is in the file. */
static tw_status paged_begin(worker *w)
{
    return pager_reload(w->pager);
}

static tw_status paged_settle(worker *w)
{
    return pager_flush(w->pager);
}

static tw_status paged_submit(worker *w, size_t index, float *gradient)
{
    paged_way_of(w)->squares[index] = clip_squares(gradient, tw_tensor_count(&w->learner->tensors[index]));
    return TW_OK;
}

static tw_status paged_apply(worker *w, float rate)
{
    const double limit = w->settings.clip;
    paged_way *way = paged_way_of(w);
    double squares = 0;
    for (size_t i = 0; i < w->learner->tensor_count; i++) squares += way->squares[i];
    if (!(sqrt(squares) <= LARGEST_NORM)) {
        way->skipped++;
        TW_TRY(pager_step(w->pager, 1, 0));
        return tw_fail(TW_SKIPPED, "a gradient held NaN or infinity, or was above %g", LARGEST_NORM);
    }
    optimiser_begin(w->optimiser, rate);
    return pager_step(w->pager, limit > 0 ? clip_scale(squares, limit) : 1, 1);
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
    .settle = paged_settle,
    .share = paged_begin,
    .submit = paged_submit,
    .apply = paged_apply,
    .plan = paged_plan,
    .add_totals = paged_add_totals,
    .counts_hosts = 1,
    .save = paged_save,
};
