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
#include "reducer_host.h"
#include "sized.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What message_kb=0 comes to: bytes, and messages. */
enum { LEAST_MESSAGE = 4 << 20, MOST_MESSAGE = 32 << 20, SPARSE_MESSAGES = 4 };

/* ---- one message ------------------------------------------------------------------------------------------------ */

/* A scheme that compresses nothing is there to be fast: the thread that computes is not held up for its gradients. One
 * that looks at them in its own pass needs nobody else to. */
static int is_measured_late(const tw_message *message)
{
    return message->scheme->ops->plan == NULL || tw_scheme_looks(message->scheme);
}

void tw_reducer_measure(tw_reducer *reducer, const tw_message *message)
{
    for (size_t i = 0; i < message->count; i++)
        reducer->squares[message->first + i] =
            tw_kernels_best()->sum_squares(reducer->exchanged[message->first + i], message->scheme->tensors[i].count);
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

/* What the others of the step add to the last message's sum of squares, on the same grounds. */
static double squares_elsewhere(const tw_reducer *reducer, const tw_message *message)
{
    double others = 0;
    for (size_t m = 0; message->first == 0 && m < reducer->message_count; m++)
        if (&reducer->messages[m] != message) others += reducer->messages[m].scheme->squares;
    return isfinite(others) ? others : 0;
}

size_t tw_message_elements(const tw_scheme *scheme)
{
    size_t elements = 0;
    for (size_t i = 0; i < scheme->count; i++) elements += scheme->tensors[i].count;
    return elements;
}

static tw_status begin_message(tw_reducer *reducer, const tw_message *message)
{
    float **gradients = reducer->exchanged + message->first;
    if (tw_scheme_looks(message->scheme))
        return tw_scheme_begin_unseen(message->scheme, gradients, squares_elsewhere(reducer, message));
    if (is_measured_late(message) && reducer->host.size == 1) tw_reducer_measure(reducer, message);
    return tw_scheme_begin(message->scheme, gradients, gradient_norm(reducer, message));
}

/* For the driver. When the last message begins, all others have made their first turn, so all squares are known. */
static tw_status begin(void *context, size_t number, tw_scheme **scheme)
{
    tw_reducer *reducer = context;
    const tw_message *message = &reducer->messages[number];
    if (!tw_reducer_is_first(reducer)) return TW_OK; /* another member of its host exchanges it */
    *scheme = message->scheme;
    TW_TRY(begin_message(reducer, message));
    tw_world_charge(tw_message_elements(*scheme), 0);
    return TW_OK;
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
    stats->message_fp32 += 4 * tw_message_elements(scheme);
    stats->message_packet += account->packet_bytes + account->exact_bytes;
}

static void account_step(tw_reducer *reducer, int skipped)
{
    tw_stats *stats = &reducer->stats;
    uint64_t size = (uint64_t)reducer->size;
    stats->steps++;
    stats->steps_skipped += skipped != 0;
    stats->steps_warmup += reducer->messages[0].scheme->account.warmup != 0;
    stats->bytes_dense += 2 * (size - 1) * 4 * reducer->elements / size;
    if (skipped || !tw_reducer_is_first(reducer)) return;
    for (size_t m = 0; m < reducer->message_count; m++) account_message(stats, reducer->messages[m].scheme);
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

/* Where packets are small a message costs more to begin than to send: then few of them, but enough that one is coded
 * while another is under way. What is not compressed is all wire: then many, so that the first is there soon. */
static size_t least_message(const tw_common_options *common, const tw_tensor *tensors, size_t count)
{
    size_t bytes = 0;
    if (common->message_kb) return (size_t)common->message_kb * 1024;
    for (size_t i = 0; common->compresses && i < count; i++) bytes += sizeof(float) * tw_tensor_count(&tensors[i]);
    bytes /= SPARSE_MESSAGES;
    return bytes < LEAST_MESSAGE ? LEAST_MESSAGE : bytes < MOST_MESSAGE ? bytes : MOST_MESSAGE;
}

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
    int per_host = reducer->host.size;
    return tw_scheme_create_between(spec, tensors + first, end - first, reducer->rank / per_host,
                                    reducer->size / per_host, &message->scheme);
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
    reducer->exchanged = reducer->gradients;
    return tw_allocate(reducer->count, sizeof *reducer->squares, &reducer->squares);
}

static tw_status create_driver(tw_reducer *reducer)
{
    const tw_common_options *common = &reducer->messages[0].scheme->common;
    const tw_reducer_host *host = &reducer->host;
    int lanes = (int)common->in_flight, threads = (int)common->threads;
    tw_driver_settings settings = {.messages = reducer->message_count,
                                   .lanes = common->overlap ? lanes + threads - 1 : 1,
                                   .threads = threads,
                                   .threaded = common->overlap,
                                   .begin = begin,
                                   .context = reducer};
    if (host->size > 1) {
        settings.before = tw_reducer_host_average;
        settings.after = tw_reducer_host_spread;
        settings.aside = host->inside;
        settings.first_alone = reducer->clips; /* a host that clips averages all of the step before it */
    }
    return tw_driver_create(&reducer->driver, host->between ? host->between : reducer->channel, &settings);
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
    TW_TRY(tw_reducer_host_create(reducer, (int)common.per_host));
    TW_TRY(create_messages(reducer, spec, tensors, least_message(&common, tensors, reducer->count)));
    TW_TRY(tw_reducer_host_make_room(reducer));
    reducer->clips = tw_scheme_clip(reducer->messages[0].scheme) > 0;
    return create_driver(reducer);
}

static tw_status build(tw_reducer *reducer, tw_comm *comm, const char *spec, const tw_tensor *tensors, tw_reducer **out)
{
    tw_status channel = tw_channel_create_wide(comm, TW_LANE_NUMBERS + TW_HOST_NUMBERS, &reducer->channel);
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
    tw_driver_release(&reducer->driver);
    for (size_t m = 0; reducer->messages && m < reducer->message_count; m++)
        tw_scheme_destroy(reducer->messages[m].scheme);
    tw_reducer_host_destroy(reducer);
    tw_channel_destroy(reducer->channel);
    tw_free(reducer->messages);
    tw_free(reducer->message_of);
    tw_free(reducer->gradients);
    tw_free(reducer->squares);
    tw_free(reducer);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Messages up to the first of which a tensor is missing may be exchanged. */
static void tell_driver(tw_reducer *reducer)
{
    size_t ready = reducer->ready;
    while (ready < reducer->message_count && !reducer->messages[ready].missing) ready++;
    if (ready == reducer->ready || (reducer->clips && reducer->missing)) return;
    reducer->ready = ready;
    tw_driver_open(&reducer->driver, ready);
}

tw_status tw_reducer_submit(tw_reducer *reducer, size_t index, float *gradient)
{
    TW_TRY(tw_need(reducer, "reducer"));
    if (index >= reducer->count)
        return tw_fail(TW_ERROR_ARGUMENT, "there is no tensor %zu: the table has %zu, counted from 0", index,
                       reducer->count);
    if (!gradient) return tw_fail(TW_ERROR_ARGUMENT, "the gradient of tensor %zu is NULL", index);
    TW_TRY(tw_driver_failure(&reducer->driver));
    if (reducer->gradients[index])
        return tw_fail(TW_ERROR_ORDER, "tensor %zu was submitted already in this step", index);
    tw_message *message = &reducer->messages[reducer->message_of[index]];
    const tw_scheme_tensor *tensor = &message->scheme->tensors[index - message->first];
    /* Here the gradient is still in the cache, so that looking at every element costs little. */
    int later = reducer->host.size > 1 || is_measured_late(message); /* a host's is measured where it is averaged */
    double squares = later ? 0 : tw_kernels_best()->sum_squares(gradient, tensor->count);
    reducer->gradients[index] = gradient;
    reducer->squares[index] = squares;
    reducer->missing--;
    message->missing--;
    tell_driver(reducer);
    return TW_OK;
}

static void start_step(tw_reducer *reducer)
{
    memset(reducer->gradients, 0, reducer->count * sizeof *reducer->gradients);
    for (size_t m = 0; m < reducer->message_count; m++) reducer->messages[m].missing = reducer->messages[m].count;
    reducer->missing = reducer->count;
    reducer->ready = 0;
}

static int is_skipped(const tw_reducer *reducer)
{
    for (size_t m = 0; m < reducer->message_count; m++)
        if (reducer->messages[m].scheme->skipped) return 1;
    return 0;
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
    int skipped = is_skipped(reducer);
    account_step(reducer, skipped);
    tw_status status = skipped ? revert_step(reducer) : TW_OK;
    start_step(reducer);
    return status;
}

tw_status tw_reducer_wait(tw_reducer *reducer)
{
    TW_TRY(tw_need(reducer, "reducer"));
    double start = tw_clock();
    TW_TRY(tw_driver_failure(&reducer->driver));
    if (reducer->missing)
        return tw_fail(TW_ERROR_ORDER, "%zu of %zu tensors were not submitted", reducer->missing, reducer->count);
    tw_status status = tw_driver_wait(&reducer->driver);
    reducer->stats.seconds_wait += tw_clock() - start;
    return status == TW_OK ? finish_step(reducer) : status;
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

static void add_traffic(tw_stats *stats, tw_traffic traffic)
{
    stats->bytes_sent += traffic.bytes_sent;
    stats->bytes_received += traffic.bytes_received;
}

tw_status tw_reducer_stats(const tw_reducer *reducer, tw_stats *stats)
{
    TW_TRY(tw_need(reducer, "reducer"));
    TW_TRY(tw_need(stats, "stats"));
    tw_driver *driver = (tw_driver *)&reducer->driver; /* its threads may be counting */
    tw_driver_seconds spent = tw_driver_spent(driver);
    tw_stats now = reducer->stats;
    now.seconds_codec = spent.coding;
    now.seconds_exchange = spent.wire;
    add_traffic(&now, tw_driver_traffic(driver));
    now.bytes_between = tw_reducer_is_first(reducer) ? now.bytes_sent : 0;
    add_traffic(&now, tw_driver_traffic_aside(driver));
    if (reducer->host.between) add_traffic(&now, tw_channel_traffic(reducer->channel));
    return tw_copy_sized(stats, &now, sizeof now, "tw_stats");
}
