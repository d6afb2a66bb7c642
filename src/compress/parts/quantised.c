#include "quantised.h"

#include "delivered.h"
#include "error.h"
#include "half.h"
#include "memory.h"
#include "smaller.h"
#include "sound.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

/* Ranks' magnitudes may add up to that much; half of what a float holds leaves room for the rounding of the sum. */
static const double most_sum = FLT_MAX / 2;

static const float zeros[TW_QUANTISED_BLOCK];

static size_t quantised_section_bytes(const tw_quantised *quantised, size_t n)
{
    return quantised->ops->bytes(&quantised->scheme, n);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static int is_scattered(const tw_quantised *quantised)
{
    return quantised->gather.use_scatter;
}

/* One a tensor; or one a tensor and rank, and of this rank's pieces the sums. */
size_t tw_quantised_parts(const tw_quantised *quantised)
{
    const tw_scheme *scheme = &quantised->scheme;
    return is_scattered(quantised) ? ((size_t)scheme->size + 1) * scheme->count : scheme->count;
}

static tw_piece whole_of(const tw_scheme *scheme, size_t tensor)
{
    return (tw_piece){tensor, 0, scheme->tensors[tensor].count, 0};
}

/* This rank's share of a piece. */
static tw_quantised_part share_of(const tw_quantised *quantised, const tw_piece *piece)
{
    const tw_scheme *scheme = &quantised->scheme;
    float *residual = quantised->residual;
    float *gradient = scheme->gradients[piece->tensor]; /* NULL before the first step */
    return (tw_quantised_part){
        .tensor = piece->tensor,
        .n = piece->count,
        .index = (size_t)piece->owner * scheme->count + piece->tensor,
        .values = gradient ? gradient + piece->first : NULL,
        .unseen = gradient && scheme->ops->one_pass ? gradient + piece->first : NULL,
        .scale = scheme->scale,
        .residual = residual ? residual + quantised->offset[piece->tensor] + piece->first : NULL,
        .stream = tw_scheme_stream(scheme, piece->tensor, scheme->rank),
        .first = piece->first,
    };
}

/* Everybody's sum of a piece of this rank's. */
static tw_quantised_part sum_of(const tw_quantised *quantised, const tw_piece *piece)
{
    const tw_scheme *scheme = &quantised->scheme;
    tw_quantised_part part = share_of(quantised, piece);
    part.index = (size_t)scheme->size * scheme->count + piece->tensor;
    part.unseen = NULL;
    part.scale = 1;
    part.residual = quantised->residual ? tw_sums_of(&quantised->sums, piece->tensor).fp32 : NULL;
    part.stream = tw_scheme_stream(scheme, piece->tensor, scheme->size + scheme->rank); /* as no rank's share has it */
    return part;
}

/* The shares of a tensor's pieces, whoever adds them up. */
static void visit_shares(tw_quantised *quantised, size_t tensor, tw_quantised_visit visit)
{
    int pieces = is_scattered(quantised) ? quantised->scheme.size : 1;
    for (int owner = 0; owner < pieces; owner++) {
        tw_piece piece = is_scattered(quantised) ? tw_scatter_piece(&quantised->gather.scatter, tensor, owner)
                                                 : whole_of(&quantised->scheme, tensor);
        tw_quantised_part part = share_of(quantised, &piece);
        if (piece.count) visit(quantised, &part);
    }
}

void tw_quantised_each_share(tw_quantised *quantised, tw_quantised_visit visit)
{
    for (size_t i = 0; i < quantised->scheme.count; i++)
        if (quantised->scheme.tensors[i].compressed) visit_shares(quantised, i, visit);
}

void tw_quantised_each_sum(tw_quantised *quantised, tw_quantised_visit visit)
{
    const tw_scheme *scheme = &quantised->scheme;
    for (size_t i = 0; is_scattered(quantised) && i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        tw_piece piece = tw_scatter_piece(&quantised->gather.scatter, i, scheme->rank);
        tw_quantised_part part = sum_of(quantised, &piece);
        if (piece.count) visit(quantised, &part);
    }
}

/* ---- sections ---------------------------------------------------------------------------------------------------- */

static double section_bits(const tw_scheme *scheme, size_t tensor)
{
    const tw_quantised *quantised = (const tw_quantised *)scheme;
    return 8 * (double)quantised_section_bytes(quantised, quantised->scheme.tensors[tensor].count);
}

static size_t section_bound(const tw_scheme *scheme, size_t tensor)
{
    const tw_quantised *quantised = (const tw_quantised *)scheme;
    return tw_packet_bound_block(quantised_section_bytes(quantised, quantised->scheme.tensors[tensor].count));
}

static tw_status write_part(tw_quantised *quantised, const tw_quantised_part *part, tw_packet_writer *writer)
{
    unsigned char **section = &quantised->own[part->index];
    TW_TRY(tw_packet_put_block(writer, quantised_section_bytes(quantised, part->n), section));
    quantised->ops->encode(quantised, part, *section);
    return TW_OK;
}

/* Of what goes on as if the part had not been there; only what the scheme left open in it is closed, since a step that
 * is taken back would forget it. */
static tw_status write_nothing(tw_quantised *quantised, const tw_quantised_part *part, tw_packet_writer *writer)
{
    unsigned char **section = &quantised->own[part->index];
    size_t bytes = quantised_section_bytes(quantised, part->n);
    TW_TRY(tw_packet_put_block(writer, bytes, section));
    memset(*section, 0, bytes);
    if (part->residual && quantised->ops->close) quantised->ops->close(quantised, part);
    return TW_OK;
}

static tw_status write_share(tw_scheme *scheme, const tw_piece *piece, tw_packet_writer *writer)
{
    tw_quantised *quantised = (tw_quantised *)scheme;
    tw_quantised_part part = share_of(quantised, piece);
    quantised->scheme.account.elements_sent += piece->count;
    return quantised->scheme.absent[piece->tensor] ? write_nothing(quantised, &part, writer)
                                                   : write_part(quantised, &part, writer);
}

static tw_status write_section(tw_scheme *scheme, size_t tensor, tw_packet_writer *writer)
{
    tw_piece whole = whole_of(scheme, tensor);
    return write_share(scheme, &whole, writer);
}

/* Takes the section of a piece out of the packets of `count` ranks from `rank` on. Sets skipped, on whoever reads them,
 * if their sum might be beyond `most`. */
static tw_status get_sections(tw_quantised *quantised, const tw_piece *piece, tw_packet_reader *readers, int rank,
                              int count, double most)
{
    tw_scheme *scheme = &quantised->scheme;
    size_t bytes = quantised_section_bytes(quantised, piece->count);
    double total = 0;
    for (int i = 0; i < count; i++) {
        const unsigned char *section;
        float largest;
        TW_TRY(tw_delivered_blame(rank + i, tw_packet_get_block(&readers[i], bytes, &section)));
        const char *wrong = quantised->ops->check(scheme, section, piece->count, &largest);
        if (wrong)
            return tw_fail(TW_ERROR_PACKET, "rank %d's section of %s is damaged: %s", rank + i,
                           scheme->tensors[piece->tensor].name, wrong);
        total += largest;
        quantised->delivered[i] = section;
    }
    if (total > most) scheme->skipped = 1;
    return TW_OK;
}

/* Of a block, on its way to `to`: between packets the sum is in the cache. */
static void add_block(const tw_quantised *quantised, const tw_piece *piece, int count, size_t first,
                      const tw_addition *to)
{
    _Alignas(64) float block[TW_QUANTISED_BLOCK];
    for (int i = 0; i < count; i++) {
        tw_addition step = {block, i ? block : zeros, to->n, 0};
        if (i == count - 1) step = (tw_addition){to->dst, step.sum, to->n, to->past};
        quantised->ops->add(&quantised->scheme, quantised->delivered[i], piece->count, first, &step);
    }
}

/* `past` for sums that nobody here reads again. */
static void add_delivered(tw_quantised *quantised, const tw_piece *piece, int count, float *sum, int past)
{
    size_t n = piece->count, block = quantised->ops->block;
    int is_past = past && quantised->gather.count >= TW_PAST_CACHE;
    for (size_t first = 0; first < n; first += block)
        add_block(quantised, piece, count, first,
                  &(tw_addition){sum + first, NULL, tw_smaller(n - first, block), is_past});
    if (is_past) tw_kernels_best()->drain();
    if (quantised->ops->fill && count == quantised->scheme.size) quantised->ops->fill(quantised, piece, sum);
}

static tw_status add_sections(tw_scheme *scheme, size_t tensor, tw_packet_reader *readers, int count, float *sum)
{
    tw_quantised *quantised = (tw_quantised *)scheme;
    tw_piece whole = whole_of(&quantised->scheme, tensor);
    TW_TRY(get_sections(quantised, &whole, readers, 0, count, most_sum));
    add_delivered(quantised, &whole, count, sum, 1);
    return TW_OK;
}

static const tw_gather_ops sections = {
    .bits = section_bits,
    .bound = section_bound,
    .write = write_section,
    .add = add_sections,
};

/* ---- sections of pieces ------------------------------------------------------------------------------------------ */

static size_t piece_bound(const tw_scheme *scheme, const tw_piece *piece)
{
    return tw_packet_bound_block(quantised_section_bytes((const tw_quantised *)scheme, piece->count));
}

/* What is to be encoded anew may become a residual, whose bound is narrower than that of a gradient. */
static tw_status add_piece(tw_scheme *scheme, const tw_piece *piece, tw_packet_reader *readers, int rank, int count)
{
    tw_quantised *quantised = (tw_quantised *)scheme;
    int is_last = count < quantised->scheme.size;
    TW_TRY(get_sections(quantised, piece, readers, rank, count, is_last ? most_sum : TW_LARGEST_KEPT));
    add_delivered(quantised, piece, count, quantised->scheme.gradients[piece->tensor] + piece->first, is_last);
    return TW_OK;
}

/* Where no rank had anything to say, the tensor may be absent on all, and nobody waits for what stayed behind. */
static int is_empty(const tw_quantised_part *sum)
{
    return sum->residual && tw_dense_is_zero(sum->values, sum->n);
}

static tw_status write_sum(tw_scheme *scheme, const tw_piece *piece, tw_packet_writer *writer)
{
    tw_quantised *quantised = (tw_quantised *)scheme;
    tw_quantised_part part = sum_of(quantised, piece);
    int is_nothing = is_empty(&part), is_open = part.residual && quantised->ops->close;
    if (is_open && !is_nothing) {
        part.before = tw_sums_begin(&quantised->sums, piece->tensor);
        return write_part(quantised, &part, writer);
    }
    if (is_open) quantised->ops->close(quantised, &part);
    if (part.residual) tw_sums_change(&quantised->sums, piece->tensor);
    return is_nothing ? write_nothing(quantised, &part, writer) : write_part(quantised, &part, writer);
}

static const tw_scatter_ops pieces = {
    .bound = piece_bound,
    .write = write_share,
    .add = add_piece,
    .write_sum = write_sum,
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

/* Tensors so small, for so many ranks, that as leftovers they are fewer bytes. */
static void leave_small_tensors(const tw_scheme *scheme)
{
    for (size_t i = 0; i < scheme->count; i++) {
        tw_scheme_tensor *tensor = &scheme->tensors[i];
        if (!tensor->compressed || tw_scatter_pays(tensor->count, section_bits(scheme, i), scheme->size)) continue;
        tw_leftovers_take(scheme, tensor, "that is less than in pieces");
    }
}

/* Up to four ranks packets to all are at most twice the bytes of pieces, N/2 times, and their sum is exact: what signs
 * lose by a second rounding shows in a short run. */
enum { MOST_GATHERED = 4 };

static tw_status create_gather(tw_quantised *quantised)
{
    tw_scheme *scheme = &quantised->scheme;
    int is_auto = quantised->exchange == TW_EXCHANGE_AUTO;
    if (quantised->exchange == TW_EXCHANGE_GATHER || (is_auto && scheme->size <= MOST_GATHERED)) {
        TW_TRY(tw_gather_create(&quantised->gather, scheme, &sections));
        int is_wide = quantised->gather.wide.scheme != NULL;
        if (!is_wide || !quantised->ops->fill) return TW_OK;
        tw_gather_destroy(&quantised->gather);
    }
    if (is_auto) leave_small_tensors(scheme);
    return tw_gather_create_scattered(&quantised->gather, scheme, &sections, &pieces);
}

tw_status tw_quantised_create(tw_scheme *scheme, const tw_quantised_ops *ops)
{
    tw_quantised *quantised = (tw_quantised *)scheme;
    quantised->ops = ops;
    TW_TRY(create_gather(quantised));
    TW_TRY(tw_allocate(scheme->count, sizeof *quantised->offset, &quantised->offset));
    TW_TRY(tw_allocate(tw_quantised_parts(quantised), sizeof *quantised->own, &quantised->own));
    TW_TRY(tw_allocate((size_t)scheme->size, sizeof *quantised->delivered, &quantised->delivered));
    if (quantised->feedback) TW_TRY(create_residual(quantised));
    if (!quantised->feedback || !is_scattered(quantised)) return TW_OK;
    return tw_sums_create(&quantised->sums, &quantised->gather.scatter, TW_KEPT_FP32);
}

void tw_quantised_destroy(tw_scheme *scheme)
{
    tw_quantised *quantised = (tw_quantised *)scheme;
    tw_free(quantised->residual);
    tw_free(quantised->offset);
    tw_sums_destroy(&quantised->sums);
    tw_free(quantised->own);
    tw_free(quantised->delivered);
    tw_gather_destroy(&quantised->gather);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* What a part's section says of a block. */
static void quantised_decode(const tw_quantised *quantised, const tw_quantised_part *part, const unsigned char *section,
                             size_t first, size_t count, float *dst)
{
    quantised->ops->add(&quantised->scheme, section, part->n, first, &(tw_addition){dst, zeros, count, 0});
}

static tw_noise make_noise(const tw_quantised *quantised, const tw_quantised_part *part)
{
    uint32_t words[4];
    tw_random((uint64_t)quantised->seed, part->stream, quantised->scheme.step, words);
    return (tw_noise){{words[0], words[1]}, 0};
}

void tw_quantised_look(tw_quantised *quantised, const tw_quantised_part *part, size_t first, size_t count)
{
    if (part->unseen) tw_sound_silence(&quantised->scheme, part->unseen, part->n, first, first + count);
}

float tw_quantised_peak(const tw_quantised_block *block, size_t at, size_t count)
{
    const tw_quantise_rows *rows = tw_kernels_best()->quantise;
    float peak = rows->peak(block->values + at, count);
    if (!block->unseen || peak < TW_LOUD) return peak;
    tw_quantised_look(block->quantised, block->unseen, block->first + at, count);
    return rows->peak(block->values + at, count);
}

/* Adds the values to the residual, and encodes that. */
static void encode_with_feedback(tw_quantised *quantised, const tw_quantised_part *part, unsigned char *section,
                                 tw_quantised_block *block)
{
    const tw_quantise_rows *rows = tw_kernels_best()->quantise;
    float sent[TW_QUANTISED_BLOCK], *residual = part->residual + block->first;
    tw_quantised_look(quantised, part, block->first, block->count);
    rows->accumulate(residual, block->values, block->count, block->scale);
    block->values = residual;
    block->scale = 1;
    quantised->ops->encode_block(&quantised->scheme, block, section);
    quantised_decode(quantised, part, section, block->first, block->count, sent);
    rows->accumulate(residual, sent, block->count, -1);
}

void tw_quantised_encode_blocks(tw_quantised *quantised, const tw_quantised_part *part, unsigned char *section)
{
    tw_noise noise = make_noise(quantised, part);
    for (size_t first = 0; first < part->n; first += quantised->ops->block) {
        noise.first = (uint32_t)(part->first + first);
        tw_quantised_block block = {part->values + first,
                                    part->scale,
                                    part->n,
                                    first,
                                    tw_smaller(part->n - first, quantised->ops->block),
                                    noise,
                                    quantised,
                                    part->unseen && !part->residual ? part : NULL};
        if (part->residual)
            encode_with_feedback(quantised, part, section, &block);
        else
            quantised->ops->encode_block(&quantised->scheme, &block, section);
    }
}

size_t tw_bytewise_head(size_t n)
{
    return (n + TW_QUANTISED_BLOCK - 1) / TW_QUANTISED_BLOCK;
}

size_t tw_bytewise_bytes(const tw_scheme *scheme, size_t n)
{
    (void)scheme;
    return tw_bytewise_head(n) + n;
}

float tw_power_of_two(int exponent)
{
    return tw_bits_float((uint32_t)exponent << 23);
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

static void quantised_put_back(tw_quantised *quantised, const tw_quantised_part *part)
{
    float scratch[TW_QUANTISED_BLOCK];
    if (quantised->scheme.absent[part->tensor]) return;
    for (size_t first = 0; first < part->n; first += quantised->ops->block) {
        size_t count = tw_smaller(part->n - first, quantised->ops->block);
        quantised_decode(quantised, part, quantised->own[part->index], first, count, scratch);
        tw_kernels_best()->add(part->residual + first, scratch, count);
    }
}

int tw_quantised_revert_sums(tw_quantised *quantised)
{
    tw_gather_revert(&quantised->gather);
    return tw_sums_revert(&quantised->sums);
}

void tw_quantised_revert(tw_scheme *scheme)
{
    tw_quantised *quantised = (tw_quantised *)scheme;
    tw_quantised_revert_sums(quantised);
    if (scheme->taken && quantised->residual) tw_quantised_each_share(quantised, quantised_put_back);
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

tw_status tw_quantised_walk(tw_scheme *scheme, tw_walk *walk)
{
    tw_quantised *quantised = (tw_quantised *)scheme;
    for (size_t i = 0; quantised->residual && i < scheme->count; i++) {
        const tw_scheme_tensor *tensor = &scheme->tensors[i];
        if (!tensor->compressed) continue;
        tw_remembered entry = {.what = "residual",
                               .tensor = tensor->name,
                               .kind = TW_STATE_ADDS,
                               .dtype = TW_F32,
                               .count = tensor->count,
                               .data = quantised->residual + quantised->offset[i],
                               .joins = "rounding"};
        TW_TRY(walk->visit(walk, &entry));
    }
    TW_TRY(tw_sums_walk(&quantised->sums, walk));
    return tw_gather_walk(&quantised->gather, walk);
}

void tw_quantised_plan(const tw_scheme *scheme, size_t tensor, char *text, size_t capacity)
{
    const tw_quantised *quantised = (const tw_quantised *)scheme;
    snprintf(text, capacity, "%s: %.3g bits an element%s", scheme->ops->name,
             section_bits(scheme, tensor) / (double)scheme->tensors[tensor].count, tw_gather_road(&quantised->gather));
}
