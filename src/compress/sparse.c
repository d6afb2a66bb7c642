#include "sparse.h"

#include "error.h"
#include "kernels.h"
#include "memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

size_t tw_sparse_wanted(size_t n, double density, size_t least)
{
    size_t wanted = (size_t)ceil((double)n * density);
    if (wanted < least) wanted = least;
    return wanted > n ? n : wanted;
}

/* Bits an element sent costs, near enough to choose a road: a value, and a Rice code's log2(n/wanted) + 1.5. Between
 * powers of two the logarithm is a straight line: the same on every machine, whatever its mathematics library. */
static double element_bits(size_t n, size_t wanted, tw_value_code code)
{
    int exponent;
    double half_mantissa = frexp((double)n / (double)wanted, &exponent);
    return (code == TW_VALUES_FP32 ? 32 : 16) + exponent + 2 * half_mantissa - 0.5;
}

/* 1 if N packets at `density` cost more than an fp32 ring all-reduce of the compressed tensors: decided from counts
 * alone, so alike on every rank. Where it is so at one density, it is so at every higher one. */
static int costs_more(const tw_sparse *sparse, double density)
{
    const tw_scheme *scheme = sparse->scheme;
    double packet_bits = 0, elements = 0;
    for (size_t i = 0; i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        size_t n = scheme->tensors[i].count, wanted = tw_sparse_wanted(n, density, sparse->least);
        packet_bits += (double)wanted * element_bits(n, wanted, sparse->code);
        elements += (double)n;
    }
    double others = scheme->size - 1; /* each rank sends its packet to all of them; a ring, 2(N-1)/N of the vector */
    return others * packet_bits > 2 * others / scheme->size * 32 * elements;
}

/* The most bytes that a packet takes at `density`. */
static size_t packet_bound(const tw_sparse *sparse, double density)
{
    size_t bytes = tw_packet_bound_header();
    for (size_t i = 0; i < sparse->scheme->count; i++) {
        const tw_scheme_tensor *tensor = &sparse->scheme->tensors[i];
        if (!tensor->compressed) continue;
        bytes += tw_packet_bound_sparse(tensor->count, tw_sparse_wanted(tensor->count, density, sparse->least),
                                        (tw_coding){sparse->code, TW_INDICES_AUTO});
    }
    return bytes;
}

static tw_status create_support(tw_support *support, size_t most)
{
    support->most = most;
    TW_TRY(tw_allocate(most, sizeof *support->index, &support->index));
    return tw_allocate(most, sizeof *support->value, &support->value);
}

/* Lays the residuals out and makes room for each tensor's support; finds the largest tensor and support. */
static tw_status create_supports(tw_sparse *sparse, double density, size_t *largest, size_t *most)
{
    const tw_scheme *scheme = sparse->scheme;
    for (size_t i = 0; i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        size_t n = scheme->tensors[i].count, wanted = tw_sparse_wanted(n, density, sparse->least);
        sparse->offset[i] = sparse->count;
        sparse->count += n;
        if (n > *largest) *largest = n;
        if (wanted > *most) *most = wanted;
        TW_TRY(create_support(&sparse->support[i], wanted));
    }
    return TW_OK;
}

tw_status tw_sparse_create(tw_sparse *sparse, tw_scheme *scheme, const tw_sparse_settings *settings)
{
    size_t largest = 0, most = 0;
    double density = settings->most_density;
    *sparse = (tw_sparse){.scheme = scheme, .code = (tw_value_code)settings->values, .least = (size_t)settings->least};
    sparse->packet_capacity = packet_bound(sparse, density);
    TW_TRY(tw_allocate(scheme->count, sizeof *sparse->offset, &sparse->offset));
    TW_TRY(tw_allocate(scheme->count, sizeof *sparse->support, &sparse->support));
    TW_TRY(create_supports(sparse, density, &largest, &most));
    TW_TRY(tw_allocate(sparse->count, sizeof *sparse->residual, &sparse->residual));
    TW_TRY(tw_selector_create(&sparse->selector, largest, most));
    TW_TRY(tw_allocate(sparse->packet_capacity, 1, &sparse->packet));
    TW_TRY(tw_allocate((size_t)scheme->size, sizeof *sparse->reader, &sparse->reader));
    TW_TRY(tw_allocate(most, sizeof *sparse->index, &sparse->index));
    TW_TRY(tw_allocate(most, sizeof *sparse->value, &sparse->value));
    TW_TRY(tw_dense_create(&sparse->exact, scheme, 0));
    if (!costs_more(sparse, density)) return TW_OK;
    return tw_dense_create(&sparse->wide, scheme, 1);
}

void tw_sparse_destroy(tw_sparse *sparse)
{
    for (size_t i = 0; sparse->support && i < sparse->scheme->count; i++) {
        tw_free(sparse->support[i].index);
        tw_free(sparse->support[i].value);
    }
    tw_free(sparse->support);
    tw_free(sparse->offset);
    tw_free(sparse->residual);
    tw_selector_destroy(&sparse->selector);
    tw_free(sparse->packet);
    tw_free(sparse->reader);
    tw_free(sparse->index);
    tw_free(sparse->value);
    tw_dense_destroy(&sparse->exact);
    tw_dense_destroy(&sparse->wide);
}

float *tw_sparse_residual(const tw_sparse *sparse, size_t tensor)
{
    return sparse->residual + sparse->offset[tensor];
}

void tw_sparse_take_top(tw_sparse *sparse, size_t tensor, const tw_select_source *source, double density)
{
    size_t n = sparse->scheme->tensors[tensor].count;
    float *residual = tw_sparse_residual(sparse, tensor);
    tw_support *support = &sparse->support[tensor];
    support->count = tw_select_top(&sparse->selector, source, n, tw_sparse_wanted(n, density, sparse->least),
                                   support->index, support->value);
    tw_values_round(support->value, support->count, sparse->code);
    for (size_t j = 0; j < support->count; j++) residual[support->index[j]] -= support->value[j];
}

/* What was taken, spread over the gradients: the sum the packets would give, by another road. */
static void pack_wide(tw_sparse *sparse, tw_round *round)
{
    const tw_scheme *scheme = sparse->scheme;
    for (size_t i = 0; scheme->finite && i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        const tw_support *support = &sparse->support[i];
        memset(scheme->gradients[i], 0, scheme->tensors[i].count * sizeof(float));
        for (size_t j = 0; j < support->count; j++) scheme->gradients[i][support->index[j]] = support->value[j];
    }
    tw_dense_pack(&sparse->wide, 1, round);
}

static tw_status write_packet(tw_sparse *sparse, size_t *size)
{
    tw_scheme *scheme = sparse->scheme;
    tw_packet_writer writer;
    tw_packet_begin(&writer, sparse->packet, sparse->packet_capacity, (uint32_t)scheme->step, !scheme->finite);
    for (size_t i = 0; scheme->finite && i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        const tw_support *support = &sparse->support[i];
        TW_TRY(tw_packet_put_sparse(&writer, scheme->tensors[i].count, support->count, support->index, support->value,
                                    (tw_coding){sparse->code, TW_INDICES_AUTO}));
    }
    scheme->account.index_bytes = writer.index_bytes;
    *size = tw_packet_end(&writer);
    return TW_OK;
}

static size_t elements_taken(const tw_sparse *sparse)
{
    size_t elements = 0;
    for (size_t i = 0; sparse->scheme->finite && i < sparse->scheme->count; i++) elements += sparse->support[i].count;
    return elements;
}

/* Asks for the exchange of what was taken. */
static tw_status pack(tw_sparse *sparse, double density, tw_round *round)
{
    sparse->scheme->account.elements_sent = elements_taken(sparse);
    sparse->use_wide = costs_more(sparse, density);
    if (sparse->use_wide) {
        pack_wide(sparse, round);
        sparse->scheme->account.packet_bytes = sparse->count * sizeof(float);
        return TW_OK;
    }
    TW_TRY(write_packet(sparse, &round->size));
    round->kind = TW_ROUND_ALLGATHER;
    round->data = sparse->packet;
    round->capacity = packet_bound(sparse, density); /* not that of a warm-up: receivers make room for N of them */
    sparse->scheme->account.packet_bytes = round->size;
    return TW_OK;
}

/* Opens every rank's packet; sets skipped if one says that its gradient was not finite. */
static tw_status open_packets(tw_sparse *sparse, const tw_round *round)
{
    tw_scheme *scheme = sparse->scheme;
    for (int rank = 0; rank < scheme->size; rank++) {
        tw_packet_reader *reader = &sparse->reader[rank];
        TW_TRY(tw_packet_open(reader, round->packets[rank], round->sizes[rank]));
        if (reader->info.step != (uint32_t)scheme->step)
            return tw_fail(TW_ERROR_PACKET, "rank %d sent a packet of step %u in step %u", rank, reader->info.step,
                           (uint32_t)scheme->step);
        if (reader->info.nonfinite) scheme->skipped = 1;
    }
    return TW_OK;
}

/* The sum over ranks, in rank order, of one tensor. Sets skipped if it overflows, on every rank: all add the same. */
static tw_status add_tensor(tw_sparse *sparse, size_t tensor)
{
    tw_scheme *scheme = sparse->scheme;
    size_t n = scheme->tensors[tensor].count, count;
    float *gradient = scheme->gradients[tensor];
    memset(gradient, 0, n * sizeof *gradient);
    for (int rank = 0; rank < scheme->size; rank++) {
        TW_TRY(tw_packet_get_sparse(&sparse->reader[rank], n, sparse->support[tensor].most, sparse->index,
                                    sparse->value, &count));
        int finite = 1;
        for (size_t j = 0; j < count; j++) {
            float sum = gradient[sparse->index[j]] += sparse->value[j];
            finite &= isfinite(sum) != 0;
        }
        if (!finite) scheme->skipped = 1;
    }
    return TW_OK;
}

/* After it: the sum over ranks is in the gradients, or skipped is set. */
static tw_status unpack(tw_sparse *sparse, const tw_round *round)
{
    tw_scheme *scheme = sparse->scheme;
    if (sparse->use_wide) {
        scheme->skipped = !tw_dense_is_finite(&sparse->wide);
        if (!scheme->skipped) tw_dense_unpack(&sparse->wide);
        return TW_OK;
    }
    TW_TRY(open_packets(sparse, round));
    if (scheme->skipped) return TW_OK;
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed) TW_TRY(add_tensor(sparse, i));
    for (int rank = 0; rank < scheme->size; rank++) TW_TRY(tw_packet_close(&sparse->reader[rank]));
    return TW_OK;
}

static tw_status start_sparse(tw_sparse *sparse, const tw_sparse_step *step, tw_round *round)
{
    if (sparse->scheme->finite) step->take(sparse->scheme);
    return pack(sparse, step->density, round);
}

static tw_status start_exact(tw_sparse *sparse, tw_round *round)
{
    tw_dense_pack(&sparse->exact, sparse->scheme->scale, round);
    sparse->scheme->account.exact_bytes = sparse->exact.count * sizeof(float);
    return TW_OK;
}

static void finish_exact(tw_sparse *sparse, const tw_sparse_step *step)
{
    sparse->scheme->skipped = !tw_dense_is_finite(&sparse->exact);
    if (sparse->scheme->skipped) return;
    if (step->settle) step->settle(sparse->scheme, sparse->exact.values);
    tw_dense_unpack(&sparse->exact);
}

enum { START_SPARSE, FINISH_SPARSE, FINISH_EXACT };

tw_status tw_sparse_next(tw_sparse *sparse, const tw_sparse_step *step, tw_round *round)
{
    tw_scheme *scheme = sparse->scheme;
    int phase = scheme->phase++;
    if (phase == START_SPARSE && sparse->count) return start_sparse(sparse, step, round);
    if (phase == START_SPARSE) {
        scheme->phase = FINISH_EXACT;
        return start_exact(sparse, round);
    }
    if (phase == FINISH_SPARSE) {
        TW_TRY(unpack(sparse, round));
        if (!scheme->skipped && sparse->exact.count) return start_exact(sparse, round);
    }
    if (phase == FINISH_EXACT) finish_exact(sparse, step);
    round->kind = TW_ROUND_DONE;
    return TW_OK;
}

void tw_sparse_revert(tw_sparse *sparse)
{
    const tw_scheme *scheme = sparse->scheme;
    if (!scheme->finite) return; /* nothing was taken */
    for (size_t i = 0; i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        const tw_support *support = &sparse->support[i];
        float *residual = tw_sparse_residual(sparse, i);
        for (size_t j = 0; j < support->count; j++) residual[support->index[j]] += support->value[j];
    }
}

void tw_sparse_plan(const tw_sparse *sparse, size_t tensor, double density, char *text, size_t capacity)
{
    size_t n = sparse->scheme->tensors[tensor].count;
    snprintf(text, capacity, "%s: %zu of %zu elements%s", sparse->scheme->ops->name,
             tw_sparse_wanted(n, density, sparse->least), n,
             costs_more(sparse, density) ? ", sent dense: that is less" : "");
}

tw_status tw_sparse_walk(tw_sparse *sparse, tw_walk *walk)
{
    const tw_scheme *scheme = sparse->scheme;
    for (size_t i = 0; i < scheme->count; i++) {
        const tw_scheme_tensor *tensor = &scheme->tensors[i];
        if (!tensor->compressed) continue;
        TW_TRY(walk->visit(walk, "residual", tensor->name, TW_F32, tensor->count, tw_sparse_residual(sparse, i)));
    }
    return TW_OK;
}
