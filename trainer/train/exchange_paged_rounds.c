/* exchange_paged_rounds.c - local updates of workers whose weights are paged: after the last step of a round a group
 * meets the others' when it is brought in. The bits are those of a tw_outer with exchange=allreduce, whose equations
 * and whose state these are, too. */
#include "error.h"
#include "exchange_paged.h"
#include "pairs.h"
#include "scheme_text.h"
#include "tensor_table.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <thinwire/thinwire_outer.h>

#define OWN "own/"

typedef struct paged_rounds {
    paged_way base;
    double steps, met; /* how many there were, and elements in all rounds */
    float rate, momentum;
    int nesterov;
    uint64_t every, since, rounds; /* steps from one to the next, and since the last; and how many there were */
    int shown;                     /* the learner has the shared weights, and PAGED_THETA is this worker's own */
    int loaded, ended;             /* the second: its own are the shared ones */
} paged_rounds;

static paged_rounds *paged_rounds_of(const worker *w)
{
    return w->way;
}

tw_status paged_check_rounds(const char *sync)
{
    static const char *const known[] = {"every", "outer_lr", "outer_momentum", "nesterov"};
    const size_t length = strcspn(sync, ":");
    const char *rest = sync[length] ? sync + length + 1 : "";
    int knows = strncmp(sync, "local", length) == 0 || strncmp(sync, "diloco", length) == 0;
    for (pair next; knows && pair_next(&rest, &next);) {
        knows = 0;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) knows |= pair_has_key(&next, known[i]);
    }
    if (knows) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--memory-budget goes with --sync local and diloco and their options every, outer_lr, "
                   "outer_momentum and nesterov, and not with %s: what else is sent is in memory as a whole",
                   sync);
}

/* The library reads the spec: what it would refuse is refused in its words. */
static tw_status check_spec(const worker *w)
{
    static const tw_tensor number = {.name = "number"};
    tw_outer *outer = NULL;
    TW_TRY(tw_outer_create(w->comm, w->spec, &number, 1, &outer));
    tw_outer_destroy(outer);
    return TW_OK;
}

/* What `local` has no option for is as it is there. */
static float number_or(const worker *w, const char *option, float fixed)
{
    const double number = scheme_text_number(w->spec_in_full, option);
    return isnan(number) ? fixed : (float)number;
}

static tw_status paged_rounds_create(worker *w)
{
    paged_rounds *way = paged_rounds_of(w);
    TW_TRY(check_spec(w));
    way->every = (uint64_t)w->scheme_every;
    way->rate = number_or(w, "outer_lr", 1);
    way->momentum = number_or(w, "outer_momentum", 0);
    way->nesterov = scheme_text_is_on(w->spec_in_full, "nesterov");
    return TW_OK;
}

/* ---- a round ---- */

static void descend(const paged_rounds *way, const float *mean, float *v, float *theta, size_t count)
{
    const float rate = way->rate, momentum = way->momentum;
    for (size_t i = 0; i < count; i++) v[i] = momentum * v[i] + mean[i];
    for (size_t i = 0; i < count; i++) theta[i] -= rate * (way->nesterov ? mean[i] + momentum * v[i] : v[i]);
}

tw_status paged_meet(worker *w, size_t begin, size_t end)
{
    const double begun = tw_clock();
    paged_rounds *way = paged_rounds_of(w);
    const float share = (float)(1.0 / w->size);
    const size_t count = end - begin;
    float *own = way->base.parameters + begin, *theta = way->base.shared[PAGED_THETA] + begin;
    float *delta = way->base.gradients + begin; /* which have been used */
    for (size_t i = 0; i < count; i++) delta[i] = (theta[i] - own[i]) * share;
    TW_TRY(worker_sum(w, delta, count));
    if (!tensor_table_is_finite(delta, count))
        return worker_diverged(w, "what some worker's steps had come to was NaN or infinite");
    descend(way, delta, way->base.shared[PAGED_MOMENTUM] + begin, theta, count);
    memcpy(own, theta, count * sizeof *own);
    way->met += (double)count;
    w->now.values[TOTAL_SECONDS_EXCHANGE] += tw_clock() - begun;
    return TW_OK;
}

static void count_round(paged_rounds *way)
{
    way->since = 0;
    way->rounds++;
}

static int paged_rounds_meets(const worker *w)
{
    return paged_rounds_of(w)->since + 1 == paged_rounds_of(w)->every;
}

/* A step that is skipped is counted all the same: the others do not wait for one more. */
static tw_status paged_rounds_apply(worker *w, float rate)
{
    paged_rounds *way = paged_rounds_of(w);
    const double squares = paged_squares(w);
    const int finite = isfinite(squares), meets = ++way->since == way->every;
    way->steps++;
    if (meets) count_round(way);
    if (finite) paged_begin_step(w, rate, squares);
    TW_TRY(pager_step(w->pager, (finite ? PAGER_TAKE : 0) | (meets ? PAGER_MEET : 0)));
    if (finite) return TW_OK;
    if (meets) w->skipped_in_a_row = 0;
    way->base.skipped++;
    return TW_SKIPPED;
}

/* ---- the shared weights, and this worker's own ---- */

/* All of it, in the file. */
static float *own_weights(const worker *w)
{
    return paged_rounds_of(w)->shown ? pager_shared(w->pager, PAGED_THETA) : pager_values(w->pager);
}

static float *shared_weights(const worker *w)
{
    return paged_rounds_of(w)->shown ? pager_values(w->pager) : pager_shared(w->pager, PAGED_THETA);
}

/* Rank 0's weights are where all begin. */
static tw_status spread_start(const worker *w)
{
    enum { PIECE = 1 << 18 };
    const size_t all = w->learner->parameter_count;
    float *own = own_weights(w), *shared = shared_weights(w);
    for (size_t at = 0; at < all; at += PIECE) {
        const size_t count = all - at < PIECE ? all - at : PIECE;
        TW_TRY(tw_comm_broadcast(w->comm, 0, own + at, count * sizeof *own));
        memcpy(shared + at, own + at, count * sizeof *own);
        if (!tensor_table_is_finite(own + at, count))
            return tw_fail(TW_ERROR_ARGUMENT, "rank 0's weights, with which all begin, hold NaN or infinity");
        pager_forget(w->pager);
    }
    return TW_OK;
}

static tw_status paged_rounds_begin(worker *w)
{
    paged_rounds *way = paged_rounds_of(w);
    if (!way->loaded) TW_TRY(spread_start(w));
    way->loaded = way->ended = 0;
    return pager_reload(w->pager);
}

/* The last steps' round, where they have not had one. */
static tw_status paged_rounds_end(worker *w)
{
    const double begun = tw_clock();
    paged_rounds *way = paged_rounds_of(w);
    if (way->since > 0) {
        pager_meet(w->pager);
        count_round(way);
    }
    TW_TRY(pager_flush(w->pager));
    w->now.values[TOTAL_SECONDS_TRAINING] += tw_clock() - begun;
    way->ended = 1;
    return TW_OK;
}

static tw_status swap_shown(worker *w, int shown)
{
    paged_rounds *way = paged_rounds_of(w);
    if (way->ended || way->shown == shown) return TW_OK;
    TW_TRY(pager_swap(w->pager, PAGED_THETA));
    w->learner->parameters = pager_values(w->pager);
    way->shown = shown;
    return TW_OK;
}

static tw_status paged_rounds_show_shared(worker *w)
{
    return swap_shown(w, 1);
}

static tw_status paged_rounds_show_own(worker *w)
{
    return swap_shown(w, 0);
}

/* ---- counts, and checkpoints ---- */

static const char *paged_rounds_plan(const worker *w, size_t index)
{
    (void)w, (void)index;
    return "allreduce";
}

static tw_status paged_rounds_add_totals(const worker *w, totals *sums)
{
    const paged_rounds *way = paged_rounds_of(w);
    double *v = sums->values;
    v[TOTAL_STEPS_SKIPPED] += way->base.skipped;
    v[TOTAL_BYTES_DENSE] += floor(8.0 * (w->size - 1) / w->size * (double)w->learner->parameter_count * way->steps);
    v[TOTAL_MESSAGE_FP32] += way->met * sizeof(float);
    v[TOTAL_MESSAGE_PACKET] += way->met * sizeof(float);
    v[TOTAL_ELEMENTS_SENT] += way->met;
    v[TOTAL_ELEMENTS] += way->met;
    return TW_OK;
}

/* The numbers that a tw_outer saves: it takes delay steps for a round, which here is none, and heals nobody. */
enum { ROUND, SINCE, HAS_ARRIVED, MOVED, HEALS, NUMBERS };

static const char *name_in(char name[256], const char *prefix, const char *what)
{
    snprintf(name, 256, "%s%s", prefix, what);
    return name;
}

static tw_status paged_rounds_save(worker *w, const char *prefix, tw_state *state)
{
    char name[256];
    const learner *l = w->learner;
    const paged_rounds *way = paged_rounds_of(w);
    const uint64_t numbers[NUMBERS] = {[ROUND] = way->rounds, [SINCE] = way->since, [MOVED] = way->since > 0};
    TW_TRY(tensor_table_put(state, OWN, l->tensors, l->tensor_count, own_weights(w)));
    TW_TRY(tw_state_put(state, name_in(name, prefix, "outer/numbers"), TW_U64, 1, (size_t[]){NUMBERS}, numbers));
    TW_TRY(
        tw_state_put(state, name_in(name, prefix, "exchange0/scheme/steps"), TW_U64, 1, (size_t[]){1}, &way->rounds));
    TW_TRY(tensor_table_put(state, name_in(name, prefix, "theta/"), l->tensors, l->tensor_count, shared_weights(w)));
    return tensor_table_put(state, name_in(name, prefix, "outer_momentum/"), l->tensors, l->tensor_count,
                            pager_shared(w->pager, PAGED_MOMENTUM));
}

static tw_status read_shared(const worker *w, const char *prefix, const char *what, const tw_state *state, float *read)
{
    char name[256];
    const learner *l = w->learner;
    TW_TRY(tensor_table_get(state, name_in(name, prefix, what), l->tensors, l->tensor_count, read));
    return tensor_table_check_finite(l->tensors, l->tensor_count, read);
}

/* What all workers have alike. */
static tw_status load_shared(worker *w, const char *prefix, const tw_state *state)
{
    char name[256];
    uint64_t numbers[NUMBERS];
    paged_rounds *way = paged_rounds_of(w);
    TW_TRY(tw_state_get(state, name_in(name, prefix, "outer/numbers"), TW_U64, NUMBERS, numbers));
    if (numbers[SINCE] >= way->every || numbers[HAS_ARRIVED] || numbers[HEALS])
        return tw_fail(TW_ERROR_STATE, "its %s are not those of a run with --sync %s", name, w->spec);
    way->rounds = numbers[ROUND];
    way->since = numbers[SINCE];
    way->loaded = 1;
    TW_TRY(read_shared(w, prefix, "theta/", state, shared_weights(w)));
    return read_shared(w, prefix, "outer_momentum/", state, pager_shared(w->pager, PAGED_MOMENTUM));
}

static tw_status paged_rounds_load(worker *w, const char *prefix, const tw_state *state)
{
    const learner *l = w->learner;
    TW_TRY(tensor_table_get(state, OWN, l->tensors, l->tensor_count, own_weights(w)));
    return load_shared(w, prefix, state);
}

/* All begin at the shared weights. */
static tw_status paged_rounds_regroup(worker *w, int workers, const char *prefix, tw_state_source source, void *context,
                                      tw_state *state)
{
    const tw_state *any = NULL;
    (void)state;
    TW_TRY(worker_take_optimiser(w, workers, source, context));
    for (int rank = 0; rank < workers && !any; rank++) TW_TRY(source(context, rank, &any));
    if (!any) return tw_fail(TW_ERROR_ARGUMENT, "no old worker's file is there");
    TW_TRY(load_shared(w, prefix, any));
    memcpy(own_weights(w), shared_weights(w), w->learner->parameter_count * sizeof(float));
    return TW_OK;
}

const exchange paged_rounds_exchange = {
    .side_by_side = 1,
    .counts_hosts = 1,
    .bytes = sizeof(paged_rounds),
    .create = paged_rounds_create,
    .destroy = paged_destroy,
    .begin = paged_rounds_begin,
    .end = paged_rounds_end,
    .show_shared = paged_rounds_show_shared,
    .show_own = paged_rounds_show_own,
    .meets = paged_rounds_meets,
    .submit = paged_submit,
    .apply = paged_rounds_apply,
    .plan = paged_rounds_plan,
    .add_totals = paged_rounds_add_totals,
    .save = paged_rounds_save,
    .load = paged_rounds_load,
    .regroup = paged_rounds_regroup,
};
