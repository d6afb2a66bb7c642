/* packet.h - what travels: a checksummed header and one section a tensor, sparse (indices and values) or a block (bytes
 * of the scheme's own). docs/wire-format.md is the specification.
 *
 * Packets are hostile: the reader verifies magic, version, length and checksum before anything, every count against
 * what the caller expects, indices strictly ascending and below n, and never reads past the end. Each refusal is
 * TW_ERROR_PACKET with a sentence. Nothing here allocates. */
#ifndef TW_WIRE_PACKET_H
#define TW_WIRE_PACKET_H

#include <stddef.h>
#include <stdint.h>
#include <thinwire/thinwire.h>

/* How the values of a section are written. Choices of the option `values`, in this order. */
typedef enum tw_value_code {
    TW_VALUES_FP32 = 0,
    TW_VALUES_FP16 = 1,
    TW_VALUES_BF16 = 2,
    TW_VALUES_LOG8 = 3, /* 8 bits: a sign and one of 127 levels on a logarithmic scale that fits the section */
    TW_VALUES_SIGN = 4, /* one bit, and the mean magnitude of all of them in bf16 */
    TW_VALUES_LM2 = 5,  /* two bits: a sign and one of two magnitudes that fit the section */
    TW_VALUES_REF2 = 6, /* two bits: which of four bins about the mean, as in releases of SparseLoCo */
    TW_VALUE_CODES = 7
} tw_value_code;
#define TW_VALUE_CHOICES "fp32|fp16|bf16|log8|sign|lm2|ref2"

/* How the indices of a section are written. Choices of the option `indices`, in this order. */
typedef enum tw_index_choice {
    TW_INDICES_AUTO = 0, /* whatever is the soonest there, on the line that the coding names */
    TW_INDICES_RICE = 1,
    TW_INDICES_BITMAP = 2,
    TW_INDICES_ADAPTIVE = 3,
    TW_INDEX_CHOICES_COUNT = 4
} tw_index_choice;
#define TW_INDEX_CHOICES "auto|rice|bitmap|adaptive"

typedef struct tw_coding {
    tw_value_code values;
    tw_index_choice indices;
    double
        link; /* for TW_INDICES_AUTO: what the line carries, in Mbit/s; 0: the fewest bytes, however long that takes */
} tw_coding;

/* What the header says of the whole packet. */
typedef struct tw_packet_info {
    uint32_t step;     /* the sender's step, modulo 2^32: packets of two steps never mix */
    int nonfinite;     /* 1: the sender's gradient was not finite; every section is empty */
    int carried;       /* 1: what carries it checks each byte, so it has no checksum of its own */
    unsigned sections; /* tensors */
} tw_packet_info;

typedef struct tw_packet_writer {
    unsigned char *start, *at, *end;
    tw_packet_info info;
    size_t index_bytes; /* that said which elements they were, so far */
} tw_packet_writer;

typedef struct tw_packet_reader {
    const unsigned char *at, *end;
    tw_packet_info info;
    unsigned sections_read;
} tw_packet_reader;

/* Bytes that surely hold the header, a sparse section of at most k of n elements, and a block of `bytes` bytes. */
size_t tw_packet_bound_header(void);
size_t tw_packet_bound_sparse(size_t n, size_t k, tw_coding coding);
size_t tw_packet_bound_block(size_t bytes);

/* Writing: begin, one put a tensor in table order, end. dst must have room for the sum of the bounds. */
void tw_packet_begin(tw_packet_writer *writer, void *dst, size_t capacity, uint32_t step, int nonfinite, int carried);
/* k elements of a tensor of n: index strictly ascending, < n; value finite. TW_ERROR_ARGUMENT when that does not hold,
 * when the room runs out, or when a nonfinite packet is given values; the packet is then as it was. */
tw_status tw_packet_put_sparse(tw_packet_writer *writer, size_t n, size_t k, const uint32_t *index, const float *value,
                               tw_coding coding);
/* `bytes` bytes (below 2^35) of the scheme's own making: *block is where it writes them, before the next call and
 * without any promise of alignment. TW_ERROR_ARGUMENT as above. */
tw_status tw_packet_put_block(tw_packet_writer *writer, size_t bytes, unsigned char **block);
/* Fills the header in and returns the packet's bytes; 0 if not even the header had room. */
size_t tw_packet_end(tw_packet_writer *writer);

/* Reading: open, one get a tensor in table order, close (which refuses bytes or sections that are left over). Unless it
 * was `carried` here, by what checks each byte, a packet has to have its checksum. */
tw_status tw_packet_open(tw_packet_reader *reader, const void *src, size_t size, int carried);
/* index and value have room for most; *k is how many were there (0 .. most). Refuses NaN and infinity. */
tw_status tw_packet_get_sparse(tw_packet_reader *reader, size_t n, size_t most, uint32_t *index, float *value,
                               size_t *k);
/* A block of exactly `bytes` bytes; *block points into the packet. What they say is for the scheme to check. */
tw_status tw_packet_get_block(tw_packet_reader *reader, size_t bytes, const unsigned char **block);
tw_status tw_packet_close(tw_packet_reader *reader);

/* Rounds the k values of one section, which are finite, to what the receiver will see, so that the sender can keep the
 * difference in its residual: what is rounded once is put as it is. Rounding again changes nothing, but for ref2, whose
 * bins would be others. A finite value beyond what its code holds becomes the largest finite one (65,504 for fp16),
 * never infinity; putting does the same. */
void tw_values_round(float *value, size_t k, tw_value_code code);

/* The bytes that k values take. */
size_t tw_values_bytes(size_t k, tw_value_code code);

/* The bits that say which elements such a section has. */
size_t tw_index_bits(size_t n, size_t k, const uint32_t *index, tw_coding coding);

#endif
