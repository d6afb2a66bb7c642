/* chunked.h - a tensor cut into chunks of which one element each is sent, and how a packet says which: a block with an
 * exponent, one signed byte, and a position within its chunk for each chunk in turn, all of the same few bits. */
#ifndef TW_CHUNKED_H
#define TW_CHUNKED_H

#include "packet.h"

enum { TW_MOST_EXPONENT = 120 /* so that neither 2^x nor its inverse is a denormal float */ };

typedef struct tw_chunked {
    size_t count, length, chunks; /* elements, elements of a chunk (the last may be shorter), chunks */
    unsigned bits;                /* a position takes */
    int exponent;                 /* the values travel times 2^exponent */
} tw_chunked;

tw_chunked tw_chunked_make(size_t count, size_t length);

/* Bytes of the positions, and the most that the section takes. */
size_t tw_chunked_bytes(const tw_chunked *chunked);
size_t tw_chunked_bound(const tw_chunked *chunked);

/* Writes the section: the exponent, and each chunk's position. */
tw_status tw_chunked_put(const tw_chunked *chunked, const uint32_t *position, tw_packet_writer *writer);

/* Reads it: the exponent, and for each chunk the element of the tensor. TW_ERROR_PACKET if one is not in its chunk. */
tw_status tw_chunked_get(tw_chunked *chunked, uint32_t *index, tw_packet_reader *reader);

#endif
