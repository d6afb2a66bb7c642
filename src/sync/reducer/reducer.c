/* tw_reducer: gradients go in as backward produces them, the mean over workers comes out. */
#include "reducer.h"

#include "agreement.h"
#include "channel.h"
#include "compress.h"
#include "error.h"
#include "held.h"
#include "memory.h"
#include "outside.h"
#include "patterns.h"
#include "reducer_host.h"
#include "sized.h"

/* What message_kb=0 comes to: bytes, and messages. */
enum { LEAST_MESSAGE = 4 << 20, MOST_MESSAGE = 32 << 20, SPARSE_MESSAGES = 4 };

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
        message->elements += tw_tensor_count(&tensors[i]);
    }
    reducer->elements += message->elements;
    int per_host = reducer->host.size;
    TW_TRY(tw_scheme_create_between(spec, tensors + first, end - first, reducer->rank / per_host,
                                    reducer->size / per_host, &message->scheme));
    message->scheme->carried = 1;
    return TW_OK;
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

tw_status tw_reducer_check_names(const char *spec, const tw_tensor *tensors, size_t count)
{
    const tw_scheme_ops *ops;
    tw_common_options common = {0};
    TW_TRY(tw_common_options_read(spec, &ops, &common));
    tw_status patterns = tw_patterns_check(common.dense, tensors, count);
    tw_free(common.dense);
    return patterns == TW_OK ? tw_spec_check(spec, tensors, count) : patterns;
}

/* All that can be done alone. */
static tw_status reducer_prepare(tw_reducer *reducer, const char *spec, const tw_tensor *tensors, tw_reducer **out)
{
    const tw_scheme_ops *ops;
    tw_common_options common = {0};
    TW_TRY(tw_need(out, "reducer"));
    TW_TRY(tw_table_check(tensors, reducer->count));
    if (!reducer->is_part) TW_TRY(tw_reducer_check_names(spec, tensors, reducer->count));
    TW_TRY(tw_common_options_read(spec, &ops, &common));
    tw_free(common.dense);
    TW_TRY(reducer_create_arrays(reducer));
    TW_TRY(tw_reducer_host_create(reducer, (int)common.per_host));
    size_t least =
        common.message_kb ? (size_t)common.message_kb * 1024 : tw_reducer_least_message(ops, tensors, reducer->count);
    TW_TRY(create_messages(reducer, spec, tensors, least));
    TW_TRY(tw_reducer_host_make_room(reducer));
    reducer->clips = tw_scheme_clip(reducer->messages[0].scheme) > 0;
    return tw_driver_create(reducer);
}

static tw_status reducer_build(tw_reducer *reducer, tw_comm *comm, const char *spec, const tw_tensor *tensors,
                               tw_reducer **out)
{
    TW_TRY(tw_channel_create_again(comm, TW_LANE_NUMBERS + TW_HOST_NUMBERS, &reducer->channel));
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
    if (comm->size > 1) /* alone it sends nothing, such as one that only tries a spec */
        tw_log(TW_LOG_NOTE, "rank %d of %d: %s compresses %zu of %zu tensors, in %zu messages", comm->rank, comm->size,
               spec, compressed, reducer->count, reducer->message_count);
    if (momentum > 0)
        tw_log(TW_LOG_NOTE, "rank %d: %s has a momentum of %g itself; the optimiser takes plain steps", comm->rank,
               spec, momentum);
}

static tw_status reducer_create(tw_comm *comm, const char *spec, const tw_tensor *tensors, size_t count, int is_part,
                                tw_reducer **out)
{
    tw_reducer *reducer;
    TW_TRY(tw_comm_need(comm));
    tw_status status = tw_allocate(1, sizeof *reducer, &reducer);
    if (status != TW_OK) return tw_channel_give_up(comm->channel, status); /* the others wait to hear of it */
    reducer->rank = tw_comm_rank(comm);
    reducer->size = tw_comm_size(comm);
    reducer->count = reducer->missing = count;
    reducer->is_part = is_part;
    status = reducer_build(reducer, comm, spec, tensors, out);
    if (status != TW_OK) {
        tw_reducer_destroy(reducer);
        return status;
    }
    *out = reducer;
    tell_plan(reducer, spec);
    return TW_OK;
}

tw_status tw_reducer_create(tw_comm *comm, const char *spec, const tw_tensor *tensors, size_t count, tw_reducer **out)
{
    return reducer_create(comm, spec, tensors, count, 0, out);
}

tw_status tw_reducer_create_part(tw_comm *comm, const char *spec, const tw_tensor *tensors, size_t count,
                                 tw_reducer **out)
{
    return reducer_create(comm, spec, tensors, count, 1, out);
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
