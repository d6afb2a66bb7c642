/* exchange_updates.c - each worker takes steps of its own, and once in a while all take the mean of what these came to
 * as the gradient of an outer step on weights that they share. */
#include "agree.h"
#include "clip.h"
#include "error.h"
#include "exchange.h"
#include "scheme_text.h"
#include "tensor_table.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_outer.h>

#define OWN "own/"
#define NUMBERS "outer/numbers" /* of a loop's state: the rounds, the steps since the last, and what is a rank's own */

enum { MOMENTS = 2 }; /* the first buffers of an optimiser */
enum { NUMBER_SINCE = 1, NUMBER_COUNT = 5 };

typedef struct updates_way {
    tw_outer *outer;
    float **weights, **gradients; /* the learner's, by tensor */
    float **moments[MOMENTS];     /* the optimiser's, likewise; NULL: it has none */
    float *own; /* this worker's weights while the learner has the shared ones, and as they were loaded */
    int loaded, ended, shown;
    tw_state *kept; /* where workers come and go: what the last round left, from which one that fails is made again */
} updates_way;

static updates_way *exchange_updates_way_of(const worker *w)
{
    return w->way;
}

static tw_status refuse_for_group(const worker *w, const char *option, const char *fits)
{
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--sync %s: where workers come and go it takes %s%s; or give --workers N, who stay",
                   w->settings.sync, option, fits);
}

static tw_status exchange_updates_check(const worker *w)
{
    if (!w->settings.changing || !scheme_text_sets(w->settings.sync, "per_host")) return TW_OK;
    return refuse_for_group(w, "no per_host", "");
}

/* Between two rounds a group may change, and in them nothing else is under way. The options are the method's by now. */
static tw_status check_rounds(const worker *w)
{
    static const char *const unfit[] = {"delay", "first_moment", "second_moment"};
    const char *full = w->settings.sync_in_full;
    if (!w->settings.changing) return TW_OK;
    for (size_t i = 0; i < sizeof unfit / sizeof *unfit; i++)
        if (scheme_text_number(full, unfit[i]) > 0) return refuse_for_group(w, unfit[i], "=0");
    return scheme_text_is_on(full, "eager") ? refuse_for_group(w, "eager", "=off") : TW_OK;
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
    TW_TRY(check_rounds(w));
    return exchange_updates_make_room(w);
}

static void exchange_updates_destroy(worker *w)
{
    updates_way *way = exchange_updates_way_of(w);
    tw_outer_destroy(way->outer);
    tw_state_destroy(way->kept);
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

static tw_status keep(const worker *w)
{
    updates_way *way = exchange_updates_way_of(w);
    if (!w->settings.changing) return TW_OK;
    tw_state_destroy(way->kept);
    way->kept = NULL;
    TW_TRY(tw_state_create(&way->kept));
    return tw_outer_save_apart(way->outer, "", way->kept);
}

static double period(const worker *w)
{
    const double fragments = scheme_text_number(w->spec_in_full, "fragments");
    return w->scheme_every / (fragments > 0 ? fragments : 1);
}

static tw_status end_round(worker *w)
{
    w->taken = 0;
    w->rounds++;
    return keep(w);
}

/* In the generation before, a round did not come about, or was cut off: each gives what it has for it. */
static tw_status give_owed(worker *w)
{
    updates_way *way = exchange_updates_way_of(w);
    tw_outer_event event;
    if (!w->owes) return TW_OK;
    TW_TRY(tw_outer_set_weight(way->outer, (double)w->taken / period(w)));
    TW_TRY(tw_outer_step(way->outer, way->weights, &event));
    w->owes = 0;
    TW_TRY(tw_outer_set_weight(way->outer, 1));
    return end_round(w);
}

static tw_status exchange_updates_begin(worker *w)
{
    updates_way *way = exchange_updates_way_of(w);
    if (way->loaded) exchange_updates_copy(w, way->own, w->learner->parameters);
    way->loaded = way->ended = 0;
    TW_TRY(show_moments(w));
    TW_TRY(tw_outer_begin(way->outer, way->weights));
    TW_TRY(keep(w));
    return give_owed(w);
}

static tw_status exchange_updates_end(worker *w)
{
    updates_way *way = exchange_updates_way_of(w);
    double begun = tw_clock();
    int any =
        w->taken > 0 || scheme_text_number(w->spec_in_full, "fragments") > 1; /* else all stand at theta already */
    tw_status status = tw_outer_finish(way->outer, way->weights);
    if (status == TW_SKIPPED)
        return worker_diverged(w, "the last round came to nothing, as what was to be sent was too large");
    TW_TRY(status);
    w->now.values[TOTAL_SECONDS_TRAINING] += tw_clock() - begun;
    exchange_updates_copy(w, w->learner->parameters, way->own);
    way->ended = 1;
    return any ? end_round(w) : TW_OK;
}

static tw_status show_shared(worker *w)
{
    updates_way *way = exchange_updates_way_of(w);
    if (way->ended) return TW_OK;
    exchange_updates_copy(w, w->learner->parameters, way->own);
    way->shown = 1;
    return tw_outer_read(way->outer, way->weights);
}

static tw_status show_own(worker *w)
{
    updates_way *way = exchange_updates_way_of(w);
    if (way->shown) exchange_updates_copy(w, way->own, w->learner->parameters);
    way->shown = 0;
    return TW_OK;
}

static int meets(const worker *w)
{
    return tw_outer_is_due(exchange_updates_way_of(w)->outer);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* A step whose round does not come about is taken all the same: the next generation makes the round again. */
static tw_status meet(worker *w, tw_outer_event *event)
{
    updates_way *way = exchange_updates_way_of(w);
    int ends = meets(w);
    w->taken++;
    tw_status status = tw_outer_step(way->outer, way->weights, event);
    if (status == TW_ERROR_PEER && w->settings.changing) w->step++;
    TW_TRY(status);
    return ends ? end_round(w) : TW_OK;
}

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
    TW_TRY(meet(w, &event));
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

static tw_status last_round(const worker *w, round_figures *figures)
{
    tw_outer_counts stats = {.struct_size = sizeof stats};
    TW_TRY(tw_outer_stats(exchange_updates_way_of(w)->outer, &stats));
    *figures = (round_figures){.rounds = (double)stats.rounds,
                               .empty = (double)stats.rounds_empty,
                               .unstable = (double)stats.rounds_unstable,
                               .cosine = stats.cosine,
                               .gain = stats.gain,
                               .energy = stats.energy};
    return TW_OK;
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

static tw_status join_name(const char *prefix, const char *name, char text[1024])
{
    int length = snprintf(text, 1024, "%s%s", prefix, name);
    return length < 1024 ? TW_OK : tw_fail(TW_ERROR_ARGUMENT, "the name %.100s... is too long", name);
}

/* So many steps since the last round, as all ranks have to say alike. */
static tw_status put_since(const char *prefix, uint64_t since, tw_state *state)
{
    char name[1024];
    uint64_t numbers[NUMBER_COUNT];
    TW_TRY(join_name(prefix, NUMBERS, name));
    TW_TRY(tw_state_get(state, name, TW_U64, NUMBER_COUNT, numbers));
    numbers[NUMBER_SINCE] = since;
    return tw_state_put(state, name, TW_U64, 1, (size_t[]){NUMBER_COUNT}, numbers);
}

/* As the loop would save it, if it did not stand in a round that does not come about. */
static tw_status save_kept(const worker *w, const char *prefix, tw_state *state)
{
    char name[1024];
    tw_state_entry entry;
    const tw_state *kept = exchange_updates_way_of(w)->kept;
    for (size_t i = 0; i < tw_state_count(kept); i++) {
        TW_TRY(tw_state_at(kept, i, &entry));
        TW_TRY(join_name(prefix, entry.name, name));
        TW_TRY(tw_state_put(state, name, entry.dtype, entry.dims, entry.shape, entry.data));
    }
    return put_since(prefix, (uint64_t)fmin((double)w->taken, period(w) - 1), state);
}

static tw_status exchange_updates_save(worker *w, const char *prefix, tw_state *state)
{
    const learner *l = w->learner;
    const updates_way *way = exchange_updates_way_of(w);
    TW_TRY(
        tensor_table_put(state, OWN, l->tensors, l->tensor_count, way->shown || way->ended ? way->own : l->parameters));
    return way->kept ? save_kept(w, prefix, state) : tw_outer_save_state(way->outer, prefix, state);
}

static tw_status take_since(worker *w, const char *prefix, const tw_state *state)
{
    char name[1024];
    uint64_t numbers[NUMBER_COUNT];
    TW_TRY(join_name(prefix, NUMBERS, name));
    TW_TRY(tw_state_get(state, name, TW_U64, NUMBER_COUNT, numbers));
    w->rounds = numbers[0];
    w->taken = numbers[NUMBER_SINCE];
    return TW_OK;
}

static tw_status exchange_updates_load(worker *w, const char *prefix, const tw_state *state)
{
    const learner *l = w->learner;
    updates_way *way = exchange_updates_way_of(w);
    TW_TRY(tensor_table_get(state, OWN, l->tensors, l->tensor_count, way->own));
    TW_TRY(tw_outer_load_state(way->outer, prefix, state));
    way->loaded = 1;
    return take_since(w, prefix, state);
}

static int is_held_back(const char *name, const char *prefix)
{
    static const char held[] = "exchange";
    return strncmp(name + strlen(prefix), held, sizeof held - 1) == 0;
}

static tw_status exchange_updates_give_held(const worker *w, tw_state *held)
{
    tw_state_entry entry;
    const tw_state *kept = exchange_updates_way_of(w)->kept;
    for (size_t i = 0; i < tw_state_count(kept); i++) {
        TW_TRY(tw_state_at(kept, i, &entry));
        if (!is_held_back(entry.name, "")) continue;
        TW_TRY(tw_state_put(held, entry.name, entry.dtype, entry.dims, entry.shape, entry.data));
    }
    return TW_OK;
}

typedef struct pair {
    int rank;
    const tw_state *own, *theirs;
} pair;

static tw_status find_of_pair(void *context, int rank, const tw_state **state)
{
    const pair *two = context;
    *state = rank == 2 * two->rank ? two->own : rank == 2 * two->rank + 1 ? two->theirs : NULL;
    return TW_OK;
}

/* This worker and the one that leaves are two of twice as many, and become one. */
static tw_status exchange_updates_take_held(worker *w, const tw_state *held)
{
    const learner *l = w->learner;
    updates_way *way = exchange_updates_way_of(w);
    pair two = {w->rank, way->kept, held};
    tw_state *made;
    TW_TRY(tw_state_create(&made));
    if (tw_outer_regroup_state(w->spec, l->tensors, l->tensor_count, 2 * w->size, find_of_pair, &two, w->rank, w->size,
                               "", made) != TW_OK) {
        fprintf(stderr, "thinwire: what a worker that leaves held back has no place on another, and is dropped\n");
        tw_state_destroy(made);
        return TW_OK;
    }
    tw_state_destroy(way->kept);
    way->kept = made;
    return TW_OK;
}

static tw_status bring(const worker *w, const char *prefix, const tw_state *own, float *const *places, tw_state *given)
{
    const learner *l = w->learner;
    float *weights = exchange_updates_way_of(w)->own;
    TW_TRY(tensor_table_get(own, OWN, l->tensors, l->tensor_count, weights));
    TW_TRY(tw_outer_rebase(w->spec, l->tensors, l->tensor_count, prefix, own, given, places));
    return tensor_table_put(given, OWN, l->tensors, l->tensor_count, weights);
}

/* The weights are as far from the group's as they were from those of the last round here. */
static tw_status exchange_updates_bring(const worker *w, const char *prefix, const tw_state *own, tw_state *given)
{
    const learner *l = w->learner;
    float **places = calloc(l->tensor_count, sizeof *places);
    if (!places) return tw_fail(TW_ERROR_MEMORY, "no memory for the places of the weights");
    tensor_table_place(l->tensors, l->tensor_count, exchange_updates_way_of(w)->own, places);
    tw_status status = bring(w, prefix, own, places, given);
    free(places);
    return status;
}

/* What is shared, out of an old state; what the exchange holds back is what a new loop's does. */
static tw_status take_shared(const worker *w, const tw_state *from, const char *prefix, tw_state *state)
{
    tw_state_entry entry;
    TW_TRY(tw_outer_save_state(exchange_updates_way_of(w)->outer, prefix, state));
    for (size_t i = 0; i < tw_state_count(from); i++) {
        TW_TRY(tw_state_at(from, i, &entry));
        if (strncmp(entry.name, prefix, strlen(prefix)) != 0 || is_held_back(entry.name, prefix)) continue;
        TW_TRY(tw_state_put(state, entry.name, entry.dtype, entry.dims, entry.shape, entry.data));
    }
    return TW_OK;
}

/* In a group that changes each keeps what it held back, if that has a place with all of them; else all begin without.
 * The round that they owe is due in the next step. */
static tw_status settle(worker *w, tw_status regrouped, tw_state_source source, void *context, const char *prefix,
                        tw_state *state)
{
    const tw_state *from = NULL;
    int misfit = regrouped != TW_OK;
    TW_TRY(agree_any(w->comm, &misfit));
    if (misfit) {
        if (w->rank == 0)
            fprintf(stderr, "thinwire: what the exchange held back has no place among %d workers, and is dropped\n",
                    w->size);
        for (int old = 0; !from && old < w->size; old++) TW_TRY(source(context, old, &from));
        TW_TRY(take_shared(w, from, prefix, state));
    }
    return put_since(prefix, w->owes ? (uint64_t)period(w) - 1 : 0, state);
}

/* All go on from the shared weights; in a group that changes, who was there before goes on from its own. */
static tw_status take_own(const worker *w, tw_state_source source, void *context, const char *prefix,
                          const tw_state *made)
{
    const learner *l = w->learner;
    const tw_state *old = NULL;
    float *own = exchange_updates_way_of(w)->own;
    char name[1024];
    if (w->settings.changing) TW_TRY(source(context, w->rank, &old));
    if (old) return tensor_table_get(old, OWN, l->tensors, l->tensor_count, own);
    TW_TRY(join_name(prefix, "theta/", name));
    return tensor_table_get(made, name, l->tensors, l->tensor_count, own);
}

static tw_status exchange_updates_regroup(worker *w, int workers, const char *prefix, tw_state_source source,
                                          void *context, tw_state *state)
{
    const learner *l = w->learner;
    updates_way *way = exchange_updates_way_of(w);
    TW_TRY(worker_take_optimiser(w, workers, source, context));
    tw_status status = tw_outer_regroup_state(w->spec, l->tensors, l->tensor_count, workers, source, context, w->rank,
                                              w->size, prefix, state);
    if (w->settings.changing) status = settle(w, status, source, context, prefix, state);
    TW_TRY(status);
    TW_TRY(tw_outer_load_state(way->outer, prefix, state));
    way->loaded = 1;
    return take_own(w, source, context, prefix, state);
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
    .check = exchange_updates_check,
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
    .last_round = last_round,
    .give_held = exchange_updates_give_held,
    .take_held = exchange_updates_take_held,
    .bring = exchange_updates_bring,
    .save = exchange_updates_save,
    .load = exchange_updates_load,
    .regroup = exchange_updates_regroup,
};
