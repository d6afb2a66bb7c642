/* random_targets.c - among vectors of one length the nearest has the largest product, so nothing need be normalised but
 * the codebook. */
#include "random_targets.h"

#include "product.h"

#include <math.h>
#include <string.h>

enum { NARROW = 16 }; /* values of a projected row */

tw_status random_targets_declare(const random_targets *sizes, nn_table *table, random_targets *t)
{
    const nn_declaration projection = {
        "quantizer", "random_projection", 2, {sizes->groups * NARROW, sizes->stride * sizes->features}, NN_INITIAL_HE,
        0.0f};
    const nn_declaration codebook = {
        "quantizer", "random_codebook", 2, {sizes->groups * sizes->codes, NARROW}, NN_INITIAL_HE, 0.0f};
    *t = *sizes;
    t->projection = table->elements;
    TW_TRY(nn_table_declare(table, &projection));
    t->codebook = table->elements;
    return nn_table_declare(table, &codebook);
}

void random_targets_free(random_targets *t)
{
    nn_buffer_free(&t->stacked);
    nn_buffer_free(&t->projected);
    nn_buffer_free(&t->nearness);
}

/* The frames of a row side by side; zeros beyond the utterance's end. */
static void stack(const random_targets *t, const nn_rows *frames, size_t utterance, size_t row, const float *x,
                  float *stacked)
{
    const size_t length = nn_rows_length(frames, utterance), first = row * t->stride;
    const size_t count = first + t->stride <= length ? t->stride : length - first;
    memset(stacked, 0, t->stride * t->features * sizeof *stacked);
    memcpy(stacked, x + (frames->first[utterance] + first) * t->features, count * t->features * sizeof *stacked);
}

static int32_t nearest(const float *products, const float *codebook, size_t codes)
{
    size_t best = 0;
    float most = -INFINITY;
    for (size_t v = 0; v < codes; v++) {
        float squares = 0.0f;
        for (size_t i = 0; i < NARROW; i++) squares += codebook[v * NARROW + i] * codebook[v * NARROW + i];
        const float nearness = products[v] / sqrtf(squares);
        if (nearness > most) {
            most = nearness;
            best = v;
        }
    }
    return (int32_t)best;
}

static tw_status random_targets_choose(random_targets *t, const float *codebook, size_t rows, size_t group,
                                       int32_t *best)
{
    const nn_product product = {.transpose_b = 1, .m = rows, .n = t->codes, .k = NARROW};
    const nn_strides strides = {t->groups * NARROW, NARROW, t->codes};
    TW_TRY(nn_multiply_parts(&product, 1.0f, &strides, t->projected.values + group * NARROW, codebook,
                             t->nearness.values));
    for (size_t i = 0; i < rows; i++)
        best[i * t->groups + group] = nearest(t->nearness.values + i * t->codes, codebook, t->codes);
    return TW_OK;
}

tw_status random_targets_forward(random_targets *t, const float *values, const hiding *hidden, const nn_rows *frames,
                                 const nn_rows *rows, const float *x, int32_t *best)
{
    const size_t wide = t->stride * t->features, narrow = t->groups * NARROW;
    const nn_product product = {.transpose_b = 1, .m = hidden->count, .n = narrow, .k = wide};
    if (hidden->count == 0) return TW_OK;
    TW_TRY(nn_buffer_reserve(&t->stacked, hidden->count * wide));
    TW_TRY(nn_buffer_reserve(&t->projected, hidden->count * narrow));
    TW_TRY(nn_buffer_reserve(&t->nearness, hidden->count * t->codes));
    for (size_t u = 0; u < rows->count; u++)
        for (size_t i = hidden->first[u]; i < hidden->first[u + 1]; i++)
            stack(t, frames, u, hidden->rows[i] - rows->first[u], x, t->stacked.values + i * wide);
    TW_TRY(nn_multiply(t->engine, &product, t->stacked.values, values + t->projection, t->projected.values));
    for (size_t g = 0; g < t->groups; g++)
        TW_TRY(random_targets_choose(t, values + t->codebook + g * t->codes * NARROW, hidden->count, g, best));
    return TW_OK;
}
