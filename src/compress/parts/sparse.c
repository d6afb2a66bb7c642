#include "sparse.h"

#include "delivered.h"
#include "error.h"
#include "kernels.h"
#include "memory.h"
#include "sound.h"

#include <float.h>
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
    if (sparse->settings.wanted) return sparse->settings.wanted(sparse, tensor);
    return tw_sparse_wanted(sparse->scheme.tensors[tensor].count, density, (size_t)sparse->min_sent);
}

static int is_scattered(const tw_sparse *sparse)
{
    return sparse->gather.use_scatter;
}

/* How many of a support lie before an element. */
static size_t count_before(const tw_support *support, size_t element)
{
    size_t low = 0, high = support->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (support->index[middle] < element)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A piece's part of its tensor's support. */
typedef struct run {
    size_t first, count;
} run;

static run run_of(const tw_sparse *sparse, const tw_piece *piece)
{
    const tw_support *support = &sparse->support[piece->tensor];
    size_t first = count_before(support, piece->first);
    return (run){first, count_before(support, piece->first + piece->count) - first};
}

/* ---- sections ---------------------------------------------------------------------------------------------------- */

/* Near enough to choose a road: a value, and a Rice code's log2(n/wanted) + 1.5. Between powers of two the logarithm is
 * a straight line: the same on every machine, whatever its mathematics library. */
static double section_bits(const tw_scheme *scheme, size_t tensor)
{
    const tw_sparse *sparse = (const tw_sparse *)scheme;
    size_t n = sparse->scheme.tensors[tensor].count, wanted = wanted_of(sparse, tensor, sparse->density);
    int exponent;
    if (sparse->scheme.by_senders) return 0; /* an all-reduce would not say who sent what */
    double half_mantissa = frexp((double)n / (double)wanted, &exponent);
    return 8 * (double)tw_values_bytes(wanted, sparse->coding.values) +
           (double)wanted * (exponent + 2 * half_mantissa - 0.5);
}

static size_t section_bound(const tw_scheme *scheme, size_t tensor)
{
    const tw_sparse *sparse = (const tw_sparse *)scheme;
    return tw_packet_bound_sparse(sparse->scheme.tensors[tensor].count, wanted_of(sparse, tensor, sparse->most_density),
                                  sparse->coding);
}

static tw_status write_section(tw_scheme *scheme, size_t tensor, tw_packet_writer *writer)
{
    tw_sparse *sparse = (tw_sparse *)scheme;
    const tw_support *support = &sparse->support[tensor];
    sparse->scheme.account.elements_sent += support->count;
    return tw_packet_put_sparse(writer, sparse->scheme.tensors[tensor].count, support->count, support->index,
                                support->value, sparse->coding);
}

/* What a rank's part counts: as much as another's, or as its workers' do on the mean. */
static float share_of(const tw_scheme *scheme, int rank)
{
    int workers = (int)scheme->common.per_host;
    float sum = 0;
    if (!scheme->shares) return 1;
    for (int i = 0; i < workers; i++) sum += scheme->shares[rank * workers + i];
    return sum / (float)workers;
}

static void count_sender(tw_sparse *sparse, int rank, size_t count)
{
    float share = share_of(&sparse->scheme, rank);
    for (size_t j = 0; j < count; j++) sparse->senders[sparse->index[j]] += share;
}

/* Where sums do not begin as zeros: the first rank's section, and zeros between its elements. Long sums are written
 * past the cache. */
static tw_status spread_section(tw_sparse *sparse, tw_packet_reader *reader, size_t n, size_t most, float *sum)
{
    const tw_chunks_rows *rows = n < TW_PAST_CACHE ? &tw_chunks_scalar : tw_kernels_best()->chunks;
    size_t count;
    TW_TRY(tw_packet_get_sparse(reader, n, most, sparse->index, sparse->value, &count));
    rows->spread(sum, 0, n, sparse->index, sparse->value, count);
    if (sparse->senders) count_sender(sparse, 0, count);
    return TW_OK;
}

/* Adds a rank's section, of at most `most` of n elements; sets skipped if a sum is beyond `largest`. */
static tw_status add_section(tw_sparse *sparse, int rank, tw_packet_reader *reader, size_t n, size_t most,
                             float largest, float *sum)
{
    size_t count;
    int finite = 1;
    TW_TRY(tw_packet_get_sparse(reader, n, most, sparse->index, sparse->value, &count));
    for (size_t j = 0; j < count; j++) {
        tw_kept_fetch((tw_kept){.fp32 = sum}, sparse->index, j, count);
        float total = sum[sparse->index[j]] += sparse->value[j];
        finite &= fabsf(total) <= largest; /* false for NaN */
    }
    if (!finite) sparse->scheme.skipped = 1;
    if (sparse->senders) count_sender(sparse, rank, count);
    return TW_OK;
}

/* Sums of shares of the mean over all ranks become means over their senders, who are then forgotten. */
static void share_among_senders(tw_sparse *sparse, size_t n, float *sum)
{
    int finite = 1;
    for (size_t i = 0; i < n; i++) {
        if (sparse->senders[i] > 0) sum[i] *= (float)sparse->scheme.size / sparse->senders[i];
        finite &= fabsf(sum[i]) <= FLT_MAX;
        sparse->senders[i] = 0;
    }
    if (!finite) sparse->scheme.skipped = 1;
}

/* On every rank: all add the same. */
static tw_status add_sections(tw_scheme *scheme, size_t tensor, tw_packet_reader *readers, int count, float *sum)
{
    tw_sparse *sparse = (tw_sparse *)scheme;
    size_t n = sparse->scheme.tensors[tensor].count, most = sparse->support[tensor].most;
    int has_zeros = sparse->scheme.ops->one_pass && !sparse->settings.spread;
    if (!has_zeros) TW_TRY(tw_delivered_blame(0, spread_section(sparse, &readers[0], n, most, sum)));
    for (int rank = !has_zeros; rank < count; rank++)
        TW_TRY(tw_delivered_blame(rank, add_section(sparse, rank, &readers[rank], n, most, FLT_MAX, sum)));
    if (sparse->senders) share_among_senders(sparse, n, sum);
    return TW_OK;
}

static tw_noise sums_rounding(const tw_sparse *sparse, size_t tensor, tw_rounding_use use)
{
    const tw_scheme *scheme = &sparse->scheme;
    if (!sparse->sums.kept.bf16) return (tw_noise){{0}, 0};
    return tw_rounding_make(scheme, tensor, scheme->size + scheme->rank, sparse->seed, use);
}

void tw_sparse_scale_sums(tw_sparse *sparse, size_t tensor, float factor)
{
    if (!is_scattered(sparse) || factor == 1) return;
    tw_piece piece = tw_scatter_piece(&sparse->gather.scatter, tensor, sparse->scheme.rank);
    tw_noise rounding = sums_rounding(sparse, tensor, TW_ROUNDING_REVISION);
    tw_kept_scale(tw_sums_of(&sparse->sums, tensor), 0, piece.count, factor, &rounding);
}

/* Takes what is sent out of the residual, and drops what was rounded to zero. */
static void take_out(tw_support *support, tw_kept residual, tw_noise rounding)
{
    size_t kept = 0;
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

static void settle_tensor(tw_sparse *sparse, size_t tensor)
{
    tw_support *support = &sparse->support[tensor];
    if (support->open)
        take_out(support, tw_sparse_kept(sparse, tensor), tw_sparse_rounding(sparse, tensor, TW_ROUNDING_SENT));
    support->open = 0;
}

void tw_sparse_settle(tw_scheme *scheme)
{
    for (size_t i = 0; i < scheme->count; i++) settle_tensor((tw_sparse *)scheme, i);
}

static void sparse_take(tw_scheme *scheme)
{
    tw_sparse *sparse = (tw_sparse *)scheme;
    if (!sparse->feedback) {
        tw_kept_clear(sparse->residual, sparse->count);
        if (is_scattered(sparse)) tw_kept_clear(sparse->sums.kept, sparse->sums.count);
    }
    for (size_t i = 0; i < sparse->scheme.count; i++) {
        if (!sparse->scheme.tensors[i].compressed) continue;
        if (sparse->scheme.absent[i]) {
            settle_tensor(sparse, i);
            sparse->support[i].count = 0;
        } else {
            sparse->settings.take(sparse, i);
        }
    }
}

static void sparse_complete(tw_scheme *scheme)
{
    tw_sparse *sparse = (tw_sparse *)scheme;
    if (sparse->settings.complete) sparse->settings.complete(sparse);
}

static const tw_gather_ops sections = {
    .bits = section_bits,
    .bound = section_bound,
    .take = sparse_take,
    .write = write_section,
    .add = add_sections,
    .complete = sparse_complete,
};

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
    return tw_rounding_make(&sparse->scheme, tensor, sparse->scheme.rank, sparse->seed, use);
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

static size_t sparse_accumulate(void *context, size_t first, size_t n, float threshold, uint32_t *index, float *value)
{
    const tw_accumulation *of = context;
    accumulated block = {of, first, threshold, index, value};
    return tw_sound_pass(of->scheme, of->gradient + first, n, accumulate_row, &block);
}

static void sparse_peek(void *context, size_t first, size_t n, float *dst)
{
    const tw_accumulation *of = context;
    tw_kept_read(of->residual, first, n, dst);
    for (size_t i = 0; i < n; i++) dst[i] += of->scale * of->gradient[first + i];
}

static size_t sparse_look(void *context, size_t first, size_t n, float threshold, uint32_t *index, float *value)
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
    return (tw_select_source){accumulation, sparse_accumulate, sparse_peek, sparse_look};
}

/* A section's values are rounded together. */
static void round_values(tw_sparse *sparse, size_t tensor)
{
    const tw_support *support = &sparse->support[tensor];
    if (!is_scattered(sparse)) tw_values_round(support->value, support->count, sparse->coding.values);
    for (int owner = 0; is_scattered(sparse) && owner < sparse->scheme.size; owner++) {
        tw_piece piece = tw_scatter_piece(&sparse->gather.scatter, tensor, owner);
        run part = run_of(sparse, &piece);
        tw_values_round(support->value + part.first, part.count, sparse->coding.values);
    }
}

/* Of a gradient that turned out not to be sound nothing goes out, and the step is taken back: so it does not matter
 * what was selected, which differs where groups that were left out have been looked at once more. */
void tw_sparse_send(tw_sparse *sparse, size_t tensor)
{
    tw_support *support = &sparse->support[tensor];
    if (!sparse->scheme.finite) support->count = 0;
    round_values(sparse, tensor);
    take_out(support, tw_sparse_kept(sparse, tensor), tw_sparse_rounding(sparse, tensor, TW_ROUNDING_SENT));
}

void tw_sparse_send_top(tw_sparse *sparse, size_t tensor, const tw_select_source *source)
{
    tw_support *support = &sparse->support[tensor];
    sparse->selector.hint = &support->hint;
    support->count = tw_select_top(&sparse->selector, source, sparse->scheme.tensors[tensor].count,
                                   wanted_of(sparse, tensor, sparse->density), support->index, support->value);
    tw_sparse_send(sparse, tensor);
}

static size_t accumulate_sum(void *context, size_t first, size_t n, float threshold, uint32_t *index, float *value)
{
    accumulated block = {context, first, threshold, index, value};
    return accumulate_row(&block, 0, n, 0, NULL);
}

unsigned tw_sparse_floor(const tw_scheme *scheme)
{
    return tw_kept_floor(((const tw_sparse *)scheme)->state, 1);
}

tw_status tw_sparse_next(tw_scheme *scheme, tw_round *round)
{
    return tw_gather_next(&((tw_sparse *)scheme)->gather, round);
}

static void sparse_take_back(tw_kept residual, const tw_support *support, const tw_noise *rounding)
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
    tw_sums_revert(&sparse->sums);
    tw_sparse_settle(scheme);
    if (!scheme->taken) return;
    for (size_t i = 0; i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        tw_noise rounding = tw_sparse_rounding(sparse, i, TW_ROUNDING_REVERT);
        sparse_take_back(tw_sparse_kept(sparse, i), &sparse->support[i], &rounding);
    }
}

/* ---- sections of pieces ------------------------------------------------------------------------------------------ */

static size_t most_of_piece(const tw_sparse *sparse, const tw_piece *piece)
{
    size_t most = sparse->support[piece->tensor].most;
    return most < piece->count ? most : piece->count;
}

/* Its share of what a rank sends of the tensor. */
static size_t wanted_of_piece(const tw_sparse *sparse, const tw_piece *piece, double density)
{
    double n = (double)sparse->scheme.tensors[piece->tensor].count;
    size_t wanted = (size_t)ceil((double)wanted_of(sparse, piece->tensor, density) * (double)piece->count / n);
    size_t most = most_of_piece(sparse, piece);
    return wanted < most ? wanted : most;
}

static size_t piece_bound(const tw_scheme *scheme, const tw_piece *piece)
{
    const tw_sparse *sparse = (const tw_sparse *)scheme;
    return tw_packet_bound_sparse(piece->count, most_of_piece(sparse, piece), sparse->coding);
}

static tw_status write_piece(tw_scheme *scheme, const tw_piece *piece, tw_packet_writer *writer)
{
    tw_sparse *sparse = (tw_sparse *)scheme;
    const tw_support *support = &sparse->support[piece->tensor];
    run part = run_of(sparse, piece);
    for (size_t j = 0; j < part.count; j++) sparse->index[j] = support->index[part.first + j] - (uint32_t)piece->first;
    sparse->scheme.account.elements_sent += part.count;
    return tw_packet_put_sparse(writer, piece->count, part.count, sparse->index, support->value + part.first,
                                sparse->coding);
}

/* What all ranks sent of a piece may become a residual, whose bound is narrower than that of a gradient. */
static tw_status add_piece(tw_scheme *scheme, const tw_piece *piece, tw_packet_reader *readers, int rank, int count)
{
    tw_sparse *sparse = (tw_sparse *)scheme;
    float *sum = sparse->scheme.gradients[piece->tensor] + piece->first; /* zeros, since the scheme has one_pass */
    float largest = count > 1 ? (float)TW_LARGEST_KEPT : FLT_MAX;
    size_t most = most_of_piece(sparse, piece);
    for (int i = 0; i < count; i++)
        TW_TRY(
            tw_delivered_blame(rank + i, add_section(sparse, rank + i, &readers[i], piece->count, most, largest, sum)));
    return TW_OK;
}

/* Adds the sum of a piece to what was not sent of earlier ones, takes out what is sent now, and leaves zeros. */
static void send_sum(tw_sparse *sparse, const tw_piece *piece, float *sum)
{
    size_t tensor = piece->tensor;
    tw_support *sent = &sparse->sums_sent[tensor];
    tw_kept residual = tw_sums_of(&sparse->sums, tensor);
    tw_accumulation accumulation = {.scheme = &sparse->scheme,
                                    .residual = residual,
                                    .rounding = sums_rounding(sparse, tensor, TW_ROUNDING_UPDATE),
                                    .gradient = sum,
                                    .scale = 1};
    tw_select_source source = {&accumulation, accumulate_sum, sparse_peek, sparse_look};
    sparse->selector.hint = &sent->hint;
    sent->count = tw_select_top(&sparse->selector, &source, piece->count,
                                wanted_of_piece(sparse, piece, sparse->density), sent->index, sent->value);
    sparse->selector.hint = NULL; /* the scheme's own selection may go without */
    tw_values_round(sent->value, sent->count, sparse->coding.values);
    take_out(sent, residual, sums_rounding(sparse, tensor, TW_ROUNDING_SENT));
}

/* Where no rank had anything to say, the tensor may be absent on all, and nobody waits for what stayed behind. */
static tw_status write_sum(tw_scheme *scheme, const tw_piece *piece, tw_packet_writer *writer)
{
    tw_sparse *sparse = (tw_sparse *)scheme;
    tw_support *sent = &sparse->sums_sent[piece->tensor];
    float *sum = sparse->scheme.gradients[piece->tensor] + piece->first;
    tw_sums_change(&sparse->sums, piece->tensor);
    sent->count = 0;
    if (tw_kernels_best()->quantise->peak(sum, piece->count) > 0) send_sum(sparse, piece, sum);
    return tw_packet_put_sparse(writer, piece->count, sent->count, sent->index, sent->value, sparse->coding);
}

static const tw_scatter_ops pieces = {
    .bound = piece_bound,
    .write = write_piece,
    .add = add_piece,
    .write_sum = write_sum,
};

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

static tw_status create_support(tw_support *support, size_t most)
{
    support->most = most;
    TW_TRY(tw_allocate_unset(most * sizeof *support->index, &support->index));
    return tw_allocate_unset(most * sizeof *support->value, &support->value);
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

static tw_status create_sums(tw_sparse *sparse)
{
    const tw_scheme *scheme = &sparse->scheme;
    TW_TRY(tw_sums_create(&sparse->sums, &sparse->gather.scatter, sparse->state));
    TW_TRY(tw_allocate(scheme->count, sizeof *sparse->sums_sent, &sparse->sums_sent));
    for (size_t i = 0; i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        tw_piece piece = tw_scatter_piece(&sparse->gather.scatter, i, scheme->rank);
        TW_TRY(create_support(&sparse->sums_sent[i], wanted_of_piece(sparse, &piece, sparse->most_density)));
    }
    return TW_OK;
}

static tw_status create_road(tw_sparse *sparse)
{
    tw_scheme *scheme = &sparse->scheme;
    if (!sparse->exchange || scheme->size == 1) return tw_gather_create(&sparse->gather, scheme, &sections);
    TW_TRY(tw_gather_create_scattered(&sparse->gather, scheme, &sections, &pieces));
    return create_sums(sparse);
}

tw_status tw_sparse_create(tw_scheme *scheme, const tw_sparse_settings *settings)
{
    tw_sparse *sparse = (tw_sparse *)scheme;
    size_t largest = 0, most = 0;
    sparse->settings = *settings;
    sparse->coding = (tw_coding){(tw_value_code)sparse->values, (tw_index_choice)sparse->indices, sparse->link};
    sparse->density = sparse->most_density = settings->most_density; /* room is made for the heaviest step */
    TW_TRY(tw_allocate(scheme->count, sizeof *sparse->offset, &sparse->offset));
    TW_TRY(tw_allocate(scheme->count, sizeof *sparse->support, &sparse->support));
    TW_TRY(create_supports(sparse, &largest, &most));
    TW_TRY(tw_kept_create(&sparse->residual, sparse->state, sparse->count));
    TW_TRY(tw_selector_create(&sparse->selector, largest, most));
    TW_TRY(tw_allocate_unset(most * sizeof *sparse->index, &sparse->index));
    TW_TRY(tw_allocate_unset(most * sizeof *sparse->value, &sparse->value));
    if (scheme->by_senders) TW_TRY(tw_allocate(largest, sizeof *sparse->senders, &sparse->senders));
    TW_TRY(create_road(sparse));
    sparse->density = settings->density;
    return TW_OK;
}

static void destroy_supports(tw_support *support, size_t count)
{
    for (size_t i = 0; support && i < count; i++) {
        tw_free(support[i].index);
        tw_free(support[i].value);
    }
    tw_free(support);
}

void tw_sparse_destroy(tw_scheme *scheme)
{
    tw_sparse *sparse = (tw_sparse *)scheme;
    destroy_supports(sparse->support, scheme->count);
    destroy_supports(sparse->sums_sent, scheme->count);
    tw_sums_destroy(&sparse->sums);
    tw_free(sparse->offset);
    tw_kept_destroy(&sparse->residual);
    tw_selector_destroy(&sparse->selector);
    tw_free(sparse->index);
    tw_free(sparse->value);
    tw_free(sparse->senders);
    tw_gather_destroy(&sparse->gather);
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

/* For the banner, right after create: the density is still the settings'. */
void tw_sparse_plan(const tw_scheme *scheme, size_t tensor, char *text, size_t capacity)
{
    const tw_sparse *sparse = (const tw_sparse *)scheme;
    const char *bound = scheme->ops->outside ? "at most " : ""; /* which may choose fewer */
    snprintf(text, capacity, "%s: %s%zu of %zu elements%s", scheme->ops->name, bound,
             wanted_of(sparse, tensor, sparse->settings.density), scheme->tensors[tensor].count,
             is_scattered(sparse) ? ", in pieces" : tw_gather_road(&sparse->gather));
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
    if (sparse->feedback) {
        const char *called = sparse->settings.called ? sparse->settings.called : "residual";
        TW_TRY(tw_sparse_walk_like(sparse, walk, called, sparse->residual));
        TW_TRY(tw_sums_walk(&sparse->sums, walk));
    }
    return tw_gather_walk(&sparse->gather, walk);
}
