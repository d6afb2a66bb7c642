#include "leftovers.h"

#include "error.h"

#include <stdio.h>
#include <string.h>

void tw_leftovers_take(const tw_scheme *scheme, tw_scheme_tensor *tensor, const char *why)
{
    static const char *const formats[] = {"fp32", "fp16", "bf16"};
    tensor->compressed = 0;
    snprintf(tensor->plan, sizeof tensor->plan, "dense %s: %s", formats[scheme->common.leftovers], why);
}

tw_status tw_leftovers_create(tw_dense *leftovers, tw_scheme *scheme)
{
    return tw_dense_create(leftovers, scheme,
                           (tw_dense_settings){.dtype = tw_dense_dtype(scheme->common.leftovers), .feedback = 1});
}

void tw_leftovers_pack(tw_dense *leftovers, tw_round *round)
{
    tw_dense_pack(leftovers, leftovers->scheme->scale, round);
    leftovers->scheme->account.exact_bytes = tw_dense_bytes(leftovers);
}

/* ---- in the packets ---------------------------------------------------------------------------------------------- */

/* A packet goes to N - 1 others, where an all-reduce sends 2(N-1)/N times the bytes: riding costs (N-1)(N-2)/N times
 * them, and saves the two phases of the all-reduce. As many more bytes as this are a quarter of a millisecond on a line
 * of 1 Gbit/s, and two phases take longer. */
enum { MOST_MORE = 32768 };

int tw_leftovers_ride(const tw_dense *leftovers)
{
    double n = leftovers->scheme->size, bytes = (double)tw_dense_bytes(leftovers);
    return leftovers->count && (n - 1) * (n - 2) * bytes <= MOST_MORE * n;
}

size_t tw_leftovers_bound(const tw_dense *leftovers)
{
    return tw_packet_bound_block(tw_dense_bytes(leftovers));
}

tw_status tw_leftovers_put(tw_dense *leftovers, tw_packet_writer *writer)
{
    size_t bytes = tw_dense_bytes(leftovers);
    unsigned char *block;
    TW_TRY(tw_packet_put_block(writer, bytes, &block));
    tw_dense_collect(leftovers, leftovers->scheme->scale);
    memcpy(block, leftovers->values, bytes);
    leftovers->scheme->account.exact_bytes = bytes;
    return TW_OK;
}

/* A packet's bytes may lie anywhere: they are read from where values lie aligned. */
tw_status tw_leftovers_add(tw_dense *leftovers, tw_packet_reader *reader, int is_first)
{
    size_t bytes = tw_dense_bytes(leftovers);
    const unsigned char *block;
    TW_TRY(tw_packet_get_block(reader, bytes, &block));
    memcpy(leftovers->values, block, bytes);
    if (is_first ? tw_dense_unpack(leftovers) : tw_dense_add(leftovers)) return TW_OK;
    return tw_fail(TW_ERROR_PACKET, "a packet is damaged: a tensor that is not compressed holds NaN or infinity");
}
