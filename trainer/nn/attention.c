/* attention.c - an utterance and a head at a time: products of parts of matrices, and nothing is transposed or copied.
 *
 * Of the products with all relative positions, (length, 2 length - 1), row i needs those from column length - 1 - i on:
 * the "relative shift" is a place to read from. */
#include "attention.h"

#include "affine.h"
#include "product.h"
#include "softmax.h"
#include "wide.h"

/* ---- making ---- */

static tw_status declare_positions(const char *name, nn_table *table, nn_attention *a)
{
    const size_t width = a->width, heads = a->heads;
    const float range = 1.0f / sqrtf((float)width);
    const nn_declaration weight = {name, "linear_pos.weight", 2, {width, width}, NN_INITIAL_UNIFORM, range};
    const nn_declaration u = {name, "pos_bias_u", 2, {heads, width / heads}, NN_INITIAL_UNIFORM, range};
    const nn_declaration v = {name, "pos_bias_v", 2, {heads, width / heads}, NN_INITIAL_UNIFORM, range};
    a->position_weight = table->elements;
    a->bias_u = a->position_weight + width * width;
    a->bias_v = a->bias_u + width;
    TW_TRY(nn_table_declare(table, &weight));
    TW_TRY(nn_table_declare(table, &u));
    return nn_table_declare(table, &v);
}

tw_status nn_attention_declare(const char *name, size_t width, size_t heads, int relative, nn_engine *engine,
                               nn_table *table, nn_attention *layer)
{
    *layer = (nn_attention){.width = width, .heads = heads, .relative = relative, .engine = engine};
    layer->parameters = (nn_range){table->count, table->count + (relative ? 3 : 0)};
    return relative ? declare_positions(name, table, layer) : TW_OK;
}

void nn_attention_free(nn_attention *layer)
{
    nn_buffer_free(&layer->probabilities);
    nn_buffer_free(&layer->sinusoids);
    nn_buffer_free(&layer->positions);
    nn_buffer_free(&layer->position_gradients);
    nn_buffer_free(&layer->queries);
    nn_buffer_free(&layer->scratch);
}

/* ---- positions ---- */

/* sin and cos of m at falling frequencies, side by side. */
static void write_sinusoids(size_t length, size_t width, float *table)
{
    for (size_t p = 0; p < 2 * length - 1; p++)
        for (size_t i = 0; i < width; i++) {
            const double frequency = exp(-log(10000.0) * (double)(i & ~(size_t)1) / (double)width);
            const double angle = ((double)length - 1.0 - (double)p) * frequency;
            table[p * width + i] = (float)(i & 1 ? cos(angle) : sin(angle));
        }
}

static tw_status prepare_positions(nn_attention *a, const float *values, size_t longest)
{
    const size_t width = a->width, count = 2 * longest - 1;
    const nn_product product = {.transpose_b = 1, .m = count, .n = width, .k = width};
    if (longest != a->longest) {
        a->longest = 0;
        TW_TRY(nn_buffer_reserve(&a->sinusoids, count * width));
        write_sinusoids(longest, width, a->sinusoids.values);
        a->longest = longest;
    }
    TW_TRY(nn_buffer_reserve(&a->positions, count * width));
    return nn_multiply(a->engine, &product, a->sinusoids.values, values + a->position_weight, a->positions.values);
}

NN_WIDE static void add_biases(const float *qkv, size_t rows, size_t width, const float *u, const float *v,
                               float *with_u, float *with_v)
{
    for (size_t r = 0; r < rows; r++, qkv += 3 * width, with_u += width, with_v += width)
        for (size_t i = 0; i < width; i++) {
            with_u[i] = qkv[i] + u[i];
            with_v[i] = qkv[i] + v[i];
        }
}

static tw_status prepare_queries(nn_attention *a, const float *values, size_t rows, const float *qkv)
{
    TW_TRY(nn_buffer_reserve(&a->queries, 2 * rows * a->width));
    add_biases(qkv, rows, a->width, values + a->bias_u, values + a->bias_v, a->queries.values,
               a->queries.values + rows * a->width);
    return TW_OK;
}

/* ---- a head of an utterance ---- */

typedef struct head {
    size_t length, width; /* rows, and values of the head in each */
    const float *q;       /* with u, if there are positions */
    const float *q_v, *r; /* q + v, and the positions of this length: NULL without them */
    size_t q_step;        /* values from a row to the next */
    const float *k, *v;   /* steps of 3 times the layer's width */
    float *probabilities; /* (length, length) */
    float *spread;        /* scratch (length, 2 length - 1) */
    size_t column, row;   /* where it begins in a row of the layer, and its first row */
} head;

static float scale_of(const head *h)
{
    return 1.0f / sqrtf((float)h->width);
}

static head head_of(const nn_attention *a, const nn_rows *rows, size_t utterance, size_t index, size_t square,
                    const float *qkv)
{
    const size_t width = a->width, row = rows->first[utterance], length = nn_rows_length(rows, utterance);
    head h = {.length = length, .width = width / a->heads, .row = row, .column = index * (width / a->heads)};
    h.q = qkv + row * 3 * width + h.column;
    h.k = h.q + width;
    h.v = h.k + width;
    h.q_step = 3 * width;
    h.probabilities = a->probabilities.values + square + index * length * length;
    if (a->relative) {
        h.q = a->queries.values + row * width + h.column;
        h.q_v = h.q + nn_rows_total(rows) * width;
        h.q_step = width;
        h.r = a->positions.values + (a->longest - length) * width + h.column;
        h.spread = a->scratch.values;
    }
    return h;
}

static void add_shifted(const float *spread, size_t length, float *scores)
{
    for (size_t i = 0; i < length; i++) {
        const float *from = spread + i * (2 * length - 1) + (length - 1 - i);
        for (size_t j = 0; j < length; j++) scores[i * length + j] += from[j];
    }
}

static tw_status attention_forward_head(const nn_attention *a, const head *h, float *y)
{
    const size_t length = h->length, wide = 2 * length - 1;
    const nn_product scores = {.transpose_b = 1, .m = length, .n = length, .k = h->width};
    const nn_product spread = {.transpose_b = 1, .m = length, .n = wide, .k = h->width};
    const nn_product mixed = {.m = length, .n = h->width, .k = length};
    TW_TRY(nn_multiply_parts(&scores, scale_of(h), &(nn_strides){h->q_step, 3 * a->width, length}, h->q, h->k,
                             h->probabilities));
    if (h->r) {
        TW_TRY(
            nn_multiply_parts(&spread, scale_of(h), &(nn_strides){h->q_step, a->width, wide}, h->q_v, h->r, h->spread));
        add_shifted(h->spread, length, h->probabilities);
    }
    nn_softmax(h->probabilities, length, length);
    return nn_multiply_parts(&mixed, 1.0f, &(nn_strides){length, 3 * a->width, a->width}, h->probabilities, h->v,
                             y + h->row * a->width + h->column);
}

/* ---- forward ---- */

static size_t longest_of(const nn_rows *rows)
{
    size_t longest = 1;
    for (size_t u = 0; u < rows->count; u++)
        if (nn_rows_length(rows, u) > longest) longest = nn_rows_length(rows, u);
    return longest;
}

static tw_status attention_reserve(nn_attention *a, const nn_rows *rows)
{
    const size_t longest = longest_of(rows);
    size_t squares = 0;
    for (size_t u = 0; u < rows->count; u++) squares += a->heads * nn_rows_length(rows, u) * nn_rows_length(rows, u);
    TW_TRY(nn_buffer_reserve(&a->scratch, longest * (3 * longest + a->width)));
    return nn_buffer_reserve(&a->probabilities, squares);
}

tw_status nn_attention_forward(nn_attention *layer, const float *values, const nn_rows *rows, const float *qkv,
                               float *y)
{
    size_t square = 0;
    TW_TRY(attention_reserve(layer, rows));
    if (layer->relative) {
        TW_TRY(prepare_positions(layer, values, longest_of(rows)));
        TW_TRY(prepare_queries(layer, values, nn_rows_total(rows), qkv));
    }
    for (size_t u = 0; u < rows->count; u++) {
        for (size_t i = 0; i < layer->heads; i++) {
            const head h = head_of(layer, rows, u, i, square, qkv);
            TW_TRY(attention_forward_head(layer, &h, y));
        }
        square += layer->heads * nn_rows_length(rows, u) * nn_rows_length(rows, u);
    }
    return TW_OK;
}

/* ---- backward ---- */

static void add_column_sums(const float *matrix, size_t rows, size_t columns, size_t step, float *sums)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) sums[c] += matrix[r * step + c];
}

/* The other way round than add_shifted; what no score read has no gradient. */
static void spread_gradient(const float *gradient, size_t length, float *spread)
{
    memset(spread, 0, length * (2 * length - 1) * sizeof *spread);
    for (size_t i = 0; i < length; i++)
        memcpy(spread + i * (2 * length - 1) + (length - 1 - i), gradient + i * length, length * sizeof *gradient);
}

/* From the scores' gradient, what comes by way of the positions: added to that of q, of r, and of the biases. */
static tw_status backward_positions(nn_attention *a, const head *h, const float *score_gradient, float *gradients,
                                    float *q_gradient)
{
    const size_t length = h->length, wide = 2 * length - 1, width = a->width;
    float *part = a->scratch.values + length * wide + length * length;
    float *r_gradient = a->position_gradients.values + (h->r - a->positions.values);
    const nn_product to_q = {.m = length, .n = h->width, .k = wide};
    const nn_product to_r = {.transpose_a = 1, .m = wide, .n = h->width, .k = length, .beta = 1.0f};
    spread_gradient(score_gradient, length, h->spread);
    TW_TRY(nn_multiply_parts(&to_q, scale_of(h), &(nn_strides){wide, width, h->width}, h->spread, h->r, part));
    TW_TRY(nn_multiply_parts(&to_r, scale_of(h), &(nn_strides){wide, width, width}, h->spread, h->q_v, r_gradient));
    add_column_sums(q_gradient, length, h->width, 3 * width, gradients + a->bias_u + h->column);
    add_column_sums(part, length, h->width, h->width, gradients + a->bias_v + h->column);
    for (size_t i = 0; i < length; i++)
        for (size_t c = 0; c < h->width; c++) q_gradient[i * 3 * width + c] += part[i * h->width + c];
    return TW_OK;
}

static tw_status attention_backward_head(nn_attention *a, const head *h, const float *y_gradient, float *gradients,
                                         float *qkv_gradient)
{
    const size_t length = h->length, width = a->width;
    const float *dy = y_gradient + h->row * width + h->column;
    float *dq = qkv_gradient + h->row * 3 * width + h->column, *dk = dq + width, *dv = dk + width;
    float *score_gradient = a->scratch.values + length * (2 * length - 1);
    const nn_product to_scores = {.transpose_b = 1, .m = length, .n = length, .k = h->width};
    const nn_product by_rows = {.m = length, .n = h->width, .k = length};
    const nn_product by_columns = {.transpose_a = 1, .m = length, .n = h->width, .k = length};
    TW_TRY(nn_multiply_parts(&to_scores, 1.0f, &(nn_strides){width, 3 * width, length}, dy, h->v, score_gradient));
    TW_TRY(nn_multiply_parts(&by_columns, 1.0f, &(nn_strides){length, width, 3 * width}, h->probabilities, dy, dv));
    nn_softmax_gradient(h->probabilities, length, length, length, score_gradient);
    TW_TRY(nn_multiply_parts(&by_rows, scale_of(h), &(nn_strides){length, 3 * width, 3 * width}, score_gradient, h->k,
                             dq));
    TW_TRY(nn_multiply_parts(&by_columns, scale_of(h), &(nn_strides){length, h->q_step, 3 * width}, score_gradient,
                             h->q, dk));
    return h->r ? backward_positions(a, h, score_gradient, gradients, dq) : TW_OK;
}

static tw_status clear_positions(nn_attention *a, float *gradients)
{
    const size_t count = (2 * a->longest - 1) * a->width;
    TW_TRY(nn_buffer_reserve(&a->position_gradients, count));
    memset(a->position_gradients.values, 0, count * sizeof(float));
    memset(gradients + a->bias_u, 0, a->width * sizeof *gradients);
    memset(gradients + a->bias_v, 0, a->width * sizeof *gradients);
    return TW_OK;
}

static tw_status backward_position_weight(const nn_attention *a, float *gradients)
{
    const nn_product product = {.transpose_a = 1, .m = a->width, .n = a->width, .k = 2 * a->longest - 1};
    return nn_multiply(a->engine, &product, a->position_gradients.values, a->sinusoids.values,
                       gradients + a->position_weight);
}

tw_status nn_attention_backward(nn_attention *layer, const float *values, const nn_rows *rows, const float *qkv,
                                const float *y_gradient, float *gradients, float *qkv_gradient)
{
    size_t square = 0;
    (void)values;
    if (layer->relative) TW_TRY(clear_positions(layer, gradients));
    for (size_t u = 0; u < rows->count; u++) {
        for (size_t i = 0; i < layer->heads; i++) {
            const head h = head_of(layer, rows, u, i, square, qkv);
            TW_TRY(attention_backward_head(layer, &h, y_gradient, gradients, qkv_gradient));
        }
        square += layer->heads * nn_rows_length(rows, u) * nn_rows_length(rows, u);
    }
    return layer->relative ? backward_position_weight(layer, gradients) : TW_OK;
}
