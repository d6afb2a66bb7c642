/* exchange_weights.c - each worker trains weights of its own, which a gossip draws towards the others'. */
#include "agree.h"
#include "error.h"
#include "exchange.h"
#include "scheme_text.h"
#include "tensor_table.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_gossip.h>

typedef struct weights_way {
    tw_gossip *gossip;            /* between begin and end */
    float **weights, **gradients; /* the learner's, by tensor */
    uint64_t lost;                /* workers whom the others go on without, since they met last */
    tw_comm **narrowed;           /* the comms of those that were left each time, the worker's last */
    size_t narrowed_count;
} weights_way;

static weights_way *exchange_weights_way_of(const worker *w)
{
    return w->way;
}

/* After a meeting a gossip begins anew, and with it the round of one that takes many steps to it. */
static tw_status check_rounds(const worker *w)
{
    const train_settings *s = &w->settings;
    const double every = w->scheme_every; /* NaN: it meets in each step */
    if (!(every > 0 && s->out && s->checkpoint_every > 0) || fmod((double)s->checkpoint_every, every) == 0)
        return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--checkpoint-every %ld: the workers meet for a checkpoint, which would cut a round of --sync %s "
                   "short; write a multiple of its every=%g",
                   s->checkpoint_every, s->sync, every);
}

static tw_status exchange_weights_check(const worker *w)
{
    const train_settings *s = &w->settings;
    TW_TRY(check_rounds(w));
    if (w->schedule.kind == SCHEDULE_PLATEAU)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--schedule %s needs a validation loss that all workers share, which they have only at the end "
                       "with --sync %s; use constant, cosine, step or decay",
                       s->schedule, s->sync);
    if (s->expect_ratio == 0) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--expect-ratio %g: --sync %s exchanges weights, not compressed gradients, so it has no message "
                   "ratio; leave the option out, and look at ratio.traffic of the summary",
                   s->expect_ratio, s->sync);
}

static void exchange_weights_destroy(worker *w)
{
    weights_way *way = exchange_weights_way_of(w);
    tw_gossip_destroy(way->gossip);
    while (way->narrowed_count > 0) tw_comm_destroy(way->narrowed[--way->narrowed_count]);
    free(way->narrowed);
    free(way->weights);
    free(way->gradients);
}

/* ---- beginning --------------------------------------------------------------------------------------------------- */

/* Where each tensor stands in a flat array; the caller frees it. */
static float **point_into(const learner *l, float *values)
{
    float **tensors = calloc(l->tensor_count, sizeof *tensors);
    if (tensors) tensor_table_place(l->tensors, l->tensor_count, values, tensors);
    return tensors;
}

static tw_status exchange_weights_locate(const worker *w)
{
    weights_way *way = exchange_weights_way_of(w);
    if (!way->weights) way->weights = point_into(w->learner, w->learner->parameters);
    if (!way->gradients) way->gradients = point_into(w->learner, w->learner->gradients);
    return way->weights && way->gradients ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for a table of tensors");
}

/* The threads of one process are not lost one by one: where one fails, the run has. */
static tw_status choose_spec(const worker *w, char **spec)
{
    const char *sync = w->settings.sync;
    int threads = strcmp(tw_comm_transport(w->comm), "threads") == 0;
    int ends = threads && !w->synchronous && !scheme_text_sets(sync, "survive");
    *spec = ends ? scheme_text_with(sync, "survive", "off") : strdup(sync);
    return *spec ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for the spec of --sync");
}

static tw_status exchange_weights_prepare(const worker *w, char **spec)
{
    TW_TRY(exchange_weights_locate(w));
    return choose_spec(w, spec);
}

/* Where one generation ended before its workers met, each has weights of its own: the next begins with their mean. Who
 * has taken no step has weights that another one had. */
static tw_status meet_half_way(worker *w)
{
    learner *l = w->learner;
    float gives = w->taken > 0, givers = gives;
    if (!w->owes) return TW_OK;
    TW_TRY(tw_comm_allreduce(w->comm, &givers, 1));
    for (size_t i = 0; i < l->parameter_count; i++) l->parameters[i] *= gives / givers;
    TW_TRY(tw_comm_allreduce(w->comm, l->parameters, l->parameter_count));
    w->owes = 0;
    w->taken = 0;
    w->rounds++;
    return TW_OK;
}

static tw_status exchange_weights_begin(worker *w)
{
    TW_TRY(meet_half_way(w));
    const learner *l = w->learner;
    weights_way *way = exchange_weights_way_of(w);
    char *spec = NULL;
    tw_status status = agree_status(w, exchange_weights_prepare(w, &spec));
    if (status == TW_OK)
        status = tw_gossip_create(w->comm, spec, l->tensors, l->tensor_count, (const float *const *)way->weights,
                                  &way->gossip);
    free(spec);
    return status;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* Workers that were lost are spoken of by the first of those that are left. */
static tw_status notice_losses(const worker *w)
{
    tw_gossip_counts stats = {.struct_size = sizeof stats};
    TW_TRY(tw_gossip_stats(exchange_weights_way_of(w)->gossip, &stats));
    if (stats.ranks_lost == exchange_weights_way_of(w)->lost) return TW_OK;
    exchange_weights_way_of(w)->lost = stats.ranks_lost;
    if (stats.lowest_rank == (uint64_t)w->rank)
        fprintf(stderr, "thinwire: %llu of %d workers lost by step %llu; the others go on without%s\n",
                (unsigned long long)stats.ranks_lost, w->size, (unsigned long long)w->step,
                w->rank > 0 ? "; the journal ends here, since rank 0 is lost" : "");
    return TW_OK;
}

/* The weights themselves are spoilt, not a step alone. */
static tw_status tell_divergence(const worker *w, tw_status status)
{
    return status == TW_ERROR_NONFINITE ? worker_diverged(w, "the weights were NaN or infinite") : status;
}

static tw_status read(worker *w)
{
    return tell_divergence(w, tw_gossip_read(exchange_weights_way_of(w)->gossip, exchange_weights_way_of(w)->weights));
}

static tw_status exchange_weights_apply(worker *w, float rate)
{
    float *gradients = w->learner->gradients;
    /* A gradient of NaN would stay in the momentum for ever. As a step it is refused, counted and, where the others
     * expect a step, replaced by zeros. */
    if (tensor_table_is_finite(gradients, w->learner->parameter_count))
        TW_TRY(optimiser_propose(w->optimiser, rate, w->learner->parameters, gradients));
    TW_TRY(notice_losses(w));
    w->taken++;
    return tell_divergence(w, tw_gossip_add(exchange_weights_way_of(w)->gossip,
                                            (const float *const *)exchange_weights_way_of(w)->gradients));
}

static const char *exchange_weights_plan(const worker *w, size_t index)
{
    (void)w, (void)index;
    return "averaged with other workers'";
}

static tw_status exchange_weights_add_totals(const worker *w, totals *sums)
{
    tw_gossip_counts stats = {.struct_size = sizeof stats};
    if (!exchange_weights_way_of(w)->gossip) return TW_OK;
    TW_TRY(tw_gossip_stats(exchange_weights_way_of(w)->gossip, &stats));
    double *v = sums->values;
    v[TOTAL_BYTES_DENSE] += (double)stats.bytes_dense;
    v[TOTAL_BYTES_SENT] += (double)stats.bytes_sent;
    v[TOTAL_BYTES_RECEIVED] += (double)stats.bytes_received;
    v[TOTAL_STEPS_SKIPPED] += (double)stats.steps_skipped;
    v[TOTAL_SECONDS_EXCHANGE] += stats.seconds_exchange;
    v[TOTAL_SECONDS_WAIT] += stats.seconds_wait;
    return TW_OK;
}

/* ---- ending ------------------------------------------------------------------------------------------------------ */

/* From here on the workers are those that are left. */
static tw_status narrow(worker *w)
{
    weights_way *way = exchange_weights_way_of(w);
    tw_comm **all = realloc(way->narrowed, (way->narrowed_count + 1) * sizeof *all);
    if (!all) return tw_fail(TW_ERROR_MEMORY, "no memory to list a comm");
    way->narrowed = all;
    TW_TRY(tw_gossip_survivors(way->gossip, &w->comm));
    all[way->narrowed_count++] = w->comm;
    w->rank = tw_comm_rank(w->comm);
    w->size = tw_comm_size(w->comm);
    way->lost = 0;
    return TW_OK;
}

/* Waits for the others' last steps; the model's weights are then the mean over all workers that are not lost. */
static tw_status exchange_weights_end(worker *w)
{
    weights_way *way = exchange_weights_way_of(w);
    double begun = tw_clock();
    TW_TRY(tell_divergence(w, tw_gossip_finish(way->gossip, way->weights)));
    w->now.values[TOTAL_SECONDS_TRAINING] += tw_clock() - begun;
    TW_TRY(exchange_weights_add_totals(w, &w->now));
    TW_TRY(notice_losses(w));
    w->rounds++;
    w->taken = 0;
    if (way->lost > 0 && !w->settings.changing) TW_TRY(narrow(w));
    tw_gossip_destroy(way->gossip); /* what it counted is in the worker's sums */
    way->gossip = NULL;
    return way->lost > 0 ? tw_fail(TW_ERROR_PEER, "%llu workers are lost", (unsigned long long)way->lost) : TW_OK;
}

const exchange weights_exchange = {
    .schemes = {.what = "weights",
                .count = tw_gossips_count,
                .name = tw_gossips_name,
                .summary = tw_gossips_summary,
                .option_count = tw_gossips_option_count,
                .option = tw_gossips_option,
                .help = tw_gossips_help,
                .is_synchronous = tw_gossips_is_synchronous},
    .bytes = sizeof(weights_way),
    .check = exchange_weights_check,
    .destroy = exchange_weights_destroy,
    .begin = exchange_weights_begin,
    .end = exchange_weights_end,
    .read = read,
    .apply = exchange_weights_apply,
    .plan = exchange_weights_plan,
    .add_totals = exchange_weights_add_totals,
};
