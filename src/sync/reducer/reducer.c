/* tw_reducer: gradients go in as backward produces them, the mean over workers comes out. */
#include "reducer.h"

#include "agreement.h"
#include "channel.h"
#include "charge.h"
#include "compress.h"
#include "error.h"
#include "kernels.h"
#include "memory.h"
#include "patterns.h"
#include "sized.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- one message ------------------------------------------------------------------------------------------------ */

static tw_status run_round(tw_reducer *reducer, tw_round *round)
{
    switch (round->kind) {
    case TW_ROUND_ALLGATHER:
        return tw_channel_allgather(reducer->channel, round->data, round->size, round->capacity, &round->packets,
                                    &round->sizes);
    case TW_ROUND_ALLREDUCE:
        return tw_channel_allreduce(reducer->channel, round->dtype, round->values, round->count);
    case TW_ROUND_BROADCAST:
        round->packets = &reducer->root_packet;
        round->sizes = &reducer->root_size;
        return tw_channel_broadcast(reducer->channel, round->root, round->data, round->size, round->capacity,
                                    &reducer->root_packet, &reducer->root_size);
    case TW_ROUND_ALLTOALL:
        return tw_channel_alltoall(reducer->channel, round->packets, round->sizes, round->capacity, &round->packets,
                                   &round->sizes);
    case TW_ROUND_DONE:
        break;
    }
    return TW_OK;
}

/* A scheme that compresses nothing is there to be fast: the thread that computes is not held up for its gradients. */
static int is_measured_late(const tw_message *message)
{
    return message->scheme->ops->plan == NULL;
}

static void measure(tw_reducer *reducer, const tw_message *message)
{
    for (size_t i = 0; i < message->count; i++)
        reducer->squares[message->first + i] =
            tw_kernels_best()->sum_squares(reducer->gradients[message->first + i], message->scheme->tensors[i].count);
}

static double norm_of(const tw_reducer *reducer, size_t first, size_t count)
{
    double sum = 0;
    for (size_t i = first; i < first + count; i++) sum += reducer->squares[i];
    return sqrt(sum);
}

/* Clipping looks at the whole gradient; otherwise a message only needs to know whether its own part is finite. But the
 * last of a step answers for all: the whole may be beyond the bound though no part is. (A NaN elsewhere is not its
 * business: the message that has it skips the step, and this one's part is kept.) */
static double gradient_norm(const tw_reducer *reducer, const tw_message *message)
{
    double own = norm_of(reducer, message->first, message->count);
    if (!reducer->clips && message->first > 0) return own;
    double whole = norm_of(reducer, 0, reducer->count);
    return reducer->clips || isfinite(whole) ? whole : own;
}

static size_t message_elements(const tw_scheme *scheme)
{
    size_t elements = 0;
    for (size_t i = 0; i < scheme->count; i++) elements += scheme->tensors[i].count;
    return elements;
}

/* Bytes that a round brings from the others, or sums. */
static uint64_t round_bytes(const tw_reducer *reducer, const tw_round *round)
{
    if (round->kind == TW_ROUND_ALLREDUCE) return round->count * (round->dtype == TW_F32 ? 4 : 2);
    int packets = round->kind == TW_ROUND_BROADCAST ? 1 : reducer->size;
    uint64_t bytes = 0;
    for (int i = 0; i < packets; i++) bytes += round->sizes[i];
    return bytes;
}

/* Runs a message's rounds; times what the scheme does and what the exchange does. */
static tw_status run_message(tw_reducer *reducer, tw_message *message, double *codec, double *exchange)
{
    tw_round round = {0};
    double start = tw_clock();
    if (is_measured_late(message)) measure(reducer, message);
    TW_TRY(tw_scheme_begin(message->scheme, reducer->gradients + message->first, gradient_norm(reducer, message)));
    tw_world_charge(message_elements(message->scheme), 0);
    for (;;) {
        TW_TRY(tw_scheme_next(message->scheme, &round));
        tw_channel_release(reducer->channel);
        double asked = tw_clock();
        *codec += asked - start;
        if (round.kind == TW_ROUND_DONE) return TW_OK;
        TW_TRY(run_round(reducer, &round));
        start = tw_clock();
        *exchange += start - asked;
        tw_world_charge(0, round_bytes(reducer, &round));
    }
}

/* ---- what a step cost ------------------------------------------------------------------------------------------- */

static size_t compressed_elements(const tw_scheme *scheme)
{
    size_t elements = 0;
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed) elements += scheme->tensors[i].count;
    return elements;
}

static void account_message(tw_stats *stats, const tw_scheme *scheme)
{
    const tw_account *account = &scheme->account;
    if (account->warmup) return;
    size_t compressed = compressed_elements(scheme);
    stats->elements_sent += account->elements_sent;
    stats->elements_total += compressed;
    stats->compressed_fp32 += 4 * compressed;
    stats->compressed_packet += account->packet_bytes;
    stats->message_fp32 += 4 * message_elements(scheme);
    stats->message_packet += account->packet_bytes + account->exact_bytes;
}

static void account_step(tw_reducer *reducer)
{
    tw_stats *stats = &reducer->stats;
    uint64_t size = (uint64_t)reducer->size;
    stats->steps++;
    stats->steps_skipped += reducer->skipped != 0;
    stats->steps_warmup += reducer->messages[0].scheme->account.warmup != 0;
    stats->bytes_dense += 2 * (size - 1) * 4 * reducer->elements / size;
    if (reducer->skipped) return;
    for (size_t m = 0; m < reducer->message_count; m++) account_message(stats, reducer->messages[m].scheme);
}

/* ---- the exchange: on its thread, or in wait --------------------------------------------------------------------- */

static void record_failure(tw_reducer *reducer, tw_status status)
{
    reducer->failure = status;
    snprintf(reducer->failure_text, sizeof reducer->failure_text, "%s", tw_last_error());
}

/* Runs message `done` with the lock released, and counts it. */
static void run_next_message(tw_reducer *reducer)
{
    tw_message *message = &reducer->messages[reducer->done];
    double codec = 0, exchange = 0;
    tw_mutex_unlock(&reducer->lock);
    tw_status status = run_message(reducer, message, &codec, &exchange);
    if (status != TW_OK) tw_channel_give_up(reducer->channel, status); /* or the others would wait for this rank */
    tw_mutex_lock(&reducer->lock);
    reducer->stats.seconds_codec += codec;
    reducer->stats.seconds_exchange += exchange;
    if (status != TW_OK)
        record_failure(reducer, status);
    else if (message->scheme->skipped)
        reducer->skipped = 1;
    reducer->done++;
    tw_condition_wake_all(&reducer->changed);
}

/* 1 when the next message in order may run. The order is fixed: on every rank the collectives must match. */
static int next_is_ready(const tw_reducer *reducer)
{
    if (reducer->failure != TW_OK || reducer->done == reducer->message_count) return 0;
    return reducer->clips ? reducer->missing == 0 : reducer->messages[reducer->done].missing == 0;
}

static void *exchange_thread(void *argument)
{
    tw_reducer *reducer = argument;
    tw_mutex_lock(&reducer->lock);
    while (!reducer->stopping) {
        if (next_is_ready(reducer))
            run_next_message(reducer);
        else
            tw_condition_wait(&reducer->changed, &reducer->lock);
    }
    tw_mutex_unlock(&reducer->lock);
    return NULL;
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

/* Cuts the table, from its end, into messages of at least `least` bytes; *count receives how many, starts their first
 * tensors (room for one a tensor). */
static void cut_messages(const tw_tensor *tensors, size_t count, size_t least, size_t *starts, size_t *messages)
{
    size_t bytes = 0;
    *messages = 0;
    for (size_t i = count; i-- > 0;) {
        bytes += 4 * tw_tensor_count(&tensors[i]);
        if (bytes < least && i > 0) continue;
        starts[(*messages)++] = i;
        bytes = 0;
    }
}

static tw_status create_message(tw_reducer *reducer, tw_message *message, size_t first, size_t end, const char *spec,
                                const tw_tensor *tensors)
{
    message->first = first;
    message->count = message->missing = end - first;
    for (size_t i = first; i < end; i++) {
        reducer->message_of[i] = (size_t)(message - reducer->messages);
        reducer->elements += tw_tensor_count(&tensors[i]);
    }
    return tw_scheme_create(spec, tensors + first, end - first, reducer->rank, reducer->size, &message->scheme);
}

static tw_status create_messages(tw_reducer *reducer, const char *spec, const tw_tensor *tensors, size_t least)
{
    size_t *starts, end = reducer->count;
    TW_TRY(tw_allocate(reducer->count, sizeof *starts, &starts));
    cut_messages(tensors, reducer->count, least, starts, &reducer->message_count);
    tw_status status = tw_allocate(reducer->message_count, sizeof *reducer->messages, &reducer->messages);
    for (size_t m = 0; status == TW_OK && m < reducer->message_count; m++) {
        status = create_message(reducer, &reducer->messages[m], starts[m], end, spec, tensors);
        end = starts[m];
    }
    tw_free(starts);
    return status;
}

static tw_status create_arrays(tw_reducer *reducer)
{
    TW_TRY(tw_allocate(reducer->count, sizeof *reducer->message_of, &reducer->message_of));
    TW_TRY(tw_allocate(reducer->count, sizeof *reducer->gradients, &reducer->gradients));
    return tw_allocate(reducer->count, sizeof *reducer->squares, &reducer->squares);
}

static tw_status start_thread(tw_reducer *reducer)
{
    TW_TRY(tw_mutex_create(&reducer->lock));
    reducer->lock_made = 1;
    TW_TRY(tw_condition_create(&reducer->changed));
    reducer->condition_made = 1;
    if (!reducer->messages[0].scheme->common.overlap) return TW_OK;
    TW_TRY(tw_thread_start(&reducer->thread, exchange_thread, reducer));
    reducer->thread_made = 1;
    return TW_OK;
}

/* All that can be done alone. */
static tw_status prepare(tw_reducer *reducer, const char *spec, const tw_tensor *tensors, tw_reducer **out)
{
    tw_common_options common = {0};
    TW_TRY(tw_need(out, "reducer"));
    TW_TRY(tw_table_check(tensors, reducer->count));
    TW_TRY(tw_common_options_read(spec, &common));
    tw_status patterns = tw_patterns_check(common.dense, tensors, reducer->count);
    tw_free(common.dense);
    TW_TRY(patterns);
    TW_TRY(tw_spec_check(spec, tensors, reducer->count));
    TW_TRY(create_arrays(reducer));
    TW_TRY(create_messages(reducer, spec, tensors, (size_t)common.message_kb * 1024));
    reducer->clips = tw_scheme_clip(reducer->messages[0].scheme) > 0;
    return start_thread(reducer);
}

static tw_status build(tw_reducer *reducer, tw_comm *comm, const char *spec, const tw_tensor *tensors, tw_reducer **out)
{
    tw_status channel = tw_channel_create(comm, &reducer->channel);
    if (channel != TW_OK) return tw_channel_give_up(comm->channel, channel);
    tw_status prepared = prepare(reducer, spec, tensors, out);
    return tw_agree(reducer->channel, "reducer", prepared, spec, tensors, reducer->count);
}

tw_status tw_reducer_create(tw_comm *comm, const char *spec, const tw_tensor *tensors, size_t count, tw_reducer **out)
{
    tw_reducer *reducer;
    TW_TRY(tw_need(comm, "comm"));
    tw_status status = tw_allocate(1, sizeof *reducer, &reducer);
    if (status != TW_OK) return tw_channel_give_up(comm->channel, status); /* the others wait to hear of it */
    reducer->rank = tw_comm_rank(comm);
    reducer->size = tw_comm_size(comm);
    reducer->count = reducer->missing = count;
    status = build(reducer, comm, spec, tensors, out);
    if (status != TW_OK) {
        tw_reducer_destroy(reducer);
        return status;
    }
    *out = reducer;
    return TW_OK;
}

void tw_reducer_destroy(tw_reducer *reducer)
{
    if (!reducer) return;
    if (reducer->thread_made) {
        tw_mutex_lock(&reducer->lock);
        reducer->stopping = 1;
        tw_condition_wake_all(&reducer->changed);
        tw_mutex_unlock(&reducer->lock);
        tw_thread_join(reducer->thread);
    }
    if (reducer->condition_made) tw_condition_destroy(&reducer->changed);
    if (reducer->lock_made) tw_mutex_destroy(&reducer->lock);
    for (size_t m = 0; reducer->messages && m < reducer->message_count; m++)
        tw_scheme_destroy(reducer->messages[m].scheme);
    tw_channel_destroy(reducer->channel);
    tw_free(reducer->messages);
    tw_free(reducer->message_of);
    tw_free(reducer->gradients);
    tw_free(reducer->squares);
    tw_free(reducer);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* What the exchange met, if it failed; with the lock held. */
static tw_status tell_failure(const tw_reducer *reducer)
{
    return reducer->failure == TW_OK ? TW_OK : tw_fail(reducer->failure, "%s", reducer->failure_text);
}

/* Once an exchange has failed, every call of a step says so. */
static tw_status check_whole(tw_reducer *reducer)
{
    tw_mutex_lock(&reducer->lock);
    tw_status status = tell_failure(reducer);
    tw_mutex_unlock(&reducer->lock);
    return status;
}

tw_status tw_reducer_submit(tw_reducer *reducer, size_t index, float *gradient)
{
    TW_TRY(tw_need(reducer, "reducer"));
    if (index >= reducer->count)
        return tw_fail(TW_ERROR_ARGUMENT, "there is no tensor %zu: the table has %zu, counted from 0", index,
                       reducer->count);
    if (!gradient) return tw_fail(TW_ERROR_ARGUMENT, "the gradient of tensor %zu is NULL", index);
    TW_TRY(check_whole(reducer));
    if (reducer->gradients[index])
        return tw_fail(TW_ERROR_ORDER, "tensor %zu was submitted already in this step", index);
    tw_message *message = &reducer->messages[reducer->message_of[index]];
    const tw_scheme_tensor *tensor = &message->scheme->tensors[index - message->first];
    /* Here the gradient is still in the cache, so that looking at every element costs little. */
    double squares = is_measured_late(message) ? 0 : tw_kernels_best()->sum_squares(gradient, tensor->count);
    tw_mutex_lock(&reducer->lock);
    reducer->gradients[index] = gradient;
    reducer->squares[index] = squares;
    reducer->missing--;
    message->missing--;
    if (next_is_ready(reducer)) tw_condition_wake_all(&reducer->changed);
    tw_mutex_unlock(&reducer->lock);
    return TW_OK;
}

static void start_step(tw_reducer *reducer)
{
    memset(reducer->gradients, 0, reducer->count * sizeof *reducer->gradients);
    for (size_t m = 0; m < reducer->message_count; m++) reducer->messages[m].missing = reducer->messages[m].count;
    reducer->missing = reducer->count;
    reducer->done = 0;
    reducer->skipped = 0;
}

/* One message was not finite somewhere, so no rank applies this step: the other messages are taken back. */
static tw_status revert_step(tw_reducer *reducer)
{
    for (size_t m = 0; m < reducer->message_count; m++) TW_TRY(tw_scheme_revert(reducer->messages[m].scheme));
    return tw_fail(TW_ERROR_NONFINITE,
                   "a gradient held NaN or infinity, or was above %g; step %llu was skipped on every worker",
                   TW_LARGEST_NORM, (unsigned long long)reducer->stats.steps);
}

static tw_status finish_step(tw_reducer *reducer)
{
    TW_TRY(tell_failure(reducer));
    account_step(reducer);
    tw_status status = reducer->skipped ? revert_step(reducer) : TW_OK;
    start_step(reducer);
    return status;
}

tw_status tw_reducer_wait(tw_reducer *reducer)
{
    TW_TRY(tw_need(reducer, "reducer"));
    double start = tw_clock();
    TW_TRY(check_whole(reducer));
    if (reducer->missing)
        return tw_fail(TW_ERROR_ORDER, "%zu of %zu tensors were not submitted", reducer->missing, reducer->count);
    tw_mutex_lock(&reducer->lock);
    while (reducer->failure == TW_OK && reducer->done < reducer->message_count) {
        if (reducer->thread_made)
            tw_condition_wait(&reducer->changed, &reducer->lock);
        else
            run_next_message(reducer);
    }
    reducer->stats.seconds_wait += tw_clock() - start;
    tw_status status = finish_step(reducer);
    tw_mutex_unlock(&reducer->lock);
    return status;
}

tw_status tw_reducer_set_rate(tw_reducer *reducer, float rate)
{
    TW_TRY(tw_need(reducer, "reducer"));
    if (reducer->missing < reducer->count)
        return tw_fail(TW_ERROR_ORDER, "the rate is told before a step's first tensor is submitted");
    for (size_t m = 0; m < reducer->message_count; m++) TW_TRY(tw_scheme_set_rate(reducer->messages[m].scheme, rate));
    return TW_OK;
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

float tw_reducer_momentum(const tw_reducer *reducer, int *nesterov)
{
    int form = 0;
    float momentum = reducer ? tw_scheme_momentum(reducer->messages[0].scheme, &form) : 0;
    if (nesterov) *nesterov = form;
    return momentum;
}

const char *tw_reducer_plan(const tw_reducer *reducer, size_t index)
{
    if (!reducer || index >= reducer->count) return "";
    const tw_message *message = &reducer->messages[reducer->message_of[index]];
    return message->scheme->tensors[index - message->first].plan;
}

tw_status tw_reducer_stats(const tw_reducer *reducer, tw_stats *stats)
{
    TW_TRY(tw_need(reducer, "reducer"));
    TW_TRY(tw_need(stats, "stats"));
    tw_mutex *lock = (tw_mutex *)&reducer->lock; /* the exchange thread may be writing */
    tw_mutex_lock(lock);
    tw_stats now = reducer->stats;
    tw_mutex_unlock(lock);
    tw_traffic traffic = tw_channel_traffic(reducer->channel);
    now.bytes_sent = traffic.bytes_sent;
    now.bytes_received = traffic.bytes_received;
    return tw_copy_sized(stats, &now, sizeof now, "tw_stats");
}
