/* Making, freeing and asking a tw_outer. */
#include "outer.h"

#include "agreement.h"
#include "channel.h"
#include "error.h"
#include "held.h"
#include "memory.h"
#include "reducer.h"
#include "sized.h"
#include "table.h"

#include <string.h>

/* ---- making ------------------------------------------------------------------------------------------------------ */

static tw_status keep_table(tw_outer *outer, const tw_tensor *tensors, size_t count)
{
    TW_TRY(tw_table_keep(tensors, count, &outer->tensors));
    TW_TRY(tw_allocate(count + 1, sizeof *outer->places, &outer->places));
    for (; outer->count < count; outer->count++) {
        outer->elements += tw_tensor_count(&tensors[outer->count]);
        outer->places[outer->count + 1] = outer->elements;
    }
    return TW_OK;
}

/* Cuts the table where the parts come closest to equal sizes. Where there are fewer tensors than parts, the last ones
 * have none. */
static tw_status outer_cut(tw_outer *outer)
{
    size_t wanted = outer->fragment_count, tensor = 0;
    TW_TRY(tw_allocate(wanted, sizeof *outer->fragments, &outer->fragments));
    for (size_t f = 0; f < wanted; f++) {
        tw_fragment *fragment = &outer->fragments[f];
        size_t after = wanted - f - 1; /* parts, which want a tensor each */
        double end = (double)outer->elements * (double)(f + 1) / (double)wanted;
        fragment->first = tensor;
        fragment->start = outer->places[tensor];
        while (tensor < outer->count && (after == 0 || tensor == fragment->first ||
                                         (outer->count - tensor > after &&
                                          (double)(outer->places[tensor] + outer->places[tensor + 1]) / 2 <= end)))
            tensor++;
        fragment->count = tensor - fragment->first;
        fragment->elements = outer->places[tensor] - fragment->start;
    }
    return TW_OK;
}

static tw_status create_own_arrays(tw_outer *outer)
{
    outer->began = outer->theta;
    if (!outer->options.eager) return TW_OK;
    TW_TRY(tw_allocate(outer->elements, sizeof *outer->own_v, &outer->own_v));
    TW_TRY(tw_allocate(outer->elements, sizeof *outer->own_part, &outer->own_part));
    return tw_allocate(outer->elements, sizeof *outer->began, &outer->began);
}

/* An odd distance goes through all columns of a matrix whose width is a power of two. */
static tw_status create_samples(tw_fragment *fragment)
{
    if (fragment->elements == 0) return TW_OK;
    fragment->apart = (fragment->elements - 1) / TW_SAMPLED | 1;
    fragment->sampled = (fragment->elements - 1) / fragment->apart + 1;
    return tw_allocate(fragment->sampled, sizeof *fragment->before, &fragment->before);
}

static tw_status outer_create_arrays(tw_outer *outer)
{
    TW_TRY(tw_allocate(outer->elements, sizeof *outer->theta, &outer->theta));
    TW_TRY(create_own_arrays(outer));
    TW_TRY(tw_allocate(outer->count, sizeof *outer->shown, &outer->shown));
    for (size_t i = 0; i < outer->count; i++) outer->shown[i] = outer->theta + outer->places[i];
    for (size_t f = 0; f < outer->fragment_count; f++) TW_TRY(create_samples(&outer->fragments[f]));
    if (outer->options.merge)
        TW_TRY(tw_allocate(outer->count * ((size_t)outer->size + 2), sizeof *outer->lengths, &outer->lengths));
    TW_TRY(tw_allocate(outer->elements, sizeof *outer->v, &outer->v));
    TW_TRY(tw_allocate(outer->elements, sizeof *outer->delta, &outer->delta));
    TW_TRY(tw_allocate(2 * outer->count, sizeof *outer->digests, &outer->digests));
    TW_TRY(tw_allocate((size_t)outer->size, sizeof *outer->shares, &outer->shares));
    return tw_allocate((size_t)outer->size, sizeof *outer->words, &outer->words);
}

tw_status tw_outer_describe(tw_outer *outer, const char *spec, const tw_tensor *tensors, size_t count, char **exchange)
{
    TW_TRY(tw_outer_find(spec, &outer->method));
    TW_TRY(tw_outer_parse(outer->method, spec, &outer->options, exchange));
    TW_TRY(keep_table(outer, tensors, count));
    outer->fragment_count = (size_t)outer->options.fragments;
    return outer_cut(outer);
}

/* All that can be done alone. */
static tw_status outer_prepare(tw_outer *outer, const char *spec, const tw_tensor *tensors, size_t count,
                               char **exchange, tw_outer **out)
{
    TW_TRY(tw_need(out, "outer"));
    TW_TRY(tw_outer_describe(outer, spec, tensors, count, exchange));
    TW_TRY(tw_reducer_check_names(*exchange, tensors, count));
    return outer_create_arrays(outer);
}

/* A momentum of its own would go over the pseudo-gradients, beside the outer one. */
static tw_status check_exchange(const tw_outer *outer, const char *exchange)
{
    const tw_reducer *reducer = outer->fragments[0].reducer;
    float momentum = tw_reducer_momentum(reducer, NULL);
    if (momentum != 0)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "%s: exchange=%s has a momentum of its own, %g; take exchange=topk, or, unless it is Adam's, "
                       "write momentum=0 behind it",
                       outer->method->name, exchange, (double)momentum);
    if (tw_reducer_is_by_senders(reducer) && outer->options.delay > 0)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "%s: agg=senders where parts are sent before it is known who gives one; it takes delay=0 and "
                       "eager=off",
                       outer->method->name);
    return TW_OK;
}

static tw_status create_reducers(tw_outer *outer, tw_comm *comm, const char *exchange)
{
    for (size_t f = 0; f < outer->fragment_count && outer->fragments[f].count > 0; f++) {
        tw_fragment *fragment = &outer->fragments[f];
        const tw_tensor *tensors = outer->tensors + fragment->first;
        TW_TRY(tw_reducer_create_part(comm, exchange, tensors, fragment->count, &fragment->reducer));
        tw_reducer_show_weights(fragment->reducer, outer->shown + fragment->first);
        tw_reducer_show_shares(fragment->reducer, outer->shares);
    }
    return check_exchange(outer, exchange);
}

static tw_status outer_build(tw_outer *outer, tw_comm *comm, const char *spec, const tw_tensor *tensors, size_t count,
                             tw_outer **out)
{
    char *exchange = NULL;
    TW_TRY(tw_channel_create_again(comm, 0, &outer->channel));
    tw_status status = outer_prepare(outer, spec, tensors, count, &exchange, out);
    status = tw_agree(outer->channel, "outer loop", status, spec, 0, tensors, count);
    if (status == TW_OK) status = create_reducers(outer, comm, exchange);
    tw_free(exchange);
    return status;
}

static void set_quiet(tw_outer *outer, int quiet)
{
    tw_channel_keep_quiet(outer->channel, quiet - outer->quiet);
    outer->quiet = quiet;
}

void tw_outer_keep_quiet(tw_outer *outer, int quiet)
{
    set_quiet(outer, quiet || outer->options.delay > 0 || outer->options.eager);
}

tw_status tw_outer_create(tw_comm *comm, const char *spec, const tw_tensor *tensors, size_t count, tw_outer **out)
{
    tw_outer *outer;
    TW_TRY(tw_comm_need(comm));
    tw_status status = tw_allocate(1, sizeof *outer, &outer);
    if (status != TW_OK) return tw_channel_give_up(comm->channel, status); /* the others wait to hear of it */
    outer->rank = tw_comm_rank(comm);
    outer->size = tw_comm_size(comm);
    outer->weight = 1;
    outer->alike = 1;
    status = outer_build(outer, comm, spec, tensors, count, out);
    if (status == TW_OK) tw_outer_keep_quiet(outer, 0);
    if (status != TW_OK) {
        tw_outer_destroy(outer);
        return status;
    }
    *out = outer;
    return TW_OK;
}

void tw_outer_destroy(tw_outer *outer)
{
    if (!outer || (outer->channel && tw_process_is_child(outer->channel->comm->process))) return;
    for (size_t f = 0; outer->fragments && f < outer->fragment_count; f++) {
        tw_reducer_destroy(outer->fragments[f].reducer);
        tw_free(outer->fragments[f].before);
    }
    if (outer->channel) set_quiet(outer, 0);
    tw_channel_destroy(outer->channel);
    tw_free(outer->fragments);
    tw_free(outer->tensors);
    tw_free(outer->places);
    tw_free(outer->shown);
    for (int moment = 0; moment < TW_MOMENTS; moment++) tw_free(outer->moments[moment]);
    tw_free(outer->shares);
    tw_free(outer->lengths);
    if (outer->began != outer->theta) tw_free(outer->began);
    tw_free(outer->own_v);
    tw_free(outer->own_part);
    tw_free(outer->theta);
    tw_free(outer->v);
    tw_free(outer->delta);
    tw_free(outer->digests);
    tw_free(outer->words);
    tw_free(outer);
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

const char *tw_outer_plan(const tw_outer *outer, size_t index)
{
    size_t f = 0;
    if (!outer || index >= outer->count) return "";
    while (index >= outer->fragments[f].first + outer->fragments[f].count) f++;
    return tw_reducer_plan(outer->fragments[f].reducer, index - outer->fragments[f].first);
}

static tw_status add_reducer(const tw_reducer *reducer, tw_outer_counts *sum)
{
    tw_reducer_counts one = {.struct_size = sizeof one};
    TW_TRY(tw_reducer_stats(reducer, &one));
    sum->bytes_sent += one.bytes_sent;
    sum->bytes_received += one.bytes_received;
    sum->bytes_between += one.bytes_between;
    sum->elements_sent += one.elements_sent;
    sum->elements_total += one.elements_total;
    sum->compressed_fp32 += one.compressed_fp32;
    sum->compressed_packet += one.compressed_packet;
    sum->message_fp32 += one.message_fp32;
    sum->message_packet += one.message_packet;
    sum->seconds_codec += one.seconds_codec;
    sum->seconds_exchange += one.seconds_exchange;
    return TW_OK;
}

tw_status tw_outer_stats(const tw_outer *outer, tw_outer_counts *stats)
{
    TW_TRY(tw_outer_need(outer));
    TW_TRY(tw_need(stats, "stats"));
    tw_outer_counts now = outer->stats;
    for (size_t f = 0; f < outer->fragment_count && outer->fragments[f].reducer; f++)
        TW_TRY(add_reducer(outer->fragments[f].reducer, &now));
    const tw_traffic words = tw_channel_traffic(outer->channel), inside = tw_outer_host_traffic(outer);
    now.bytes_sent += words.bytes_sent - outer->start.bytes_sent + inside.bytes_sent;
    now.bytes_between += words.bytes_sent - outer->start.bytes_sent;
    now.bytes_received += words.bytes_received - outer->start.bytes_received + inside.bytes_received;
    now.rounds = outer->round;
    now.bytes_dense = (uint64_t)(8.0 * (outer->size - 1) / outer->size * (double)outer->elements * (double)now.steps);
    return tw_copy_sized(stats, &now, sizeof now, "tw_outer_counts");
}
