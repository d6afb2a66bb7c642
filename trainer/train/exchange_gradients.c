/* exchange_gradients.c - a reducer makes the mean of all workers' gradients, and every replica takes the same step. */
#include "exchange_gradients.h"
#include "clip.h"
#include "error.h"
#include "exchange.h"
#include "scheme_text.h"
#include <stdlib.h>
#include <thinwire/thinwire_plan.h>

static tw_status create_reducer(const worker *w)
{
    const learner *l = w->learner;
    return tw_reducer_create(w->comm, w->spec, l->tensors, l->tensor_count, &((gradients_way *)w->way)->reducer);
}

/* A scheme that applies momentum itself would do so with a momentum of its own choice. Where the run has none, and
 * --sync does not speak of it, the scheme has none either. */
static tw_status exchange_gradients_create(worker *w)
{
    const train_settings *s = &w->settings;
    gradients_way *way = w->way;
    TW_TRY(create_reducer(w));
    if (s->momentum > 0 || tw_reducer_momentum(way->reducer, NULL) == 0 || scheme_text_sets(s->sync, "momentum"))
        return TW_OK;
    char *with_momentum = w->spec;
    tw_reducer_destroy(way->reducer);
    way->reducer = NULL;
    w->spec = scheme_text_with(with_momentum, "momentum", "0");
    free(with_momentum);
    return w->spec ? create_reducer(w) : tw_fail(TW_ERROR_MEMORY, "no memory for the spec of --sync");
}

static void exchange_gradients_destroy(worker *w)
{
    tw_reducer_destroy(reducer_of(w));
}

static float momentum(const worker *w, int *nesterov)
{
    return tw_reducer_momentum(reducer_of(w), nesterov);
}

/* Rank 0's parameters and momentum go to every rank, so that all begin from the same bits. */
static tw_status exchange_gradients_begin(worker *w)
{
    optimiser_buffer buffers[OPTIMISER_BUFFERS];
    size_t count = optimiser_buffers(w->optimiser, buffers);
    TW_TRY(tw_comm_broadcast(w->comm, 0, w->learner->parameters, w->learner->parameter_count * sizeof(float)));
    for (size_t i = 0; i < count; i++)
        TW_TRY(tw_comm_broadcast(w->comm, 0, buffers[i].values, buffers[i].count * sizeof(float)));
    return TW_OK;
}

static tw_status set_rate(worker *w, float rate)
{
    return tw_reducer_set_rate(reducer_of(w), rate);
}

static tw_status exchange_gradients_submit(worker *w, size_t index, float *gradient)
{
    return tw_reducer_submit(reducer_of(w), index, gradient);
}

static tw_status exchange_gradients_apply(worker *w, float rate)
{
    TW_TRY(tw_reducer_wait(reducer_of(w)));
    for (size_t i = 0; w->pending && i < w->learner->parameter_count; i++) w->learner->gradients[i] += w->pending[i];
    if (w->settings.clip > 0 && w->own_clip == 0)
        clip_norm(w->learner->tensors, w->learner->tensor_count, w->learner->gradients, w->settings.clip);
    return optimiser_step(w->optimiser, rate, w->learner->gradients, w->learner->parameters);
}

static const char *exchange_gradients_plan(const worker *w, size_t index)
{
    return tw_reducer_plan(reducer_of(w), index);
}

static tw_status exchange_gradients_add_totals(const worker *w, totals *sums)
{
    tw_reducer_counts stats = {.struct_size = sizeof stats};
    TW_TRY(tw_reducer_stats(reducer_of(w), &stats));
    EXCHANGE_ADD_COUNTS(sums->values, &stats);
    sums->values[TOTAL_STEPS_SKIPPED] += (double)stats.steps_skipped;
    return TW_OK;
}

static tw_status exchange_gradients_hand_over(worker *w, float *const *gradients)
{
    return tw_reducer_hand_over(reducer_of(w), gradients);
}

static tw_status exchange_gradients_take_over(worker *w, float *const *gradients)
{
    TW_TRY(set_rate(w, (float)schedule_rate(&w->schedule, w->step)));
    for (size_t i = 0; i < w->learner->tensor_count; i++) TW_TRY(exchange_gradients_submit(w, i, gradients[i]));
    tw_status status = tw_reducer_wait(reducer_of(w));
    return status == TW_SKIPPED ? worker_diverged(w, "what --sync had held back is NaN or infinite") : status;
}

static tw_status exchange_gradients_save(worker *w, const char *prefix, tw_state *state)
{
    return tw_reducer_save_state(reducer_of(w), prefix, state);
}

static tw_status exchange_gradients_load(worker *w, const char *prefix, const tw_state *state)
{
    return tw_reducer_load_state(reducer_of(w), prefix, state);
}

static tw_status exchange_gradients_regroup(worker *w, int workers, const char *prefix, tw_state_source source,
                                            void *context, tw_state *state)
{
    const learner *l = w->learner;
    TW_TRY(tw_reducer_regroup_state(w->spec, l->tensors, l->tensor_count, workers, source, context, w->rank, w->size,
                                    prefix, state));
    return exchange_gradients_load(w, prefix, state);
}

const exchange gradients_exchange = {
    .schemes = {.what = "gradients",
                .count = tw_schemes_count,
                .name = tw_schemes_name,
                .summary = tw_schemes_summary,
                .option_count = tw_schemes_option_count,
                .option = tw_schemes_option,
                .help = tw_schemes_help,
                .is_experimental = tw_schemes_is_experimental},
    .replicas = 1,
    .counts_hosts = 1,
    .bytes = sizeof(gradients_way),
    .create = exchange_gradients_create,
    .destroy = exchange_gradients_destroy,
    .momentum = momentum,
    .begin = exchange_gradients_begin,
    .set_rate = set_rate,
    .submit = exchange_gradients_submit,
    .apply = exchange_gradients_apply,
    .plan = exchange_gradients_plan,
    .add_totals = exchange_gradients_add_totals,
    .hand_over = exchange_gradients_hand_over,
    .take_over = exchange_gradients_take_over,
    .save = exchange_gradients_save,
    .load = exchange_gradients_load,
    .regroup = exchange_gradients_regroup,
};
