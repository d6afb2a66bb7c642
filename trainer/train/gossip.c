#include "gossip.h"
#include "agree.h"
#include "error.h"
#include <math.h>
#include <stdlib.h>

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

tw_status gossip_join(worker *w)
{
    const learner *l = w->learner;
    TW_TRY(agree_status(w, locate(w)));
    return tw_gossip_create(w->comm, w->settings.sync, l->tensors, l->tensor_count, (const float *const *)w->weights,
                            &w->gossip);
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
    tw_gossip_destroy(w->gossip);
    w->gossip = NULL;
    return TW_OK;
}
