/* tw_scheme_*: the course of a step, alike for all schemes. */
#include "scheme.h"

#include "compress.h"
#include "error.h"
#include "kernels.h"
#include "memory.h"
#include "registry.h"
#include "sized.h"
#include "sound.h"
#include "table.h"

#include <math.h>
#include <string.h>

/* What gradients may come multiplied by. */
#define LEAST_SCALE 1e-6
#define MOST_SCALE 1e30

static tw_status scheme_build(tw_scheme *scheme, const char *spec, const tw_tensor *tensors)
{
    TW_TRY(tw_scheme_options_parse(scheme->ops, spec, scheme));
    TW_TRY(tw_allocate(scheme->count, sizeof *scheme->tensors, &scheme->tensors));
    TW_TRY(tw_allocate(scheme->count, sizeof *scheme->gradients, &scheme->gradients));
    TW_TRY(tw_allocate(scheme->count, sizeof *scheme->absent, &scheme->absent));
    TW_TRY(tw_allocate(scheme->count, sizeof *scheme->rates, &scheme->rates));
    TW_TRY(tw_table_copy(scheme, tensors));
    TW_TRY(scheme->ops->create(scheme));
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed)
            scheme->ops->plan(scheme, i, scheme->tensors[i].plan, sizeof scheme->tensors[i].plan);
    return TW_OK;
}

tw_status tw_scheme_create_between(const char *spec, const tw_tensor *tensors, size_t count, int rank, int size,
                                   tw_scheme **out)
{
    const tw_scheme_ops *ops;
    tw_scheme *scheme;
    if (size < 1 || size > TW_MOST_RANKS || rank < 0 || rank >= size)
        return tw_fail(TW_ERROR_ARGUMENT, "rank %d of %d: there are 1 to %d ranks, numbered from 0", rank, size,
                       TW_MOST_RANKS);
    TW_TRY(tw_isa_check());
    TW_TRY(tw_scheme_find(spec, &ops));
    TW_TRY(tw_table_check(tensors, count));
    TW_TRY(tw_allocate(1, ops->struct_size, &scheme));
    scheme->ops = ops;
    scheme->rank = rank;
    scheme->size = size;
    scheme->count = count;
    scheme->gradient_scale = 1;
    tw_status status = scheme_build(scheme, spec, tensors);
    if (status != TW_OK) {
        tw_scheme_destroy(scheme);
        return status;
    }
    *out = scheme;
    return TW_OK;
}

/* A scheme by hand knows no hosts. */
static tw_status check_hosts(const tw_scheme *scheme)
{
    long long per_host = scheme->common.per_host;
    if (per_host == 1) return TW_OK;
    return tw_fail(TW_ERROR_SPEC,
                   "per_host=%lld is for a reducer; by hand, average inside each host and make the scheme, without it, "
                   "for one rank a host",
                   per_host);
}

tw_status tw_scheme_create(const char *spec, const tw_tensor *tensors, size_t count, int rank, int size,
                           tw_scheme **out)
{
    tw_scheme *scheme = NULL;
    TW_TRY(tw_need(out, "scheme"));
    TW_TRY(tw_scheme_create_between(spec, tensors, count, rank, size, &scheme));
    tw_status status = check_hosts(scheme);
    if (status == TW_OK)
        *out = scheme;
    else
        tw_scheme_destroy(scheme);
    return status;
}

void tw_scheme_destroy(tw_scheme *scheme)
{
    if (!scheme) return;
    if (scheme->ops->destroy) scheme->ops->destroy(scheme);
    for (size_t i = 0; scheme->tensors && i < scheme->count; i++) tw_free(scheme->tensors[i].name);
    tw_scheme_options_release(scheme->ops, scheme);
    tw_free(scheme->tensors);
    tw_free(scheme->gradients);
    tw_free(scheme->absent);
    tw_free(scheme->rates);
    tw_free(scheme);
}

/* The sum of the squares of this message's tensors, the compressed ones or not; not finite if an element is not. */
static double sum_squares(const tw_scheme *scheme, int compressed)
{
    double sum = 0;
    for (size_t i = 0; i < scheme->count; i++)
        if (compressed || !scheme->tensors[i].compressed)
            sum += tw_kernels_best()->sum_squares(scheme->gradients[i], scheme->tensors[i].count);
    return sum;
}

/* g is the mean over a worker's batch; N of them are summed. The global norm is about N^1/2 times a share's (noise adds
 * in squares), hence the threshold clip * N^-1/2 for a share. */
static float share_scale(const tw_scheme *scheme, double norm)
{
    double threshold = tw_scheme_clip(scheme) / sqrt(scheme->size);
    double share = norm / scheme->gradient_scale / scheme->size;
    double shrink = threshold > 0 && share > threshold ? threshold / share : 1;
    return (float)(shrink / scheme->size / scheme->gradient_scale);
}

static tw_status check_whole(const tw_scheme *scheme)
{
    return scheme->failed ? tw_fail(TW_ERROR_ORDER, "a round of this scheme failed; destroy it") : TW_OK;
}

static tw_status check_gradients(const tw_scheme *scheme, float *const *gradients)
{
    TW_TRY(tw_need(gradients, "gradients"));
    for (size_t i = 0; i < scheme->count; i++)
        if (!gradients[i])
            return tw_fail(TW_ERROR_ARGUMENT, "gradients[%zu], of %s, is NULL", i, scheme->tensors[i].name);
    return TW_OK;
}

/* What stands in the buffer of a tensor that is absent is nobody's business. */
static tw_status open_step(tw_scheme *scheme, float *const *gradients, const unsigned char *absent)
{
    TW_TRY(tw_need(scheme, "scheme"));
    TW_TRY(check_gradients(scheme, gradients));
    TW_TRY(check_whole(scheme));
    if (scheme->open)
        return tw_fail(TW_ERROR_ORDER, "the step before is not done: call tw_scheme_next until it says so");
    memcpy(scheme->gradients, gradients, scheme->count * sizeof *gradients);
    for (size_t i = 0; i < scheme->count; i++) {
        scheme->absent[i] = absent && absent[i];
        if (scheme->absent[i]) memset(scheme->gradients[i], 0, scheme->tensors[i].count * sizeof(float));
    }
    scheme->squares = 0;
    scheme->elsewhere = (tw_squares_elsewhere){NULL, NULL};
    scheme->taken = 0;
    scheme->begun++;
    scheme->phase = 0;
    scheme->asked = TW_ROUND_DONE;
    scheme->skipped = 0;
    scheme->account = (tw_account){0};
    scheme->open = 1;
    return TW_OK;
}

int tw_scheme_looks(const tw_scheme *scheme)
{
    return scheme->ops->one_pass && tw_scheme_clip(scheme) == 0;
}

tw_status tw_scheme_begin_unseen(tw_scheme *scheme, float *const *gradients, const unsigned char *absent,
                                 tw_squares_elsewhere elsewhere)
{
    TW_TRY(open_step(scheme, gradients, absent));
    scheme->elsewhere = elsewhere;
    scheme->squares = sum_squares(scheme, 0);
    scheme->finite = tw_sound_squares(scheme, scheme->squares);
    scheme->scale = share_scale(scheme, 0);
    return TW_OK;
}

tw_status tw_scheme_begin(tw_scheme *scheme, float *const *gradients, double norm)
{
    return tw_scheme_begin_without(scheme, gradients, NULL, norm);
}

tw_status tw_scheme_begin_without(tw_scheme *scheme, float *const *gradients, const unsigned char *absent, double norm)
{
    TW_TRY(tw_need(scheme, "scheme"));
    if (norm < 0 && tw_scheme_looks(scheme))
        return tw_scheme_begin_unseen(scheme, gradients, absent, (tw_squares_elsewhere){NULL, NULL});
    TW_TRY(open_step(scheme, gradients, absent));
    if (norm < 0) norm = sqrt(sum_squares(scheme, 1));
    scheme->finite = norm <= tw_sound_most(scheme); /* false for NaN */
    scheme->scale = share_scale(scheme, norm);
    return TW_OK;
}

/* The packets that the last round asked for are there. */
static tw_status check_packets(const tw_scheme *scheme, const tw_round *round)
{
    int is_all = scheme->asked == TW_ROUND_ALLGATHER || scheme->asked == TW_ROUND_ALLTOALL;
    int count = is_all ? scheme->size : scheme->asked == TW_ROUND_BROADCAST;
    if (count && (!round->packets || !round->sizes))
        return tw_fail(TW_ERROR_ARGUMENT, "the round's packets and sizes are NULL; fill them in before tw_scheme_next");
    if (scheme->asked == TW_ROUND_ALLTOALL && round->packets == scheme->outgoing)
        return tw_fail(TW_ERROR_ARGUMENT, "the round's packets are still those that go out; put those that came from "
                                          "each rank in their place before tw_scheme_next");
    for (int i = 0; i < count; i++)
        if (!round->packets[i] && round->sizes[i])
            return tw_fail(TW_ERROR_ARGUMENT, "packet %d of the round is NULL and its size %zu", i, round->sizes[i]);
    return TW_OK;
}

static tw_status check_place(const tw_round *round)
{
    if (round->memory != TW_MEMORY_HOST || round->stream)
        return tw_fail(TW_ERROR_UNSUPPORTED,
                       "a round in memory of kind %d, on stream %p: this thinwire exchanges host memory alone, without "
                       "streams",
                       (int)round->memory, round->stream);
    return tw_check_reserved((const void *const *)round->reserved, "tw_round");
}

/* Schemes know nothing of the scale: what comes out of them is the mean itself. Scaled, it may overflow. */
static void scale_back(tw_scheme *scheme)
{
    enum { BLOCK = 8192 }; /* elements: they are looked at in the cache */
    const tw_kernels *kernels = tw_kernels_best();
    float factor = (float)scheme->gradient_scale;
    for (size_t i = 0; i < scheme->count; i++) {
        size_t count = scheme->tensors[i].count;
        for (size_t first = 0; first < count; first += BLOCK) {
            size_t n = count - first < BLOCK ? count - first : BLOCK;
            kernels->scale(scheme->gradients[i] + first, factor, n);
            if (!kernels->all_finite(scheme->gradients[i] + first, n)) scheme->skipped = 1;
        }
    }
}

tw_status tw_scheme_next(tw_scheme *scheme, tw_round *round)
{
    TW_TRY(tw_need(scheme, "scheme"));
    TW_TRY(tw_need(round, "round"));
    TW_TRY(check_whole(scheme));
    if (!scheme->open) return tw_fail(TW_ERROR_ORDER, "no step is under way: call tw_scheme_begin first");
    TW_TRY(check_place(round));
    TW_TRY(check_packets(scheme, round));
    tw_status status = scheme->ops->next(scheme, round);
    if (status == TW_OK) status = check_place(round);
    scheme->failed = status != TW_OK;
    scheme->asked = (int)round->kind;
    /* An all-to-all's packets are the scheme's; those of any other round are not there yet. */
    if (scheme->failed || round->kind != TW_ROUND_ALLTOALL) {
        round->packets = NULL;
        round->sizes = NULL;
    }
    scheme->outgoing = round->packets;
    if (scheme->failed || round->kind != TW_ROUND_DONE) return status;
    if (!scheme->skipped && scheme->gradient_scale != 1) scale_back(scheme);
    round->skipped = scheme->skipped;
    scheme->open = 0;
    scheme->step++;
    scheme->revertible = 1;
    scheme->settled = 0;
    return scheme->skipped ? tw_scheme_revert(scheme) : TW_OK;
}

tw_status tw_scheme_revert(tw_scheme *scheme)
{
    TW_TRY(tw_need(scheme, "scheme"));
    if (scheme->open) return tw_fail(TW_ERROR_ORDER, "the step is not done yet");
    if (scheme->revertible && scheme->settled)
        return tw_fail(TW_ERROR_ORDER, "the state was saved since the step: take a step back before saving");
    if (scheme->revertible && scheme->ops->revert) scheme->ops->revert(scheme);
    scheme->revertible = 0; /* a second revert finds nothing to take back */
    return TW_OK;
}

/* ---- what is told between steps ---------------------------------------------------------------------------------- */

tw_status tw_rate_check(float rate)
{
    if (rate >= 0 && !isinf(rate)) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "a learning rate of %g; at least 0", rate);
}

static tw_status check_between(const tw_scheme *scheme, const char *what)
{
    TW_TRY(tw_need(scheme, "scheme"));
    if (!scheme->open) return TW_OK;
    return tw_fail(TW_ERROR_ORDER, "the %s is told between steps, and this one is not done yet", what);
}

tw_status tw_scheme_set_rate(tw_scheme *scheme, float rate)
{
    TW_TRY(check_between(scheme, "rate"));
    TW_TRY(tw_rate_check(rate));
    scheme->rate = rate;
    memset(scheme->rates, 0, scheme->count * sizeof *scheme->rates);
    return TW_OK;
}

tw_status tw_scheme_set_rates(tw_scheme *scheme, const float *rates)
{
    TW_TRY(check_between(scheme, "rate"));
    TW_TRY(tw_need(rates, "rates"));
    for (size_t i = 0; i < scheme->count; i++) TW_TRY(tw_rate_check(rates[i]));
    memcpy(scheme->rates, rates, scheme->count * sizeof *rates);
    scheme->rate = 0;
    return TW_OK;
}

tw_status tw_scheme_set_gradient_scale(tw_scheme *scheme, double scale)
{
    TW_TRY(check_between(scheme, "gradients' scale"));
    if (!(scale >= LEAST_SCALE && scale <= MOST_SCALE))
        return tw_fail(TW_ERROR_ARGUMENT, "gradients multiplied by %g; it can be %g to %g", scale, LEAST_SCALE,
                       MOST_SCALE);
    scheme->gradient_scale = (double)(float)scale; /* out it goes as it came in */
    return TW_OK;
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

double tw_scheme_clip(const tw_scheme *scheme)
{
    return scheme && scheme->ops->clip ? scheme->ops->clip(scheme) : 0;
}

float tw_scheme_momentum(const tw_scheme *scheme, int *nesterov)
{
    int form = 0;
    float momentum = scheme && scheme->ops->momentum ? scheme->ops->momentum(scheme, &form) : 0;
    if (nesterov) *nesterov = form;
    return momentum;
}

const char *tw_scheme_plan(const tw_scheme *scheme, size_t index)
{
    return scheme && index < scheme->count ? scheme->tensors[index].plan : "";
}

tw_status tw_scheme_walk(tw_scheme *scheme, tw_walk *walk)
{
    if (scheme->ops->settle) scheme->ops->settle(scheme);
    return scheme->ops->walk ? scheme->ops->walk(scheme, walk) : TW_OK;
}

tw_status tw_scheme_cost(const tw_scheme *scheme, tw_cost *cost)
{
    TW_TRY(tw_need(scheme, "scheme"));
    TW_TRY(tw_need(cost, "cost"));
    tw_cost now = {.warmup = scheme->account.warmup,
                   .elements_sent = scheme->account.elements_sent,
                   .packet_bytes = scheme->account.packet_bytes,
                   .index_bytes = scheme->account.index_bytes,
                   .exact_bytes = scheme->account.exact_bytes};
    return tw_copy_sized(cost, &now, sizeof now, "tw_cost");
}
