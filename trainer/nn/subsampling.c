/* subsampling.c - patches beside one another make the convolution a product of matrices. */
#include "subsampling.h"

#include "affine.h"
#include "elementwise.h"
#include "product.h"
#include "wide.h"

enum { SIDE = 3, TAPS = SIDE * SIDE };

tw_status nn_subsampling_declare(const char *name, size_t bins, size_t inputs, size_t channels, nn_engine *engine,
                                 nn_table *table, nn_subsampling *layer)
{
    const nn_declaration weight = {name, "weight", 4, {channels, inputs, SIDE, SIDE}, NN_INITIAL_HE, 0.0f};
    const nn_declaration bias = {name, "bias", 1, {channels}, NN_INITIAL_ZERO, 0.0f};
    *layer = (nn_subsampling){.bins = bins,
                              .inputs = inputs,
                              .channels = channels,
                              .weight = table->elements,
                              .bias = table->elements + channels * inputs * TAPS,
                              .parameters = {table->count, table->count + 2},
                              .engine = engine};
    TW_TRY(nn_table_declare(table, &weight));
    return nn_table_declare(table, &bias);
}

void nn_subsampling_free(nn_subsampling *layer)
{
    nn_buffer_free(&layer->patches);
    nn_buffer_free(&layer->turned);
    nn_buffer_free(&layer->gradient);
}

/* (channels, inputs, taps) to (channels, taps, inputs), or back. */
static void subsampling_turn(const float *from, size_t channels, size_t rows, size_t columns, float *to)
{
    for (size_t c = 0; c < channels; c++, from += rows * columns, to += rows * columns)
        for (size_t i = 0; i < rows; i++)
            for (size_t k = 0; k < columns; k++) to[k * rows + i] = from[i * columns + k];
}

/* ---- patches ---- */

typedef struct picture {
    size_t length, bins, inputs;
} picture;

/* Where the tap (i, j) of the output (t, f) falls: its place in the utterance, or NULL beyond the edge. */
static inline const float *tap_at(const picture *p, const float *x, size_t t, size_t f, size_t i, size_t j)
{
    const size_t time = 2 * t + i, bin = 2 * f + j; /* one too large: zeros stand around */
    if (time == 0 || time > p->length || bin == 0 || bin > p->bins) return NULL;
    return x + ((time - 1) * p->bins + (bin - 1)) * p->inputs;
}

static void write_patches(const picture *p, const float *x, float *patches)
{
    for (size_t t = 0; t < nn_halved(p->length); t++)
        for (size_t f = 0; f < nn_halved(p->bins); f++)
            for (size_t k = 0; k < TAPS; k++, patches += p->inputs) {
                const float *from = tap_at(p, x, t, f, k / SIDE, k % SIDE);
                if (from)
                    memcpy(patches, from, p->inputs * sizeof *patches);
                else
                    memset(patches, 0, p->inputs * sizeof *patches);
            }
}

/* Each gradient to where its value came from. */
static void add_patches(const picture *p, const float *patches, float *x)
{
    memset(x, 0, p->length * p->bins * p->inputs * sizeof *x);
    for (size_t t = 0; t < nn_halved(p->length); t++)
        for (size_t f = 0; f < nn_halved(p->bins); f++)
            for (size_t k = 0; k < TAPS; k++, patches += p->inputs) {
                const float *to = tap_at(p, x, t, f, k / SIDE, k % SIDE);
                if (to) add(x + (to - x), patches, p->inputs);
            }
}

static size_t outputs_of(const nn_subsampling *l, size_t length)
{
    return nn_halved(length) * nn_halved(l->bins);
}

static tw_status subsampling_reserve(nn_subsampling *l, const nn_rows *rows)
{
    size_t longest = 0;
    for (size_t u = 0; u < rows->count; u++)
        if (nn_rows_length(rows, u) > longest) longest = nn_rows_length(rows, u);
    TW_TRY(nn_buffer_reserve(&l->patches, outputs_of(l, longest) * TAPS * l->inputs));
    TW_TRY(nn_buffer_reserve(&l->gradient, outputs_of(l, longest) * TAPS * l->inputs));
    return nn_buffer_reserve(&l->turned, 2 * l->channels * l->inputs * TAPS);
}

/* ---- forward ---- */

static tw_status forward_utterance(const nn_subsampling *l, const float *bias, size_t length, const float *x, float *y)
{
    const picture p = {length, l->bins, l->inputs};
    const size_t outputs = outputs_of(l, length);
    const nn_product product = {.transpose_b = 1, .m = outputs, .n = l->channels, .k = TAPS * l->inputs, .beta = 1.0f};
    write_patches(&p, x, l->patches.values);
    for (size_t i = 0; i < outputs; i++) memcpy(y + i * l->channels, bias, l->channels * sizeof *y);
    TW_TRY(nn_multiply(l->engine, &product, l->patches.values, l->turned.values, y));
    relu(y, outputs * l->channels);
    return TW_OK;
}

static size_t place_in(const nn_subsampling *l, const nn_rows *rows, size_t utterance)
{
    return rows->first[utterance] * l->bins * l->inputs;
}

static size_t place_out(const nn_subsampling *l, const nn_rows *halved, size_t utterance)
{
    return halved->first[utterance] * nn_halved(l->bins) * l->channels;
}

tw_status nn_subsampling_forward(nn_subsampling *layer, const float *values, const nn_rows *rows, const float *x,
                                 const nn_rows *halved, float *y)
{
    TW_TRY(subsampling_reserve(layer, rows));
    subsampling_turn(values + layer->weight, layer->channels, layer->inputs, TAPS, layer->turned.values);
    for (size_t u = 0; u < rows->count; u++)
        TW_TRY(forward_utterance(layer, values + layer->bias, nn_rows_length(rows, u), x + place_in(layer, rows, u),
                                 y + place_out(layer, halved, u)));
    return TW_OK;
}

/* ---- backward ---- */

static tw_status backward_utterance(const nn_subsampling *l, size_t length, const float *x, const float *dy, int first,
                                    float *dx)
{
    const picture p = {length, l->bins, l->inputs};
    const size_t outputs = outputs_of(l, length), inputs = TAPS * l->inputs;
    const nn_product to_weight = {
        .transpose_a = 1, .m = l->channels, .n = inputs, .k = outputs, .beta = first ? 0.0f : 1.0f};
    const nn_product to_patches = {.m = outputs, .n = inputs, .k = l->channels};
    write_patches(&p, x, l->patches.values);
    TW_TRY(nn_multiply(l->engine, &to_weight, dy, l->patches.values, l->turned.values + l->channels * inputs));
    if (!dx) return TW_OK;
    TW_TRY(nn_multiply(l->engine, &to_patches, dy, l->turned.values, l->gradient.values));
    add_patches(&p, l->gradient.values, dx);
    return TW_OK;
}

tw_status nn_subsampling_backward(nn_subsampling *layer, const float *values, const nn_rows *rows, const float *x,
                                  const nn_rows *halved, const float *y, float *y_gradient, float *gradients,
                                  float *x_gradient)
{
    const size_t outputs = nn_rows_total(halved) * nn_halved(layer->bins), taps = TAPS * layer->inputs;
    TW_TRY(subsampling_reserve(layer, rows));
    subsampling_turn(values + layer->weight, layer->channels, layer->inputs, TAPS, layer->turned.values);
    relu_gradient(y_gradient, y, outputs * layer->channels);
    for (size_t u = 0; u < rows->count; u++)
        TW_TRY(backward_utterance(layer, nn_rows_length(rows, u), x + place_in(layer, rows, u),
                                  y_gradient + place_out(layer, halved, u), u == 0,
                                  x_gradient ? x_gradient + place_in(layer, rows, u) : NULL));
    subsampling_turn(layer->turned.values + layer->channels * taps, layer->channels, TAPS, layer->inputs,
                     gradients + layer->weight);
    nn_sum_rows(y_gradient, outputs, layer->channels, gradients + layer->bias);
    return TW_OK;
}
