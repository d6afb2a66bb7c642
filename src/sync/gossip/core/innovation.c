#include "innovation.h"

#include "channel.h"
#include "error.h"
#include "kernels.h"
#include "memory.h"

#include <float.h>
#include <math.h>
#include <string.h>

static size_t sent_of(const tw_innovation *innovation, size_t tensor)
{
    size_t n = tw_tensor_count(&innovation->gossip.tensors[tensor]);
    size_t k = (size_t)llround(innovation->density * (double)n);
    return k < 1 ? 1 : k < n ? k : n;
}

static tw_coding coding_of(const tw_innovation *innovation)
{
    return (tw_coding){(tw_value_code)innovation->values, (tw_index_choice)innovation->indices, innovation->link};
}

static tw_status create_buffers(tw_innovation *innovation)
{
    const tw_gossip *gossip = &innovation->gossip;
    size_t most_n = 0, most_k = 0;
    innovation->capacity = tw_packet_bound_header() + tw_packet_bound_block(sizeof(uint32_t));
    for (size_t i = 0; i < gossip->count; i++) {
        size_t n = tw_tensor_count(&gossip->tensors[i]), k = sent_of(innovation, i);
        innovation->capacity += tw_packet_bound_sparse(n, k, coding_of(innovation));
        if (n > most_n) most_n = n;
        if (k > most_k) most_k = k;
    }
    TW_TRY(tw_selector_create(&innovation->selector, most_n, most_k));
    TW_TRY(tw_allocate(most_k, sizeof *innovation->index, &innovation->index));
    TW_TRY(tw_allocate(most_k, sizeof *innovation->value, &innovation->value));
    TW_TRY(tw_allocate_unset(innovation->capacity, &innovation->outgoing));
    for (int i = 0; i < innovation->partners; i++)
        TW_TRY(tw_allocate_unset(innovation->capacity, &innovation->incoming[i]));
    return TW_OK;
}

tw_status tw_innovation_create(tw_gossip *gossip)
{
    static const char *const names[TW_RING_PARTNERS] = {"estimate_of_left", "estimate_of_right"};
    tw_innovation *innovation = (tw_innovation *)gossip;
    if (innovation->gamma == 0) innovation->gamma = innovation->density;
    TW_TRY(tw_schedule_create(&gossip->schedule, gossip->size, 0, 0, 0));
    innovation->partners = tw_schedule_partners(&gossip->schedule, 0, gossip->rank, innovation->ranks);
    TW_TRY(tw_gossip_remember(gossip, "estimate", &innovation->own));
    TW_TRY(tw_gossip_remember(gossip, "pull", &innovation->pull));
    for (int i = 0; i < innovation->partners && i < TW_RING_PARTNERS; i++)
        TW_TRY(tw_gossip_remember_other(gossip, names[i], "estimate", innovation->ranks[i], &innovation->theirs[i]));
    return create_buffers(innovation);
}

void tw_innovation_destroy(tw_gossip *gossip)
{
    tw_innovation *innovation = (tw_innovation *)gossip;
    tw_selector_destroy(&innovation->selector);
    tw_free(innovation->index);
    tw_free(innovation->value);
    tw_free(innovation->outgoing);
    for (int i = 0; i < TW_RING_PARTNERS; i++) tw_free(innovation->incoming[i]);
}

void tw_innovation_start(tw_gossip *gossip)
{
    tw_innovation *innovation = (tw_innovation *)gossip;
    size_t bytes = gossip->elements * sizeof *gossip->weights;
    memcpy(innovation->own, gossip->weights, bytes);
    for (int i = 0; i < innovation->partners; i++) memcpy(innovation->theirs[i], gossip->weights, bytes);
}

/* --- sending -------------------------------------------------------------------------------------------------- */

static int is_check(const tw_innovation *innovation)
{
    return (innovation->step + 1) % (uint64_t)innovation->check == 0;
}

static uint32_t innovation_checksum(const tw_innovation *innovation, const float *estimate)
{
    return tw_crc32c(0, estimate, innovation->gossip.elements * sizeof *estimate);
}

static void add_sparse(float *dst, const uint32_t *index, const float *value, size_t k)
{
    for (size_t i = 0; i < k; i++) dst[index[i]] += value[i];
}

/* Sends the largest of one tensor's difference and adds them to the own estimate, as the receivers will see them. */
static tw_status put_tensor(tw_innovation *innovation, tw_packet_writer *writer, size_t tensor, size_t first)
{
    size_t n = tw_tensor_count(&innovation->gossip.tensors[tensor]);
    tw_select_source source = tw_select_from(innovation->pull + first);
    size_t k = tw_select_top(&innovation->selector, &source, n, sent_of(innovation, tensor), innovation->index,
                             innovation->value);
    tw_values_round(innovation->value, k, coding_of(innovation).values);
    add_sparse(innovation->own + first, innovation->index, innovation->value, k);
    return tw_packet_put_sparse(writer, n, k, innovation->index, innovation->value, coding_of(innovation));
}

static tw_status put_checksum(tw_innovation *innovation, tw_packet_writer *writer)
{
    unsigned char *block;
    uint32_t crc = innovation_checksum(innovation, innovation->own);
    TW_TRY(tw_packet_put_block(writer, sizeof crc, &block));
    memcpy(block, &crc, sizeof crc);
    return TW_OK;
}

static tw_status innovation_write_packet(tw_innovation *innovation, size_t *size)
{
    const tw_gossip *gossip = &innovation->gossip;
    tw_packet_writer writer;
    tw_packet_begin(&writer, innovation->outgoing, innovation->capacity, innovation->step, 0, 1);
    for (size_t tensor = 0, first = 0; tensor < gossip->count; tensor++) {
        TW_TRY(put_tensor(innovation, &writer, tensor, first));
        first += tw_tensor_count(&gossip->tensors[tensor]);
    }
    if (is_check(innovation)) TW_TRY(put_checksum(innovation, &writer));
    *size = tw_packet_end(&writer);
    return TW_OK;
}

/* The difference between the weights and the own estimate, in pull, which is free until the exchange is over. */
static tw_status find_innovation(tw_innovation *innovation)
{
    const tw_gossip *gossip = &innovation->gossip;
    const tw_averaging_rows *rows = tw_kernels_best()->averaging;
    if (rows->difference(innovation->pull, gossip->weights, innovation->own, gossip->elements, FLT_MAX, 0))
        return TW_OK;
    return tw_fail(TW_ERROR_NONFINITE, "this rank's weights are not finite any more: try a smaller gamma");
}

/* --- receiving ------------------------------------------------------------------------------------------------ */

static tw_status get_checksum(const tw_innovation *innovation, tw_packet_reader *reader, int partner)
{
    const unsigned char *block;
    uint32_t own = innovation_checksum(innovation, innovation->theirs[partner]);
    TW_TRY(tw_packet_get_block(reader, sizeof own, &block));
    if (memcmp(block, &own, sizeof own) == 0) return TW_OK;
    return tw_fail(TW_ERROR_PACKET, "the estimate of rank %d's weights is not what rank %d itself keeps",
                   innovation->ranks[partner], innovation->ranks[partner]);
}

static tw_status read_packet(tw_innovation *innovation, int partner)
{
    const tw_gossip *gossip = &innovation->gossip;
    tw_packet_reader reader;
    float *estimate = innovation->theirs[partner];
    TW_TRY(tw_packet_open(&reader, innovation->incoming[partner], innovation->received[partner], 1));
    if (reader.info.step != innovation->step)
        return tw_fail(TW_ERROR_PACKET, "rank %d sent its innovation %u in place of %u", innovation->ranks[partner],
                       reader.info.step, innovation->step);
    for (size_t i = 0; i < gossip->count; i++) {
        size_t k, n = tw_tensor_count(&gossip->tensors[i]);
        TW_TRY(tw_packet_get_sparse(&reader, n, sent_of(innovation, i), innovation->index, innovation->value, &k));
        add_sparse(estimate, innovation->index, innovation->value, k);
        estimate += n;
    }
    if (is_check(innovation)) TW_TRY(get_checksum(innovation, &reader, partner));
    return tw_packet_close(&reader);
}

/* --- the exchange --------------------------------------------------------------------------------------------- */

static tw_status swap_packets(tw_innovation *innovation, size_t size)
{
    tw_channel *channel = innovation->gossip.channel;
    for (int i = 0; i < innovation->partners; i++)
        tw_channel_start_receive(channel, innovation->ranks[i], innovation->incoming[i], innovation->capacity,
                                 &innovation->received[i]);
    for (int i = 0; i < innovation->partners; i++)
        tw_channel_start_send(channel, innovation->ranks[i], innovation->outgoing, size);
    return tw_channel_finish(channel);
}

static void find_pull(tw_innovation *innovation)
{
    size_t elements = innovation->gossip.elements;
    const float *estimates[TW_RING_PARTNERS] = {innovation->theirs[0], innovation->theirs[1]};
    tw_average average = {.theirs = estimates,
                          .partners = (size_t)innovation->partners,
                          .sent = innovation->own,
                          .share = 1.0f / (float)(innovation->partners + 1)};
    if (innovation->partners == 0)
        memset(innovation->pull, 0, elements * sizeof *innovation->pull);
    else
        tw_kernels_best()->averaging->draw(&average, innovation->pull, 0, elements, 0);
    tw_kernels_best()->scale(innovation->pull, (float)innovation->gamma, elements);
}

tw_status tw_innovation_exchange(tw_gossip *gossip)
{
    tw_innovation *innovation = (tw_innovation *)gossip;
    size_t size;
    TW_TRY(find_innovation(innovation));
    TW_TRY(innovation_write_packet(innovation, &size));
    TW_TRY(swap_packets(innovation, size));
    for (int i = 0; i < innovation->partners; i++) TW_TRY(read_packet(innovation, i));
    find_pull(innovation);
    innovation->step++;
    return TW_OK;
}
