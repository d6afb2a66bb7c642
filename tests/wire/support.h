/* support.h - indices to code, random numbers, and a second decoder that was written from docs/wire-format.md and reads
 * one bit at a time. */
#ifndef TEST_WIRE_SUPPORT_H
#define TEST_WIRE_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "packet.h"

#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

enum { HEADER = 24, CRC_AT = 20 };

#define FP32 ((tw_coding){TW_VALUES_FP32, TW_INDICES_AUTO})

/* splitmix64 */
static inline uint64_t random_word(uint64_t *state)
{
    uint64_t x = *state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static inline double random_unit(uint64_t *state)
{
    return (double)(random_word(state) >> 11) * 0x1p-53;
}

/* The elements of one tensor that travel. */
typedef struct support {
    size_t n, k;
    uint32_t *index;
    float *value;
} support;

static inline support support_create(size_t n, size_t most)
{
    support made = {n, 0, malloc(most * sizeof(uint32_t) + 1), malloc(most * sizeof(float) + 1)};
    assert_non_null(made.index);
    assert_non_null(made.value);
    return made;
}

static inline void support_add(support *to, size_t index)
{
    to->index[to->k] = (uint32_t)index;
    to->value[to->k] = (float)(index % 1000) - 499.5f;
    to->k++;
}

static inline void support_destroy(support *gone)
{
    free(gone->index);
    free(gone->value);
}

/* Every element with probability `density`, independently: uniform over the sets of as many elements. */
static inline support support_uniform(size_t n, double density, uint64_t seed)
{
    support made = support_create(n, n);
    for (size_t i = 0; i < n; i++)
        if (random_unit(&seed) < density) support_add(&made, i);
    return made;
}

/* A packet of one section; the caller frees it. */
static inline unsigned char *encode_one(const support *from, tw_coding coding, size_t *size)
{
    size_t capacity = tw_packet_bound_header() + tw_packet_bound_sparse(from->n, from->k, coding);
    unsigned char *packet = malloc(capacity);
    tw_packet_writer writer;
    assert_non_null(packet);
    tw_packet_begin(&writer, packet, capacity, 1, 0);
    assert_int_equal(tw_packet_put_sparse(&writer, from->n, from->k, from->index, from->value, coding), TW_OK);
    *size = tw_packet_end(&writer);
    assert_true(*size <= capacity);
    return packet;
}

/* What stands before and in the index block of a section; block is NULL for an empty one. */
typedef struct section {
    size_t k, block_bytes;
    unsigned index_code, value_code;
    const unsigned char *block, *values;
} section;

static inline size_t plain_varint(const unsigned char **at)
{
    size_t value = 0, weight = 1;
    for (; **at >= 128; weight *= 128) value += (size_t)(*(*at)++ - 128) * weight;
    return value + (size_t) * (*at)++ * weight;
}

static inline section plain_section(const unsigned char *at)
{
    section found = {0};
    if (*at == 0xE0) return found;
    found.index_code = *at / 16;
    found.value_code = *at++ % 16;
    found.k = plain_varint(&at);
    found.block_bytes = plain_varint(&at);
    found.block = at;
    found.values = at + found.block_bytes;
    return found;
}

static inline unsigned plain_bit(const unsigned char *bytes, size_t bit)
{
    return bytes[bit / 8] >> bit % 8 & 1;
}

/* Indices of a section of a tensor of n elements, which is taken to be sound. Returns the bits read. */
static inline size_t plain_indices(const section *from, size_t n, uint32_t *index)
{
    size_t bit = 8, next = 0;
    if (from->index_code == 2)
        for (size_t i = 0; i < n; i++) *index++ = (uint32_t)i;
    if (from->index_code == 1)
        for (size_t i = 0; i < n; i++)
            if (plain_bit(from->block, i)) *index++ = (uint32_t)i;
    if (from->index_code != 0) return from->index_code == 1 ? n : 0;
    for (size_t i = 0; i < from->k; i++) {
        size_t high = 0, low = 0;
        while (!plain_bit(from->block, bit++)) high++;
        for (unsigned j = 0; j < from->block[0]; j++) low |= (size_t)plain_bit(from->block, bit++) << j;
        next += (high << from->block[0]) + low;
        *index++ = (uint32_t)next++;
    }
    return bit;
}

#endif
