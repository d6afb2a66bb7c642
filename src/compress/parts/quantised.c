#include "quantised.h"

#include "error.h"
#include "memory.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

/* Ranks' magnitudes may add up to that much; half of what a float holds leaves room for the rounding of the sum. */
static const double most_sum = FLT_MAX / 2;

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t section_bytes(const tw_quantised *quantised, size_t tensor)
{
    return quantised->ops->bytes(&quantised->scheme, quantised->scheme.tensors[tensor].count);
}

/* ---- sections ---------------------------------------------------------------------------------------------------- */

static double section_bits(const void *context, size_t tensor)
{
    return 8 * (double)section_bytes(context, tensor);
}

static size_t section_bound(const void *context, size_t tensor)
{
    return tw_packet_bound_block(section_bytes(context, tensor));
}

static tw_status write_section(void *context, size_t tensor, tw_packet_writer *writer)
{
    tw_quantised *quantised = context;
    TW_TRY(tw_packet_put_block(writer, section_bytes(quantised, tensor), &quantised->own[tensor]));
    quantised->ops->encode(quantised, tensor, quantised->own[tensor]);
    quantised->scheme.account.elements_sent += quantised->scheme.tensors[tensor].count;
    return TW_OK;
}

/* Takes the section of tensor i out of each packet. Sets skipped, on every rank, if their sum might overflow. */
static tw_status get_sections(tw_quantised *quantised, size_t tensor, tw_packet_reader *readers, int count)
{
    tw_scheme *scheme = &quantised->scheme;
    double total = 0;
    for (int rank = 0; rank < count; rank++) {
        const unsigned char *section;
        float largest;
        TW_TRY(tw_gather_blame(rank, tw_packet_get_block(&readers[rank], section_bytes(quantised, tensor), &section)));
        const char *wrong = quantised->ops->check(scheme, section, scheme->tensors[tensor].count, &largest);
        if (wrong)
            return tw_fail(TW_ERROR_PACKET, "rank %d's section of %s is damaged: %s", rank,
                           scheme->tensors[tensor].name, wrong);
        total += largest;
        quantised->delivered[rank] = section;
    }
    if (total > most_sum) scheme->skipped = 1;
    return TW_OK;
}

static tw_status add_sections(void *context, size_t tensor, tw_packet_reader *readers, int count, float *sum)
{
    tw_quantised *quantised = context;
    size_t n = quantised->scheme.tensors[tensor].count;
    TW_TRY(get_sections(quantised, tensor, readers, count));
    for (size_t first = 0; first < n; first += quantised->ops->block) {
        size_t here = smaller(n - first, quantised->ops->block);
        memset(sum + first, 0, here * sizeof *sum);
        for (int rank = 0; rank < count; rank++)
            quantised->ops->add(&quantised->scheme, quantised->delivered[rank], n, first, here, sum + first);
    }
    return TW_OK;
}

static const tw_gather_ops sections = {
    .bits = section_bits,
    .bound = section_bound,
    .write = write_section,
    .add = add_sections,
};

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

static tw_status create_residual(tw_quantised *quantised)
{
    const tw_scheme *scheme = &quantised->scheme;
    size_t count = 0;
    for (size_t i = 0; i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        quantised->offset[i] = count;
        count += scheme->tensors[i].count;
    }
    return tw_allocate(count, sizeof *quantised->residual, &quantised->residual);
}

tw_status tw_quantised_create(tw_scheme *scheme, const tw_quantised_ops *ops, int feedback)
{
    tw_quantised *quantised = (tw_quantised *)scheme;
    quantised->ops = ops;
    TW_TRY(tw_allocate(scheme->count, sizeof *quantised->offset, &quantised->offset));
    TW_TRY(tw_allocate(scheme->count, sizeof *quantised->own, &quantised->own));
    TW_TRY(tw_allocate((size_t)scheme->size, sizeof *quantised->delivered, &quantised->delivered));
    if (feedback) TW_TRY(create_residual(quantised));
    return tw_gather_create(&quantised->gather, scheme, &sections, quantised);
}

void tw_quantised_destroy(tw_scheme *scheme)
{
    tw_quantised *quantised = (tw_quantised *)scheme;
    tw_free(quantised->residual);
    tw_free(quantised->offset);
    tw_free(quantised->own);
    tw_free(quantised->delivered);
    tw_gather_destroy(&quantised->gather);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

float *tw_quantised_residual(const tw_quantised *quantised, size_t tensor)
{
    return quantised->residual + quantised->offset[tensor];
}

/* What this rank's section says of a block. */
static void decode_own(const tw_quantised *quantised, size_t tensor, size_t first, size_t count, float *dst)
{
    memset(dst, 0, count * sizeof *dst);
    quantised->ops->add(&quantised->scheme, quantised->own[tensor], quantised->scheme.tensors[tensor].count, first,
                        count, dst);
}

/* The key is of the tensor's name, not of its number: messages may be cut anywhere. */
static tw_noise make_noise(const tw_scheme *scheme, size_t tensor, int64_t seed)
{
    const char *name = scheme->tensors[tensor].name;
    uint64_t stream = (uint64_t)scheme->rank << 32 | tw_crc32c(0, name, strlen(name));
    uint32_t words[4];
    tw_random((uint64_t)seed, stream, scheme->step, words);
    return (tw_noise){{words[0], words[1]}, 0};
}

/* Adds the gradient to the residual, and encodes that. */
static void encode_with_feedback(tw_quantised *quantised, size_t tensor, unsigned char *section,
                                 tw_quantised_block *block, tw_encode_block encode)
{
    const tw_quantise_rows *rows = tw_kernels_best()->quantise;
    float sent[TW_QUANTISED_BLOCK], *residual = tw_quantised_residual(quantised, tensor) + block->first;
    rows->accumulate(residual, block->values, block->count, block->scale);
    block->values = residual;
    block->scale = 1;
    encode(&quantised->scheme, block, section);
    decode_own(quantised, tensor, block->first, block->count, sent);
    rows->accumulate(residual, sent, block->count, -1);
}

void tw_quantised_each_block(tw_quantised *quantised, size_t tensor, unsigned char *section, int64_t seed,
                             tw_encode_block encode)
{
    const tw_scheme *scheme = &quantised->scheme;
    size_t n = scheme->tensors[tensor].count;
    tw_noise noise = make_noise(scheme, tensor, seed);
    for (size_t first = 0; first < n; first += quantised->ops->block) {
        noise.first = (uint32_t)first;
        tw_quantised_block block = {scheme->gradients[tensor] + first,         scheme->scale, n, first,
                                    smaller(n - first, quantised->ops->block), noise};
        if (quantised->residual)
            encode_with_feedback(quantised, tensor, section, &block, encode);
        else
            encode(scheme, &block, section);
    }
}

float tw_quantised_get_float(const unsigned char *src)
{
    float value;
    memcpy(&value, src, sizeof value);
    return value;
}

void tw_quantised_put_float(unsigned char *dst, float value)
{
    memcpy(dst, &value, sizeof value);
}

tw_status tw_quantised_next(tw_scheme *scheme, tw_round *round)
{
    return tw_gather_next(&((tw_quantised *)scheme)->gather, round);
}

static void put_back(tw_quantised *quantised, size_t tensor)
{
    float scratch[TW_QUANTISED_BLOCK], *residual = tw_quantised_residual(quantised, tensor);
    size_t n = quantised->scheme.tensors[tensor].count;
    for (size_t first = 0; first < n; first += quantised->ops->block) {
        size_t count = smaller(n - first, quantised->ops->block);
        decode_own(quantised, tensor, first, count, scratch);
        tw_kernels_best()->add(residual + first, scratch, count);
    }
}

void tw_quantised_revert(tw_scheme *scheme)
{
    tw_quantised *quantised = (tw_quantised *)scheme;
    tw_gather_revert(&quantised->gather);
    if (!scheme->finite || !quantised->residual) return; /* nothing was taken */
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed) put_back(quantised, i);
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

tw_status tw_quantised_walk(tw_scheme *scheme, tw_walk *walk)
{
    tw_quantised *quantised = (tw_quantised *)scheme;
    for (size_t i = 0; quantised->residual && i < scheme->count; i++) {
        const tw_scheme_tensor *tensor = &scheme->tensors[i];
        if (!tensor->compressed) continue;
        TW_TRY(walk->visit(walk, "residual", tensor->name, TW_F32, tensor->count, tw_quantised_residual(quantised, i)));
    }
    return tw_gather_walk(&quantised->gather, walk);
}

void tw_quantised_plan(const tw_scheme *scheme, size_t tensor, char *text, size_t capacity)
{
    const tw_quantised *quantised = (const tw_quantised *)scheme;
    snprintf(text, capacity, "%s: %.3g bits an element%s", scheme->ops->name,
             section_bits(quantised, tensor) / (double)scheme->tensors[tensor].count,
             tw_gather_road(&quantised->gather));
}
