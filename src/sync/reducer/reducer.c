/* tw_reducer: gradients go in as backward produces them, the mean over workers comes out. */
#include "reducer.h"

#include "agreement.h"
#include "channel.h"
#include "compress.h"
#include "error.h"
#include "kernels.h"
#include "memory.h"
#include "outside.h"
#include "patterns.h"
#include "reducer_host.h"
#include "sized.h"
#include "thread.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What message_kb=0 comes to: bytes, and messages. */
enum { LEAST_MESSAGE = 4 << 20, MOST_MESSAGE = 32 << 20, SPARSE_MESSAGES = 4 };

/* ---- one message ------------------------------------------------------------------------------------------------ */

void tw_reducer_measure(tw_reducer *reducer, const tw_message *message)
{
    for (size_t i = 0; i < message->count; i++) {
        double *squares = &reducer->squares[message->first + i];
        const float *values = reducer->exchanged[message->first + i];
        if (*squares < 0) *squares = tw_kernels_best()->sum_squares(values, message->scheme->tensors[i].count);
    }
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
static double squares_of_others(void *context)
{
    tw_reducer *reducer = context;
    double others = 0;
    tw_driver_await_others(&reducer->driver);
    for (size_t m = 0; m + 1 < reducer->message_count; m++) others += reducer->messages[m].scheme->squares;
    return isfinite(others) ? others : 0;
}

size_t tw_message_elements(const tw_scheme *scheme)
{
    size_t elements = 0;
    for (size_t i = 0; i < scheme->count; i++) elements += scheme->tensors[i].count;
    return elements;
}

/* Makes a message's gradients floats, and has them measured. With hosts, what is before the rounds has seen to it. */
static void reducer_take_in(tw_reducer *reducer, const tw_message *message)
{
    if (reducer->host.size > 1) return;
    for (size_t i = message->first; i < message->first + message->count; i++) {
        const tw_submission *submitted = &reducer->submitted[i];
        if (submitted->data != reducer->gradients[i] && !submitted->absent)
            tw_submission_get(submitted, reducer->gradients[i], message->scheme->tensors[i - message->first].count);
    }
    if (!tw_scheme_looks(message->scheme)) tw_reducer_measure(reducer, message);
}

/* All of the step's are, before the first message, where its norm has to be known by then. */
static void take_message_in(tw_reducer *reducer, size_t number)
{
    if (!reducer->clips) reducer_take_in(reducer, &reducer->messages[number]);
    for (size_t m = 0; reducer->clips && number == 0 && m < reducer->message_count; m++)
        reducer_take_in(reducer, &reducer->messages[m]);
}

/* The last of a step needs what was measured of the others: on the grounds of gradient_norm. */
static tw_status begin_message(tw_reducer *reducer, const tw_message *message)
{
    float **gradients = reducer->exchanged + message->first;
    const unsigned char *absent = reducer->absent + message->first;
    tw_squares_elsewhere others = {message->first == 0 ? squares_of_others : NULL, reducer};
    if (tw_scheme_looks(message->scheme)) return tw_scheme_begin_unseen(message->scheme, gradients, absent, others);
    if (message->first == 0 && reducer->unmeasured && !reducer->clips) tw_driver_await_others(&reducer->driver);
    return tw_scheme_begin_without(message->scheme, gradients, absent, gradient_norm(reducer, message));
}

/* For the driver. */
static tw_status reducer_begin(void *context, size_t number, tw_scheme **scheme)
{
    tw_reducer *reducer = context;
    const tw_message *message = &reducer->messages[number];
    if (!tw_reducer_is_first(reducer)) return TW_OK; /* another member of its host exchanges it */
    *scheme = message->scheme;
    tw_charge(tw_message_elements(*scheme), 0);
    take_message_in(reducer, number);
    return begin_message(reducer, message);
}

/* For the driver. What clips begins with all of the step. */
static tw_status ask_ready(void *context, size_t number, int *ready)
{
    tw_reducer *reducer = context;
    const tw_message *message = &reducer->messages[number];
    size_t first = reducer->clips ? 0 : message->first, count = reducer->clips ? reducer->count : message->count;
    *ready = 1;
    if (reducer->clips && number > 0) return TW_OK;
    for (size_t i = first; *ready && i < first + count; i++)
        TW_TRY(tw_submission_ask(&reducer->submitted[i], i, ready));
    return TW_OK;
}

/* For the driver, without hosts: the means as their owners want them. */
static tw_status hand_back(void *context, size_t number)
{
    tw_reducer *reducer = context;
    const tw_message *message = &reducer->messages[number];
    for (size_t i = message->first; i < message->first + message->count; i++)
        if (reducer->submitted[i].data != reducer->gradients[i])
            tw_submission_put(&reducer->submitted[i], reducer->gradients[i],
                              message->scheme->tensors[i - message->first].count);
    return TW_OK;
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

/* Where packets are small a message costs more to begin than to send: then few of them, but enough that one is coded
 * while another is under way. What is not compressed is all wire: then many, so that the first is there soon. */
size_t tw_reducer_least_message(const tw_scheme_ops *ops, const tw_tensor *tensors, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; tw_leaves_tensors(ops) && i < count; i++) bytes += sizeof(float) * tw_tensor_count(&tensors[i]);
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

static tw_status reducer_create_arrays(tw_reducer *reducer)
{
    TW_TRY(tw_allocate(reducer->count, sizeof *reducer->message_of, &reducer->message_of));
    TW_TRY(tw_allocate(reducer->count, sizeof *reducer->submitted, &reducer->submitted));
    TW_TRY(tw_allocate(reducer->count, sizeof *reducer->gradients, &reducer->gradients));
    TW_TRY(tw_allocate(reducer->count, sizeof *reducer->absent, &reducer->absent));
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
                                   .first_alone = reducer->clips, /* it has to do with all of the step */
                                   .ready = ask_ready,
                                   .begin = reducer_begin,
                                   .end = host->size > 1 ? NULL : hand_back,
                                   .context = reducer};
    if (host->size > 1) {
        settings.before = tw_reducer_host_average;
        settings.after = tw_reducer_host_spread;
        settings.aside = host->inside;
    }
    return tw_driver_create(&reducer->driver, host->between ? host->between : reducer->channel, &settings);
}

/* All that can be done alone. */
static tw_status reducer_prepare(tw_reducer *reducer, const char *spec, const tw_tensor *tensors, tw_reducer **out)
{
    const tw_scheme_ops *ops;
    tw_common_options common = {0};
    TW_TRY(tw_need(out, "reducer"));
    TW_TRY(tw_table_check(tensors, reducer->count));
    TW_TRY(tw_common_options_read(spec, &ops, &common));
    tw_status patterns = tw_patterns_check(common.dense, tensors, reducer->count);
    tw_free(common.dense);
    TW_TRY(patterns);
    TW_TRY(tw_spec_check(spec, tensors, reducer->count));
    TW_TRY(reducer_create_arrays(reducer));
    TW_TRY(tw_reducer_host_create(reducer, (int)common.per_host));
    size_t least =
        common.message_kb ? (size_t)common.message_kb * 1024 : tw_reducer_least_message(ops, tensors, reducer->count);
    TW_TRY(create_messages(reducer, spec, tensors, least));
    TW_TRY(tw_reducer_host_make_room(reducer));
    reducer->clips = tw_scheme_clip(reducer->messages[0].scheme) > 0;
    return create_driver(reducer);
}

static tw_status reducer_build(tw_reducer *reducer, tw_comm *comm, const char *spec, const tw_tensor *tensors,
                               tw_reducer **out)
{
    tw_status channel = tw_channel_create_again(comm, TW_LANE_NUMBERS + TW_HOST_NUMBERS, &reducer->channel);
    if (channel != TW_OK) return tw_channel_give_up(comm->channel, channel);
    tw_status prepared = reducer_prepare(reducer, spec, tensors, out);
    uint32_t code = prepared == TW_OK ? tw_outside_digest(reducer->messages[0].scheme->ops) : 0;
    return tw_agree(reducer->channel, "reducer", prepared, spec, code, tensors, reducer->count);
}

static void tell_plan(const tw_reducer *reducer, const char *spec)
{
    const tw_comm *comm = reducer->channel->comm;
    size_t compressed = 0;
    double momentum = (double)tw_reducer_momentum(reducer, NULL);
    for (size_t m = 0; m < reducer->message_count; m++)
        for (size_t i = 0; i < reducer->messages[m].count; i++)
            compressed += reducer->messages[m].scheme->tensors[i].compressed != 0;
    tw_log(TW_LOG_NOTE, "rank %d of %d: %s compresses %zu of %zu tensors, in %zu messages", comm->rank, comm->size,
           spec, compressed, reducer->count, reducer->message_count);
    if (momentum > 0)
        tw_log(TW_LOG_NOTE, "rank %d: %s has a momentum of %g itself; the optimiser takes plain steps", comm->rank,
               spec, momentum);
}

tw_status tw_reducer_create(tw_comm *comm, const char *spec, const tw_tensor *tensors, size_t count, tw_reducer **out)
{
    tw_reducer *reducer;
    TW_TRY(tw_comm_need(comm));
    tw_status status = tw_allocate(1, sizeof *reducer, &reducer);
    if (status != TW_OK) return tw_channel_give_up(comm->channel, status); /* the others wait to hear of it */
    reducer->rank = tw_comm_rank(comm);
    reducer->size = tw_comm_size(comm);
    reducer->count = reducer->missing = count;
    status = reducer_build(reducer, comm, spec, tensors, out);
    if (status != TW_OK) {
        tw_reducer_destroy(reducer);
        return status;
    }
    *out = reducer;
    tell_plan(reducer, spec);
    return TW_OK;
}

tw_status tw_reducer_need(const tw_reducer *reducer)
{
    TW_TRY(tw_need(reducer, "reducer"));
    return tw_comm_need(reducer->channel->comm);
}

void tw_reducer_destroy(tw_reducer *reducer)
{
    if (!reducer || (reducer->channel && tw_process_is_child(reducer->channel->comm->process))) return;
    tw_driver_release(&reducer->driver);
    for (size_t m = 0; reducer->messages && m < reducer->message_count; m++) {
        tw_scheme_destroy(reducer->messages[m].scheme);
        tw_free(reducer->messages[m].room);
    }
    tw_reducer_host_destroy(reducer);
    tw_channel_destroy(reducer->channel);
    tw_free(reducer->messages);
    tw_free(reducer->message_of);
    tw_free(reducer->submitted);
    tw_free(reducer->gradients);
    tw_free(reducer->absent);
    tw_free(reducer->squares);
    tw_free(reducer);
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

float tw_reducer_momentum(const tw_reducer *reducer, int *nesterov)
{
    return tw_scheme_momentum(reducer ? reducer->messages[0].scheme : NULL, nesterov);
}

int tw_reducer_is_by_senders(const tw_reducer *reducer)
{
    return reducer->messages[0].scheme->by_senders;
}

const char *tw_reducer_plan(const tw_reducer *reducer, size_t index)
{
    if (!reducer || index >= reducer->count) return "";
    const tw_message *message = &reducer->messages[reducer->message_of[index]];
    return tw_scheme_plan(message->scheme, index - message->first);
}

uint64_t tw_reducer_state_bytes(const tw_reducer *reducer)
{
    uint64_t bytes = 0;
    for (size_t m = 0; reducer && tw_reducer_is_first(reducer) && m < reducer->message_count; m++)
        bytes += tw_scheme_state_bytes(reducer->messages[m].scheme);
    return bytes;
}

static void reducer_add_traffic(tw_reducer_counts *stats, tw_traffic traffic)
{
    stats->bytes_sent += traffic.bytes_sent;
    stats->bytes_received += traffic.bytes_received;
}

tw_status tw_reducer_stats(const tw_reducer *reducer, tw_reducer_counts *stats)
{
    TW_TRY(tw_reducer_need(reducer));
    TW_TRY(tw_need(stats, "stats"));
    tw_driver *driver = (tw_driver *)&reducer->driver; /* its threads may be counting */
    tw_driver_seconds spent = tw_driver_spent(driver);
    tw_reducer_counts now = reducer->stats;
    now.seconds_codec = spent.coding;
    now.seconds_exchange = spent.wire;
    reducer_add_traffic(&now, tw_driver_traffic(driver));
    now.bytes_between = tw_reducer_is_first(reducer) ? now.bytes_sent : 0;
    reducer_add_traffic(&now, tw_driver_traffic_aside(driver));
    if (reducer->host.between) reducer_add_traffic(&now, tw_channel_traffic(reducer->channel));
    return tw_copy_sized(stats, &now, sizeof now, "tw_reducer_counts");
}
