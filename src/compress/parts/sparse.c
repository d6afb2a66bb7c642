#include "sparse.h"

#include "delivered.h"
#include "error.h"
#include "kernels.h"
#include "memory.h"
#include "sound.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

size_t tw_sparse_wanted(size_t n, double density, size_t least)
{
    size_t wanted = (size_t)ceil((double)n * density);
    if (wanted < least) wanted = least;
    return wanted > n ? n : wanted;
}

static size_t wanted_of(const tw_sparse *sparse, size_t tensor, double density)
{
    return tw_sparse_wanted(sparse->scheme.tensors[tensor].count, density, (size_t)sparse->settings.least);
}

/* ---- sections ---------------------------------------------------------------------------------------------------- */

/* Near enough to choose a road: a value, and a Rice code's log2(n/wanted) + 1.5. Between powers of two the logarithm is
 * a straight line: the same on every machine, whatever its mathematics library. */
static double section_bits(const void *context, size_t tensor)
{
    const tw_sparse *sparse = context;
    size_t n = sparse->scheme.tensors[tensor].count, wanted = wanted_of(sparse, tensor, sparse->density);
    int exponent;
    double half_mantissa = frexp((double)n / (double)wanted, &exponent);
    return 8 * (double)tw_values_bytes(wanted, sparse->settings.coding.values) +
           (double)wanted * (exponent + 2 * half_mantissa - 0.5);
}

static size_t section_bound(const void *context, size_t tensor)
{
    const tw_sparse *sparse = context;
    return tw_packet_bound_sparse(sparse->scheme.tensors[tensor].count, wanted_of(sparse, tensor, sparse->most_density),
                                  sparse->settings.coding);
}

static tw_status write_section(void *context, size_t tensor, tw_packet_writer *writer)
{
    tw_sparse *sparse = context;
    const tw_support *support = &sparse->support[tensor];
    sparse->scheme.account.elements_sent += support->count;
    return tw_packet_put_sparse(writer, sparse->scheme.tensors[tensor].count, support->count, support->index,
                                support->value, sparse->settings.coding);
}

/* Adds one section; sets skipped if the sum overflows, on every rank: all add the same. */
static tw_status add_section(tw_sparse *sparse, size_t tensor, tw_packet_reader *reader, float *sum)
{
    size_t count;
    int finite = 1;
    TW_TRY(tw_packet_get_sparse(reader, sparse->scheme.tensors[tensor].count, sparse->support[tensor].most,
                                sparse->index, sparse->value, &count));
    for (size_t j = 0; j < count; j++) {
        tw_kept_fetch((tw_kept){.fp32 = sum}, sparse->index, j, count);
        float total = sum[sparse->index[j]] += sparse->value[j];
        finite &= isfinite(total) != 0;
    }
    if (!finite) sparse->scheme.skipped = 1;
    return TW_OK;
}

static tw_status add_sections(void *context, size_t tensor, tw_packet_reader *readers, int count, float *sum)
{
    tw_sparse *sparse = context;
    if (!sparse->scheme.ops->one_pass) memset(sum, 0, sparse->scheme.tensors[tensor].count * sizeof *sum);
    for (int rank = 0; rank < count; rank++)
        TW_TRY(tw_delivered_blame(rank, add_section(sparse, tensor, &readers[rank], sum)));
    return TW_OK;
}

static void take_tensor(tw_sparse *sparse, size_t tensor)
{
    if (sparse->scheme.absent[tensor])
        sparse->support[tensor].count = 0;
    else
        sparse->settings.take(sparse, tensor);
}

static void take(void *context)
{
    tw_sparse *sparse = context;
    if (!sparse->settings.feedback) tw_kept_clear(sparse->residual, sparse->count);
    for (size_t i = 0; i < sparse->scheme.count; i++)
        if (sparse->scheme.tensors[i].compressed) take_tensor(sparse, i);
}

static void complete(void *context)
{
    tw_sparse *sparse = context;
    if (sparse->settings.complete) sparse->settings.complete(sparse);
}

static const tw_gather_ops sections = {
    .bits = section_bits,
    .bound = section_bound,
    .take = take,
    .write = write_section,
    .add = add_sections,
    .complete = complete,
};

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

static tw_status create_support(tw_support *support, size_t most)
{
    support->most = most;
    TW_TRY(tw_allocate(most, sizeof *support->index, &support->index));
    return tw_allocate(most, sizeof *support->value, &support->value);
}

/* Lays the residuals out and makes room for each tensor's support; finds the largest tensor and support. */
static tw_status create_supports(tw_sparse *sparse, size_t *largest, size_t *most)
{
    const tw_scheme *scheme = &sparse->scheme;
    for (size_t i = 0; i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        size_t n = scheme->tensors[i].count, wanted = wanted_of(sparse, i, sparse->most_density);
        sparse->offset[i] = sparse->count;
        sparse->count += n;
        if (n > *largest) *largest = n;
        if (wanted > *most) *most = wanted;
        TW_TRY(create_support(&sparse->support[i], wanted));
    }
    return TW_OK;
}

tw_status tw_sparse_create(tw_scheme *scheme, const tw_sparse_settings *settings)
{
    tw_sparse *sparse = (tw_sparse *)scheme;
    size_t largest = 0, most = 0;
    sparse->settings = *settings;
    sparse->density = sparse->most_density = settings->most_density; /* room is made for the heaviest step */
    TW_TRY(tw_allocate(scheme->count, sizeof *sparse->offset, &sparse->offset));
    TW_TRY(tw_allocate(scheme->count, sizeof *sparse->support, &sparse->support));
    TW_TRY(create_supports(sparse, &largest, &most));
    TW_TRY(tw_kept_create(&sparse->residual, settings->state, sparse->count));
    TW_TRY(tw_selector_create(&sparse->selector, largest, most));
    TW_TRY(tw_allocate(most, sizeof *sparse->index, &sparse->index));
    TW_TRY(tw_allocate(most, sizeof *sparse->value, &sparse->value));
    TW_TRY(tw_gather_create(&sparse->gather, scheme, &sections, sparse));
    sparse->density = settings->density;
    return TW_OK;
}

void tw_sparse_destroy(tw_scheme *scheme)
{
    tw_sparse *sparse = (tw_sparse *)scheme;
    for (size_t i = 0; sparse->support && i < scheme->count; i++) {
        tw_free(sparse->support[i].index);
        tw_free(sparse->support[i].value);
    }
    tw_free(sparse->support);
    tw_free(sparse->offset);
    tw_kept_destroy(&sparse->residual);
    tw_selector_destroy(&sparse->selector);
    tw_free(sparse->index);
    tw_free(sparse->value);
    tw_gather_destroy(&sparse->gather);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

tw_kept tw_sparse_kept(const tw_sparse *sparse, size_t tensor)
{
    return tw_kept_from(sparse->residual, sparse->offset[tensor]);
}

float *tw_sparse_residual(const tw_sparse *sparse, size_t tensor)
{
    return tw_sparse_kept(sparse, tensor).fp32;
}

tw_noise tw_sparse_rounding(const tw_sparse *sparse, size_t tensor, tw_rounding_use use)
{
    if (!sparse->residual.bf16) return (tw_noise){{0}, 0};
    return tw_rounding_make(&sparse->scheme, tensor, sparse->settings.seed, use);
}

/* A block of a tensor under way, and where what stands out is listed. */
typedef struct accumulated {
    const tw_accumulation *of;
    size_t first;
    float threshold;
    uint32_t *index;
    float *value;
} accumulated;

static size_t accumulate_row(void *context, size_t at, size_t n, size_t listed, size_t *done)
{
    const accumulated *block = context;
    const tw_accumulation *of = block->of;
    const tw_kernels *kernels = tw_kernels_best();
    size_t first = block->first + at;
    tw_kept v = tw_kept_from(of->residual, first);
    float *g = of->gradient + first, *value = block->value + listed;
    uint32_t *index = block->index + listed;
    if (v.bf16)
        return kernels->rounded->accumulate_select(v.bf16, g, n, of->scale, block->threshold,
                                                   tw_rounding_from(&of->rounding, first), index, value, done);
    return kernels->accumulate_select(v.fp32, g, n, of->scale, block->threshold, (uint32_t)first, index, value, done);
}

static size_t accumulate(void *context, size_t first, size_t n, float threshold, uint32_t *index, float *value)
{
    const tw_accumulation *of = context;
    accumulated block = {of, first, threshold, index, value};
    return tw_sound_pass(of->scheme, of->gradient + first, n, accumulate_row, &block);
}

static void peek(void *context, size_t first, size_t n, float *dst)
{
    const tw_accumulation *of = context;
    tw_kept_read(of->residual, first, n, dst);
    for (size_t i = 0; i < n; i++) dst[i] += of->scale * of->gradient[first + i];
}

static size_t look(void *context, size_t first, size_t n, float threshold, uint32_t *index, float *value)
{
    return tw_kept_look(((const tw_accumulation *)context)->residual, first, n, threshold, index, value);
}

tw_select_source tw_sparse_accumulate(tw_sparse *sparse, size_t tensor, tw_accumulation *accumulation)
{
    tw_scheme *scheme = &sparse->scheme;
    *accumulation = (tw_accumulation){.scheme = scheme,
                                      .residual = tw_sparse_kept(sparse, tensor),
                                      .rounding = tw_sparse_rounding(sparse, tensor, TW_ROUNDING_UPDATE),
                                      .gradient = scheme->gradients[tensor],
                                      .scale = scheme->scale};
    return (tw_select_source){accumulation, accumulate, peek, look};
}

void tw_sparse_send(tw_sparse *sparse, size_t tensor)
{
    tw_support *support = &sparse->support[tensor];
    tw_kept residual = tw_sparse_kept(sparse, tensor);
    tw_noise rounding = tw_sparse_rounding(sparse, tensor, TW_ROUNDING_SENT);
    size_t kept = 0;
    tw_values_round(support->value, support->count, sparse->settings.coding.values);
    for (size_t j = 0; j < support->count; j++) {
        uint32_t index = support->index[j];
        float value = support->value[j];
        tw_kept_fetch(residual, support->index, j, support->count);
        tw_kept_put(residual, index, tw_kept_get(residual, index) - value, &rounding);
        support->index[kept] = index;
        support->value[kept] = value;
        kept += value != 0;
    }
    support->count = kept;
}

void tw_sparse_send_top(tw_sparse *sparse, size_t tensor, const tw_select_source *source)
{
    tw_support *support = &sparse->support[tensor];
    sparse->selector.hint = &support->hint;
    support->count = tw_select_top(&sparse->selector, source, sparse->scheme.tensors[tensor].count,
                                   wanted_of(sparse, tensor, sparse->density), support->index, support->value);
    tw_sparse_send(sparse, tensor);
}

tw_status tw_sparse_next(tw_scheme *scheme, tw_round *round)
{
    return tw_gather_next(&((tw_sparse *)scheme)->gather, round);
}

static void take_back(tw_kept residual, const tw_support *support, const tw_noise *rounding)
{
    for (size_t j = 0; j < support->count; j++) {
        uint32_t i = support->index[j];
        tw_kept_put(residual, i, tw_kept_get(residual, i) + support->value[j], rounding);
    }
}

void tw_sparse_revert(tw_scheme *scheme)
{
    tw_sparse *sparse = (tw_sparse *)scheme;
    tw_gather_revert(&sparse->gather);
    if (!scheme->taken) return;
    for (size_t i = 0; i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        tw_noise rounding = tw_sparse_rounding(sparse, i, TW_ROUNDING_REVERT);
        take_back(tw_sparse_kept(sparse, i), &sparse->support[i], &rounding);
    }
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

/* For the banner, right after create: the density is still the settings'. */
void tw_sparse_plan(const tw_scheme *scheme, size_t tensor, char *text, size_t capacity)
{
    const tw_sparse *sparse = (const tw_sparse *)scheme;
    const char *bound = scheme->ops->outside ? "at most " : ""; /* which may choose fewer */
    snprintf(text, capacity, "%s: %s%zu of %zu elements%s", scheme->ops->name, bound,
             wanted_of(sparse, tensor, sparse->settings.density), scheme->tensors[tensor].count,
             tw_gather_road(&sparse->gather));
}

tw_status tw_sparse_walk_like(const tw_sparse *sparse, tw_walk *walk, const char *what, tw_kept array)
{
    const tw_scheme *scheme = &sparse->scheme;
    for (size_t i = 0; i < scheme->count; i++) {
        const tw_scheme_tensor *tensor = &scheme->tensors[i];
        if (!tensor->compressed) continue;
        TW_TRY(tw_kept_walk(walk, what, tensor, tw_kept_from(array, sparse->offset[i])));
    }
    return TW_OK;
}

tw_status tw_sparse_walk(tw_scheme *scheme, tw_walk *walk)
{
    tw_sparse *sparse = (tw_sparse *)scheme;
    if (sparse->settings.feedback) TW_TRY(tw_sparse_walk_like(sparse, walk, "residual", sparse->residual));
    return tw_gather_walk(&sparse->gather, walk);
}
