/* exchange_updates.c - each worker takes steps of its own, and once in a while all take the mean of what these came to
 * as the gradient of an outer step on weights that they share. */
#include "clip.h"
#include "error.h"
#include "exchange.h"
#include "tensor_table.h"
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_outer.h>

#define OWN "own/"

enum { MOMENTS = 2 }; /* the first buffers of an optimiser */

typedef struct updates_way {
    tw_outer *outer;
    float **weights, **gradients; /* the learner's, by tensor */
    float **moments[MOMENTS];     /* the optimiser's, likewise; NULL: it has none */
    float *own; /* this worker's weights while the learner has the shared ones, and as they were loaded */
    int loaded, ended;
} updates_way;

static updates_way *exchange_updates_way_of(const worker *w)
{
    return w->way;
}

static tw_status exchange_updates_make_room(worker *w)
{
    updates_way *way = exchange_updates_way_of(w);
    const learner *l = w->learner;
    way->weights = calloc(l->tensor_count, sizeof *way->weights);
    way->gradients = calloc(l->tensor_count, sizeof *way->gradients);
    way->own = calloc(l->parameter_count, sizeof *way->own);
    if (!way->weights || !way->gradients || !way->own)
        return tw_fail(TW_ERROR_MEMORY, "no memory for a second copy of the weights");
    tensor_table_place(l->tensors, l->tensor_count, l->parameters, way->weights);
    tensor_table_place(l->tensors, l->tensor_count, l->gradients, way->gradients);
    return TW_OK;
}

/* For specs that average them. */
static tw_status show_moments(worker *w)
{
    updates_way *way = exchange_updates_way_of(w);
    optimiser_buffer buffers[OPTIMISER_BUFFERS];
    size_t count = optimiser_buffers(w->optimiser, buffers);
    for (size_t i = 0; i < MOMENTS && i < count; i++) {
        if (!way->moments[i]) way->moments[i] = calloc(buffers[i].tensor_count, sizeof *way->moments[i]);
        if (!way->moments[i]) return tw_fail(TW_ERROR_MEMORY, "no memory for the places of the optimiser's moments");
        tensor_table_place(buffers[i].tensors, buffers[i].tensor_count, buffers[i].values, way->moments[i]);
    }
    return tw_outer_show_moments(way->outer, way->moments[0], way->moments[1]);
}

static tw_status exchange_updates_create(worker *w)
{
    const learner *l = w->learner;
    TW_TRY(tw_outer_create(w->comm, w->spec, l->tensors, l->tensor_count, &exchange_updates_way_of(w)->outer));
    return exchange_updates_make_room(w);
}

static void exchange_updates_destroy(worker *w)
{
    updates_way *way = exchange_updates_way_of(w);
    tw_outer_destroy(way->outer);
    for (int i = 0; i < MOMENTS; i++) free(way->moments[i]);
    free(way->weights);
    free(way->gradients);
    free(way->own);
}

/* ---- the shared weights, and this worker's own ------------------------------------------------------------------- */

static void exchange_updates_copy(const worker *w, const float *from, float *to)
{
    memcpy(to, from, w->learner->parameter_count * sizeof *to);
}

static tw_status exchange_updates_begin(worker *w)
{
    updates_way *way = exchange_updates_way_of(w);
    if (way->loaded) exchange_updates_copy(w, way->own, w->learner->parameters);
    way->loaded = way->ended = 0;
    TW_TRY(show_moments(w));
    return tw_outer_begin(way->outer, way->weights);
}

static tw_status exchange_updates_end(worker *w)
{
    updates_way *way = exchange_updates_way_of(w);
    double begun = tw_clock();
    tw_status status = tw_outer_finish(way->outer, way->weights);
    if (status == TW_SKIPPED)
        return worker_diverged(w, "the last round came to nothing, as what was to be sent was too large");
    TW_TRY(status);
    w->now.values[TOTAL_SECONDS_TRAINING] += tw_clock() - begun;
    exchange_updates_copy(w, w->learner->parameters, way->own);
    way->ended = 1;
    return TW_OK;
}

static tw_status show_shared(worker *w)
{
    updates_way *way = exchange_updates_way_of(w);
    if (way->ended) return TW_OK;
    exchange_updates_copy(w, w->learner->parameters, way->own);
    return tw_outer_read(way->outer, way->weights);
}

static tw_status show_own(worker *w)
{
    exchange_updates_copy(w, exchange_updates_way_of(w)->own, w->learner->parameters);
    return TW_OK;
}

static int meets(const worker *w)
{
    return tw_outer_is_due(exchange_updates_way_of(w)->outer);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* A step that is skipped is counted all the same: the others do not wait for one more. */
static tw_status exchange_updates_apply(worker *w, float rate)
{
    const learner *l = w->learner;
    updates_way *way = exchange_updates_way_of(w);
    tw_outer_event event;
    TW_TRY(tw_outer_average(way->outer, way->gradients));
    int finite = tensor_table_is_finite(l->gradients, l->parameter_count);
    if (finite && w->settings.clip > 0) clip_norm(l->tensors, l->tensor_count, l->gradients, w->settings.clip);
    if (finite) TW_TRY(optimiser_step(w->optimiser, rate, l->gradients, l->parameters));
    TW_TRY(tw_outer_step(way->outer, way->weights, &event));
    if (finite) return TW_OK;
    if (event == TW_OUTER_APPLIED) w->skipped_in_a_row = 0; /* the weights have been healed */
    w->now.values[TOTAL_STEPS_SKIPPED]++;
    return TW_SKIPPED;
}

static const char *exchange_updates_plan(const worker *w, size_t index)
{
    return tw_outer_plan(exchange_updates_way_of(w)->outer, index);
}

static tw_status exchange_updates_add_totals(const worker *w, totals *sums)
{
    tw_outer_counts stats = {.struct_size = sizeof stats};
    TW_TRY(tw_outer_stats(exchange_updates_way_of(w)->outer, &stats));
    EXCHANGE_ADD_COUNTS(sums->values, &stats);
    return TW_OK;
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

static tw_status exchange_updates_save(worker *w, const char *prefix, tw_state *state)
{
    const learner *l = w->learner;
    const updates_way *way = exchange_updates_way_of(w);
    TW_TRY(tensor_table_put(state, OWN, l->tensors, l->tensor_count, way->own));
    return tw_outer_save_state(way->outer, prefix, state);
}

static tw_status exchange_updates_load(worker *w, const char *prefix, const tw_state *state)
{
    const learner *l = w->learner;
    updates_way *way = exchange_updates_way_of(w);
    TW_TRY(tensor_table_get(state, OWN, l->tensors, l->tensor_count, way->own));
    TW_TRY(tw_outer_load_state(way->outer, prefix, state));
    way->loaded = 1;
    return TW_OK;
}

static tw_status exchange_updates_regroup(worker *w, int workers, const char *prefix, tw_state_source source,
                                          void *context, tw_state *state)
{
    const learner *l = w->learner;
    updates_way *way = exchange_updates_way_of(w);
    TW_TRY(exchange_take_optimiser(w, workers, source, context));
    TW_TRY(tw_outer_regroup_state(w->spec, l->tensors, l->tensor_count, workers, source, context, w->rank, w->size,
                                  prefix, state));
    TW_TRY(tw_outer_load_state(way->outer, prefix, state));
    exchange_updates_copy(w, l->parameters, way->own); /* the checkpoint's, which are the shared ones */
    way->loaded = 1;
    return TW_OK;
}

const exchange updates_exchange = {
    .schemes = {.what = "local updates",
                .count = tw_outers_count,
                .name = tw_outers_name,
                .summary = tw_outers_summary,
                .option_count = tw_outers_option_count,
                .option = tw_outers_option,
                .help = tw_outers_help},
    .side_by_side = 1,
    .counts_hosts = 1,
    .bytes = sizeof(updates_way),
    .create = exchange_updates_create,
    .destroy = exchange_updates_destroy,
    .begin = exchange_updates_begin,
    .end = exchange_updates_end,
    .show_shared = show_shared,
    .show_own = show_own,
    .meets = meets,
    .apply = exchange_updates_apply,
    .plan = exchange_updates_plan,
    .add_totals = exchange_updates_add_totals,
    .save = exchange_updates_save,
    .load = exchange_updates_load,
    .regroup = exchange_updates_regroup,
};
