#include "gossip.h"
#include "agree.h"
#include "error.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where each tensor stands in a flat array; the caller frees it. */
static float **point_into(const learner *l, float *values)
{
    float **tensors = calloc(l->tensor_count, sizeof *tensors);
    for (size_t i = 0; tensors && i < l->tensor_count; i++) {
        tensors[i] = values;
        values += tw_tensor_count(&l->tensors[i]);
    }
    return tensors;
}

static tw_status locate(worker *w)
{
    if (!w->weights) w->weights = point_into(w->learner, w->learner->parameters);
    if (!w->gradients) w->gradients = point_into(w->learner, w->learner->gradients);
    return w->weights && w->gradients ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for a table of tensors");
}

/* The threads of one process are not lost one by one: where one fails, the run has. */
static void choose_spec(const worker *w, char *spec, size_t room)
{
    const char *sync = w->settings.sync;
    int threads = strcmp(tw_comm_transport(w->comm), "threads") == 0;
    int ends = threads && !w->synchronous && !strstr(sync, "survive=");
    snprintf(spec, room, "%s%s", sync, !ends ? "" : strchr(sync, ':') ? ",survive=off" : ":survive=off");
}

tw_status gossip_join(worker *w)
{
    const learner *l = w->learner;
    char spec[1024];
    TW_TRY(agree_status(w, locate(w)));
    choose_spec(w, spec, sizeof spec);
    return tw_gossip_create(w->comm, spec, l->tensors, l->tensor_count, (const float *const *)w->weights, &w->gossip);
}

/* Workers that were lost are spoken of by the first of those that are left. */
static tw_status notice_losses(worker *w)
{
    tw_gossip_stats stats = {.struct_size = sizeof stats};
    TW_TRY(tw_gossip_get_stats(w->gossip, &stats));
    if (stats.ranks_lost == w->workers_lost) return TW_OK;
    w->workers_lost = stats.ranks_lost;
    if (stats.lowest_rank == (uint64_t)w->rank)
        fprintf(stderr, "thinwire: %llu of %d workers lost by step %llu; the others go on without%s\n",
                (unsigned long long)stats.ranks_lost, w->size, (unsigned long long)w->step,
                w->rank > 0 ? ", and without a journal: it was the first worker's" : "");
    return TW_OK;
}

/* From here on the workers are those that are left. */
static tw_status narrow(worker *w)
{
    tw_comm **all = realloc(w->narrowed, (w->narrowed_count + 1) * sizeof *all);
    if (!all) return tw_fail(TW_ERROR_MEMORY, "no memory to list a comm");
    w->narrowed = all;
    TW_TRY(tw_gossip_survivors(w->gossip, &w->comm));
    all[w->narrowed_count++] = w->comm;
    w->rank = tw_comm_rank(w->comm);
    w->size = tw_comm_size(w->comm);
    w->workers_lost = 0;
    return TW_OK;
}

/* From a call that knows of no skipped step, NaN means that the weights themselves are spoilt. */
static tw_status tell_divergence(const worker *w, tw_status status)
{
    return status == TW_ERROR_NONFINITE ? worker_diverged(w, "the weights were NaN or infinite") : status;
}

tw_status gossip_read(worker *w)
{
    return tell_divergence(w, tw_gossip_read(w->gossip, w->weights));
}

static int all_finite(const float *values, size_t count)
{
    int finite = 1;
    for (size_t i = 0; i < count; i++) finite &= isfinite(values[i]) != 0;
    return finite;
}

tw_status gossip_step(worker *w, float rate)
{
    float *gradients = w->learner->gradients;
    /* A gradient of NaN would stay in the momentum for ever. As a step it is refused, counted and, where the others
     * expect a step, replaced by zeros. */
    if (all_finite(gradients, w->learner->parameter_count))
        optimiser_propose(w->optimiser, rate, w->learner->parameters, gradients);
    TW_TRY(notice_losses(w));
    return tw_gossip_add(w->gossip, (const float *const *)w->gradients);
}

tw_status gossip_add_totals(const worker *w, totals *sums)
{
    tw_gossip_stats stats = {.struct_size = sizeof stats};
    if (!w->gossip) return TW_OK;
    TW_TRY(tw_gossip_get_stats(w->gossip, &stats));
    double *v = sums->values;
    v[TOTAL_BYTES_DENSE] += (double)stats.bytes_dense;
    v[TOTAL_BYTES_SENT] += (double)stats.bytes_sent;
    v[TOTAL_BYTES_RECEIVED] += (double)stats.bytes_received;
    v[TOTAL_STEPS_SKIPPED] += (double)stats.steps_skipped;
    v[TOTAL_SECONDS_EXCHANGE] += stats.seconds_exchange;
    v[TOTAL_SECONDS_WAIT] += stats.seconds_wait;
    return TW_OK;
}

tw_status gossip_leave(worker *w)
{
    double begin = tw_clock();
    TW_TRY(tell_divergence(w, tw_gossip_finish(w->gossip, w->weights)));
    w->now.values[TOTAL_SECONDS_TRAINING] += tw_clock() - begin;
    TW_TRY(gossip_add_totals(w, &w->now));
    TW_TRY(notice_losses(w));
    if (w->workers_lost > 0) TW_TRY(narrow(w));
    tw_gossip_destroy(w->gossip);
    w->gossip = NULL;
    return TW_OK;
}
