/* range_coder.h - arithmetic coding on integers (Martin 1979): an interval [low, low + range) of the fractions that the
 * coming bytes may spell, cut down by every step to the part that belongs to what is coded. The interval is held in 64
 * bits and moved on by four bytes when it fits into 32, so a step loses next to nothing to rounding. How many bytes
 * come out depends on the ranges alone: counting them needs no output. */
#ifndef TW_WIRE_RANGE_CODER_H
#define TW_WIRE_RANGE_CODER_H

#include "bits.h"

enum { TW_RANGE_WORD = 4, TW_RANGE_WINDOW = 8 };

/* The bytes of the window that the last number needs: of any `range` numbers in a row one ends in the other bytes'
 * zeros, which are not written. */
static inline size_t tw_range_tail(uint64_t range)
{
    return TW_RANGE_WINDOW - tw_floor_log2(range) / 8;
}

typedef struct tw_range_encoder {
    uint64_t low, range;
    unsigned char *dst; /* NULL: only count */
    size_t bytes;       /* of whole words so far */
} tw_range_encoder;

static inline tw_range_encoder tw_range_encode(unsigned char *dst)
{
    return (tw_range_encoder){0, UINT64_MAX, dst, 0};
}

static inline void tw_range_add(tw_range_encoder *encoder, uint64_t distance)
{
    encoder->low += distance;
    if (encoder->low >= distance) return;
    for (unsigned char *carried = encoder->dst + encoder->bytes; ++*--carried == 0;) continue;
}

/* Writes the upper half of low, which is settled but for a carry. */
static inline void tw_range_move(tw_range_encoder *encoder)
{
    uint32_t word = __builtin_bswap32((uint32_t)(encoder->low >> 32));
    memcpy(encoder->dst + encoder->bytes, &word, TW_RANGE_WORD);
    encoder->low <<= 32;
}

/* Takes part `which` of `parts` equal parts, 2^`shift` in all, and the `width` - 1 behind it. */
static inline void tw_range_put(tw_range_encoder *encoder, unsigned shift, uint64_t which, uint64_t width)
{
    uint64_t part = encoder->range >> shift;
    encoder->range = part * width;
    unsigned moved = encoder->range >> 32 ? 0 : 32;
    if (encoder->dst) {
        tw_range_add(encoder, part * which);
        if (moved) tw_range_move(encoder);
    }
    encoder->bytes += moved / 8;
    encoder->range <<= moved;
}

/* The bytes in all. */
static inline size_t tw_range_flush(tw_range_encoder *encoder)
{
    size_t tail = tw_range_tail(encoder->range);
    if (!encoder->dst) return encoder->bytes + tail;
    uint64_t cut = ((uint64_t)1 << (8 * (TW_RANGE_WINDOW - tail))) - 1;
    tw_range_add(encoder, -encoder->low & cut);
    for (size_t i = 0; i < tail; i++) encoder->dst[encoder->bytes + i] = (unsigned char)(encoder->low >> (56 - 8 * i));
    return encoder->bytes + tail;
}

typedef struct tw_range_decoder {
    uint64_t code, range; /* code: how far the number read lies above low */
    const unsigned char *src;
    size_t size, position; /* bytes there are, and bytes read; zeros are read behind the end */
} tw_range_decoder;

static inline uint32_t tw_range_word(tw_range_decoder *decoder)
{
    uint32_t word = 0;
    if (decoder->position < decoder->size) {
        size_t left = decoder->size - decoder->position;
        memcpy(&word, decoder->src + decoder->position, left < TW_RANGE_WORD ? left : TW_RANGE_WORD);
    }
    decoder->position += TW_RANGE_WORD;
    return __builtin_bswap32(word);
}

static inline tw_range_decoder tw_range_decode(const unsigned char *src, size_t size)
{
    tw_range_decoder decoder = {0, UINT64_MAX, src, size, 0};
    decoder.code = (uint64_t)tw_range_word(&decoder) << 32;
    decoder.code |= tw_range_word(&decoder);
    return decoder;
}

/* In which of 2^`shift` parts the number lies; 2^`shift` or above when no encoder has written it. */
static inline uint64_t tw_range_see(const tw_range_decoder *decoder, unsigned shift)
{
    return decoder->code / (decoder->range >> shift);
}

/* Follows the encoder's step, which was seen to be this one. */
static inline void tw_range_take(tw_range_decoder *decoder, unsigned shift, uint64_t which, uint64_t width)
{
    uint64_t part = decoder->range >> shift;
    decoder->range = part * width;
    decoder->code -= part * which;
    if (decoder->range >> 32) return;
    decoder->code = decoder->code << 32 | tw_range_word(decoder);
    decoder->range <<= 32;
}

/* 1 if the bytes are exactly those that the encoder's flush leaves. */
static inline int tw_range_ended(const tw_range_decoder *decoder)
{
    size_t tail = tw_range_tail(decoder->range);
    return decoder->size == decoder->position - TW_RANGE_WINDOW + tail &&
           decoder->code >> (8 * (TW_RANGE_WINDOW - tail)) == 0;
}

#endif
