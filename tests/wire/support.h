/* support.h - indices to code, random numbers, and a second decoder that was written from docs/wire-format.md and reads
 * one bit at a time. */
#ifndef TEST_WIRE_SUPPORT_H
#define TEST_WIRE_SUPPORT_H

#include "packet.h"
#include "support/cmocka.h"

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
    tw_packet_begin(&writer, packet, capacity, 1, 0, 0);
    assert_int_equal(tw_packet_put_sparse(&writer, from->n, from->k, from->index, from->value, coding), TW_OK);
    *size = tw_packet_end(&writer);
    assert_true(*size <= capacity);
    return packet;
}

/* What stands before and in the index block of a section; block is NULL for an empty one. An element alone is taken for
 * an index code whose block is the index. */
enum { ONE = 0xD };
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
    if (found.index_code != ONE) {
        found.k = plain_varint(&at);
        found.block_bytes = plain_varint(&at);
        found.block = at;
        found.values = at + found.block_bytes;
    } else {
        found.k = 1;
        found.block = at;
        plain_varint(&at);
        found.block_bytes = (size_t)(at - found.block);
        found.values = at;
    }
    return found;
}

static inline unsigned plain_bit(const unsigned char *bytes, size_t bit)
{
    return bytes[bit / 8] >> bit % 8 & 1;
}

/* Rice: returns the bits read. */
static inline size_t plain_rice(const section *from, uint32_t *index)
{
    size_t bit = 8, next = 0;
    for (size_t i = 0; i < from->k; i++) {
        size_t high = 0, low = 0;
        while (!plain_bit(from->block, bit++)) high++;
        for (unsigned j = 0; j < from->block[0]; j++) low |= (size_t)plain_bit(from->block, bit++) << j;
        next += (high << from->block[0]) + low;
        *index++ = (uint32_t)next++;
    }
    return bit;
}

/* The adaptive code's interval, as the page has it: 64 bits of the block, and how wide the interval is. */
typedef struct plain_interval {
    uint64_t code, range;
    size_t taken;
} plain_interval;

static inline uint64_t plain_byte(const section *from, size_t at)
{
    return at < from->block_bytes ? from->block[at] : 0;
}

/* The part of 2^shift the code lies in; narrows to `width` parts from `first` on. */
static inline void plain_narrow(plain_interval *at, const section *from, unsigned shift, uint64_t first, uint64_t width)
{
    uint64_t part = at->range >> shift;
    at->code -= part * first;
    at->range = part * width;
    while (at->range < (uint64_t)1 << 32)
        for (int i = 0; i < 4; i++) {
            at->code = at->code * 256 + plain_byte(from, at->taken++);
            at->range *= 256;
        }
}

typedef struct plain_model {
    unsigned classes;
    uint64_t weight[64], first[65], seen, due;
} plain_model;

static inline void plain_frequencies(plain_model *model)
{
    uint64_t total = 0, below = 0;
    for (unsigned s = 0; s < model->classes; s++) total += model->weight[s];
    if (total > 1 << 24)
        for (unsigned s = (unsigned)(total = 0); s < model->classes; s++) total += model->weight[s] /= 2;
    uint64_t factor = ((uint64_t)(4096 - model->classes) << 32) / (total + 1);
    for (unsigned s = 0; s < model->classes; below += model->weight[s++]) model->first[s] = s + (below * factor >> 32);
    model->first[model->classes] = 4096;
    model->due = model->seen + 1 + (model->seen / 4 < 255 ? model->seen / 4 : 255);
}

static inline plain_model plain_prior(uint64_t n, uint64_t k)
{
    plain_model model = {0};
    uint64_t power = ((n - k) << 32) / n, beyond[64] = {(uint64_t)1 << 32, power};
    while (n >> (model.classes / 2 + 1)) model.classes += 2;
    model.classes++;
    for (unsigned s = 2; s <= model.classes; s++) {
        beyond[s] = beyond[s % 2 ? s - 2 : s - 1] * (s % 2 ? power * power >> 32 : power) >> 32;
        if (s % 2) power = power * power >> 32;
    }
    for (unsigned s = 0; s < model.classes; s++) model.weight[s] = (beyond[s] - beyond[s + 1]) >> 14;
    plain_frequencies(&model);
    return model;
}

static inline void plain_learn(plain_model *model, unsigned s)
{
    model->weight[s] += 6144;
    model->weight[s == 0 ? 0 : s % 2 ? s + 1 : s - 1] += 2048;
    if (++model->seen == model->due) plain_frequencies(model);
}

static inline size_t plain_adaptive(const section *from, size_t n, uint32_t *index)
{
    plain_model model = plain_prior(n, from->k);
    plain_interval at = {0, UINT64_MAX, 0};
    for (; at.taken < 8; at.taken++) at.code = at.code * 256 + plain_byte(from, at.taken);
    for (size_t i = 0, end = 0; i < from->k; i++) {
        unsigned s = 0;
        while (at.code / (at.range >> 12) >= model.first[s + 1]) s++;
        plain_narrow(&at, from, 12, model.first[s], model.first[s + 1] - model.first[s]);
        unsigned low_bits = s ? (s - 1) / 2 : 0;
        uint64_t low = at.code / (at.range >> low_bits);
        plain_narrow(&at, from, low_bits, low, 1);
        end += (s == 0 ? 1 : s % 2 ? (uint64_t)2 << low_bits : (uint64_t)3 << low_bits) + low;
        index[i] = (uint32_t)(end - 1);
        plain_learn(&model, s);
    }
    return 8 * from->block_bytes;
}

/* Indices of a section of a tensor of n elements, which is taken to be sound. Returns the bits read. */
static inline size_t plain_indices(const section *from, size_t n, uint32_t *index)
{
    if (from->index_code == 0) return plain_rice(from, index);
    if (from->index_code == 3) return plain_adaptive(from, n, index);
    if (from->index_code == ONE) {
        const unsigned char *at = from->block;
        *index = (uint32_t)plain_varint(&at);
        return 8 * from->block_bytes;
    }
    for (size_t i = 0; i < n; i++)
        if (from->index_code == 2 || plain_bit(from->block, i)) *index++ = (uint32_t)i;
    return from->index_code == 1 ? n : 0;
}

#endif
