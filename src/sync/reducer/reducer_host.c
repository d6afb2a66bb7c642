#include "reducer_host.h"

#include "channel.h"
#include "compress.h"
#include "error.h"
#include "hosts.h"
#include "kernels.h"
#include "memory.h"
#include "thread.h"
#include "zeros.h"

#include <math.h>
#include <string.h>

/* What the first rank has to say of a message beside its values: a float behind them, which is the sum of these. */
enum { SKIPPED = 1, WARMUP = 2, LAST_WORD = SKIPPED + WARMUP };

int tw_reducer_is_first(const tw_reducer *reducer)
{
    return reducer->host.place == 0;
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

tw_status tw_reducer_host_create(tw_reducer *reducer, int per_host)
{
    tw_reducer_host *host = &reducer->host;
    tw_channel *whole = reducer->channel;
    unsigned members = whole->number + 1 + TW_LANE_NUMBERS, firsts = members + TW_HOST_COMM_NUMBERS;
    TW_TRY(tw_hosts_check(reducer->size, per_host));
    host->size = per_host;
    host->place = reducer->rank % per_host;
    if (per_host == 1) return TW_OK;
    TW_TRY(tw_hosts_create_members(whole->comm, per_host, members, &host->members));
    TW_TRY(tw_channel_create_wide(host->members, TW_LANE_NUMBERS, &host->inside));
    if (!tw_reducer_is_first(reducer)) return TW_OK;
    TW_TRY(tw_hosts_create_firsts(whole->comm, per_host, firsts, &host->firsts));
    return tw_channel_create_wide(host->firsts, TW_LANE_NUMBERS, &host->between);
}

/* A message's tensors lie in a row, with a word behind them. */
tw_status tw_reducer_host_make_room(tw_reducer *reducer)
{
    tw_reducer_host *host = &reducer->host;
    if (host->size == 1) return TW_OK;
    TW_TRY(tw_allocate(reducer->elements + reducer->message_count, sizeof *host->values, &host->values));
    TW_TRY(tw_allocate(reducer->count, sizeof *host->parts, &host->parts));
    float *part = host->values;
    for (size_t m = 0; m < reducer->message_count; m++, part++) {
        const tw_message *message = &reducer->messages[m];
        for (size_t i = 0; i < message->count; i++) {
            host->parts[message->first + i] = part;
            part += message->scheme->tensors[i].count;
        }
    }
    reducer->exchanged = host->parts;
    return TW_OK;
}

void tw_reducer_host_destroy(tw_reducer *reducer)
{
    tw_reducer_host *host = &reducer->host;
    tw_channel_destroy(host->between);
    tw_channel_destroy(host->inside);
    tw_comm_destroy(host->firsts);
    tw_comm_destroy(host->members);
    tw_free(host->parts);
    tw_free(host->values);
}

/* ---- before a message's rounds ----------------------------------------------------------------------------------- */

/* This member's share of the mean. A tensor that is absent adds nothing to it, -0, and one that is there begins with
 * another number: so that the sum of a tensor that no member has a gradient for is told from zeros. */
static void pack(tw_reducer *reducer, const tw_message *message, size_t count)
{
    for (size_t i = message->first; i < message->first + message->count; i++)
        tw_submission_get(&reducer->submitted[i], reducer->exchanged[i],
                          message->scheme->tensors[i - message->first].count);
    tw_kernels_best()->scale(reducer->exchanged[message->first], 1.0f / (float)reducer->host.size, count);
    for (size_t i = message->first; i < message->first + message->count; i++)
        if (!reducer->submitted[i].absent) reducer->exchanged[i][0] += 0.0F;
}

static void find_absent(tw_reducer *reducer, const tw_message *message)
{
    for (size_t i = message->first; i < message->first + message->count; i++) {
        float first = reducer->exchanged[i][0];
        reducer->absent[i] = first == 0 && signbit(first);
    }
}

static tw_status reducer_host_average(tw_reducer *reducer, const tw_message *message, tw_channel *aside)
{
    size_t count = message->elements;
    pack(reducer, message, count);
    TW_TRY(tw_channel_allreduce(aside, TW_F32, reducer->exchanged[message->first], count));
    tw_charge(0, count * sizeof(float));
    find_absent(reducer, message);
    int looks = tw_scheme_looks(message->scheme); /* in its own pass, and then nobody else needs to */
    if (tw_reducer_is_first(reducer) && !looks) tw_reducer_measure(reducer, message);
    return TW_OK;
}

/* The norm of the whole, which clipping needs before the first message begins, is known when all are averaged. */
tw_status tw_reducer_host_average(tw_reducer *reducer, size_t number, tw_channel *aside)
{
    if (!reducer->clips) return reducer_host_average(reducer, &reducer->messages[number], aside);
    for (size_t m = 0; number == 0 && m < reducer->message_count; m++)
        TW_TRY(reducer_host_average(reducer, &reducer->messages[m], aside));
    return TW_OK;
}

/* ---- after them -------------------------------------------------------------------------------------------------- */

static float word_of(const tw_scheme *scheme)
{
    return (float)((scheme->skipped ? SKIPPED : 0) + (scheme->account.warmup ? WARMUP : 0));
}

static tw_status heed(tw_scheme *scheme, const tw_channel *aside, float word)
{
    int is_one = word >= 0 && word <= LAST_WORD, flags = is_one ? (int)word : 0;
    if (!is_one || (float)flags != word)
        return tw_fail(TW_ERROR_PACKET, "rank %d tells its host what cannot be: %g", tw_comm_name(aside->comm, 0),
                       (double)word);
    scheme->skipped = flags & SKIPPED;
    scheme->account.warmup = (flags & WARMUP) != 0;
    return TW_OK;
}

/* The values of all tensors in a row. */
static void unpack(tw_reducer *reducer, const tw_message *message, const float *values)
{
    for (size_t i = 0; i < message->count; i++) {
        size_t count = message->scheme->tensors[i].count;
        tw_submission_put(&reducer->submitted[message->first + i], values, count);
        values += count;
    }
}

/* The values with the word behind them, packed where that is less: of what a sparse scheme brings most is zero. */
static tw_status choose_form(const tw_message *message, float *values, size_t count, tw_channel *aside,
                             const void **data, size_t *size)
{
    size_t bytes = count * sizeof *values;
    values[count] = word_of(message->scheme);
    *data = values;
    *size = bytes + sizeof *values;
    TW_TRY(tw_channel_reserve(aside, *size));
    size_t packed = tw_zeros_pack(values, count, aside->scratch, bytes / 2);
    if (!packed) return TW_OK;
    memcpy(aside->scratch + packed, values + count, sizeof *values);
    *data = aside->scratch;
    *size = packed + sizeof *values;
    return TW_OK;
}

static tw_status reducer_host_tell(tw_reducer *reducer, const tw_message *message, size_t count, tw_channel *aside)
{
    float *values = reducer->exchanged[message->first];
    const void *data;
    size_t size;
    TW_TRY(choose_form(message, values, count, aside, &data, &size));
    TW_TRY(tw_channel_broadcast(aside, 0, data, size, (count + 1) * sizeof *values, &data, &size));
    unpack(reducer, message, values);
    return TW_OK;
}

static tw_status reducer_host_hear(tw_reducer *reducer, const tw_message *message, size_t count, tw_channel *aside)
{
    float *values = reducer->exchanged[message->first], word;
    const void *packet;
    size_t size, bytes = count * sizeof *values;
    TW_TRY(tw_channel_broadcast(aside, 0, NULL, 0, bytes + sizeof word, &packet, &size));
    int is_packed = size >= sizeof word && size < bytes + sizeof word;
    if (is_packed && !tw_zeros_unpack(packet, size - sizeof word, values, count)) size = 0;
    if (size < sizeof word)
        return tw_fail(TW_ERROR_PACKET, "rank %d tells its host what cannot be: values that are not packed as agreed",
                       tw_comm_name(aside->comm, 0));
    memcpy(&word, (const unsigned char *)packet + size - sizeof word, sizeof word);
    TW_TRY(heed(message->scheme, aside, word));
    unpack(reducer, message, is_packed ? values : packet);
    return TW_OK;
}

tw_status tw_reducer_host_spread(tw_reducer *reducer, size_t number, tw_channel *aside)
{
    const tw_message *message = &reducer->messages[number];
    size_t count = message->elements;
    TW_TRY(tw_reducer_is_first(reducer) ? reducer_host_tell(reducer, message, count, aside)
                                        : reducer_host_hear(reducer, message, count, aside));
    tw_channel_release(aside);
    return TW_OK;
}
