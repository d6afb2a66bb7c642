/* bits.h - a stream of bits: the first one written is the lowest bit of the first byte. Neither side ever leaves its
 * block: the writer drops what has no room, the reader sees zeros behind the end and the caller compares positions. */
#ifndef TW_WIRE_BITS_H
#define TW_WIRE_BITS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian and memory is copied onto it");

/* A peek shows at least this many bits, wherever it begins inside a byte; a put may carry one fewer. */
enum { TW_BITS_PEEKED = 57, TW_BITS_PUT = 56 };

/* Of a number that is not 0. */
static inline unsigned tw_floor_log2(uint64_t x)
{
    return 63 - (unsigned)__builtin_clzll(x);
}

typedef struct tw_bit_writer {
    unsigned char *at, *end;
    uint64_t pending; /* the bits that do not fill a byte yet */
    unsigned count;   /* of them, 0 .. 7 between calls */
} tw_bit_writer;

/* Appends the low `count` bits, at most TW_BITS_PUT; those above must be zero. */
static inline void tw_bits_put(tw_bit_writer *writer, uint64_t bits, unsigned count)
{
    writer->pending |= bits << writer->count;
    writer->count += count;
    size_t whole = writer->count / 8, room = (size_t)(writer->end - writer->at);
    if (whole > room) whole = room;
    if (room >= 8)
        memcpy(writer->at, &writer->pending, 8);
    else
        memcpy(writer->at, &writer->pending, whole);
    writer->at += whole;
    writer->pending >>= 8 * whole;
    writer->count %= 8;
}

/* `zeros` zeros, a one, and the low `count` bits of `low`, at most 31; those above must be zero. */
static inline void tw_bits_put_unary(tw_bit_writer *writer, uint32_t zeros, uint32_t low, unsigned count)
{
    enum { RUN = TW_BITS_PUT - 32 };
    for (; zeros + count + 1 > TW_BITS_PUT; zeros -= RUN) tw_bits_put(writer, 0, RUN);
    tw_bits_put(writer, ((uint64_t)low << 1 | 1) << zeros, zeros + count + 1);
}

/* Fills the last byte up with zeros. */
static inline void tw_bits_flush(tw_bit_writer *writer)
{
    tw_bits_put(writer, 0, -writer->count % 8);
}

typedef struct tw_bit_reader {
    const unsigned char *bytes;
    size_t size;     /* bytes */
    size_t position; /* in bits; beyond 8 * size when more was read than there is */
} tw_bit_reader;

static inline uint64_t tw_bits_peek(const tw_bit_reader *reader)
{
    uint64_t window = 0;
    size_t byte = reader->position / 8;
    if (byte < reader->size && reader->size - byte >= 8)
        memcpy(&window, reader->bytes + byte, 8);
    else if (byte < reader->size)
        memcpy(&window, reader->bytes + byte, reader->size - byte);
    return window >> reader->position % 8;
}

/* Counts zeros up to the next one and takes both. UINT64_MAX at the end of the block, where nothing but zeros is seen.
 */
static inline uint64_t tw_bits_take_unary(tw_bit_reader *reader)
{
    uint64_t zeros = 0, window;
    while (!(window = tw_bits_peek(reader))) {
        if (reader->position >= 8 * reader->size) return UINT64_MAX;
        reader->position += TW_BITS_PEEKED;
        zeros += TW_BITS_PEEKED;
    }
    unsigned last = (unsigned)__builtin_ctzll(window);
    reader->position += last + 1;
    return zeros + last;
}

/* 1 if the reader stands in the last byte, or just behind it, and only zeros are left. */
static inline int tw_bits_ended(const tw_bit_reader *reader)
{
    return (reader->position + 7) / 8 == reader->size && tw_bits_peek(reader) == 0;
}

#endif
