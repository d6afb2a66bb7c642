#include "chunked.h"

#include "bits.h"
#include "error.h"

tw_chunked tw_chunked_make(size_t count, size_t length)
{
    tw_chunked chunked = {.count = count, .length = length, .chunks = (count + length - 1) / length};
    while ((size_t)1 << chunked.bits < length) chunked.bits++;
    return chunked;
}

size_t tw_chunked_bytes(const tw_chunked *chunked)
{
    return (chunked->chunks * chunked->bits + 7) / 8;
}

size_t tw_chunked_bound(const tw_chunked *chunked)
{
    return tw_packet_bound_block(1 + tw_chunked_bytes(chunked));
}

tw_status tw_chunked_put(const tw_chunked *chunked, const uint32_t *position, tw_packet_writer *writer)
{
    unsigned char *block;
    size_t bytes = tw_chunked_bytes(chunked);
    TW_TRY(tw_packet_put_block(writer, 1 + bytes, &block));
    *block++ = (unsigned char)(int8_t)chunked->exponent;
    tw_bit_writer bits = {.at = block, .end = block + bytes};
    for (size_t c = 0; c < chunked->chunks; c++) tw_bits_put(&bits, position[c], chunked->bits);
    tw_bits_flush(&bits);
    writer->index_bytes += bytes;
    return TW_OK;
}

static tw_status get_positions(const tw_chunked *chunked, uint32_t *index, const unsigned char *block)
{
    tw_bit_reader bits = {.bytes = block, .size = tw_chunked_bytes(chunked)};
    uint64_t mask = ((uint64_t)1 << chunked->bits) - 1;
    int is_inside = 1;
    for (size_t c = 0, start = 0; c < chunked->chunks; c++, start += chunked->length) {
        uint64_t position = tw_bits_peek(&bits) & mask;
        bits.position += chunked->bits;
        is_inside &= position < chunked->length && position < chunked->count - start;
        index[c] = (uint32_t)(start + position);
    }
    if (!is_inside || !tw_bits_ended(&bits))
        return tw_fail(TW_ERROR_PACKET, "a packet is damaged: a position is beyond its chunk");
    return TW_OK;
}

tw_status tw_chunked_get(tw_chunked *chunked, uint32_t *index, tw_packet_reader *reader)
{
    const unsigned char *block;
    TW_TRY(tw_packet_get_block(reader, 1 + tw_chunked_bytes(chunked), &block));
    chunked->exponent = block[0] < 128 ? block[0] : block[0] - 256; /* as two's complement */
    if (chunked->exponent < -TW_MOST_EXPONENT || chunked->exponent > TW_MOST_EXPONENT)
        return tw_fail(TW_ERROR_PACKET, "a packet is damaged: exponent %d is not -%d .. %d", chunked->exponent,
                       TW_MOST_EXPONENT, TW_MOST_EXPONENT);
    return get_positions(chunked, index, block + 1);
}
