/* grouped_attention.c - a sequence and a head at a time: products of parts of matrices, and nothing is transposed or
 * copied. Queries go in blocks, so that no product is taken of keys that none of a block sees. */
#include "grouped_attention.h"

#include "product.h"
#include "softmax.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 64 }; /* queries */

void nn_grouped_attention_free(nn_grouped_attention *layer)
{
    nn_buffer_free(&layer->probabilities);
    nn_buffer_free(&layer->scratch);
}

size_t nn_grouped_attention_row(const nn_grouped_attention *layer)
{
    return (layer->heads + 2 * layer->kv_heads) * layer->width;
}

/* A head of a sequence. A stride is from a step's row to the next. */
typedef struct head {
    size_t before, steps; /* keys that stand before the first query, and queries */
    size_t width;
    const float *q, *k, *v;
    size_t q_stride, kv_stride, y_stride;
    float *probabilities; /* (steps, before + steps) */
} head;

/* Queries of a head, from `first` on, and the keys up to the last of them. */
typedef struct block {
    size_t first, queries, keys;
    size_t stride; /* of probabilities */
    float *probabilities;
    float scale; /* of scores */
} block;

static block block_at(const head *h, size_t first)
{
    const size_t queries = h->steps - first < BLOCK ? h->steps - first : BLOCK, stride = h->before + h->steps;
    return (block){first,
                   queries,
                   h->before + first + queries,
                   stride,
                   h->probabilities + first * stride,
                   1.0f / sqrtf((float)h->width)};
}

/* ---- forward ---- */

static tw_status forward_block(const head *h, const block *b, float *y)
{
    const nn_product scores = {.transpose_b = 1, .m = b->queries, .n = b->keys, .k = h->width};
    const nn_product mixed = {.m = b->queries, .n = h->width, .k = b->keys};
    TW_TRY(nn_multiply_parts(&scores, b->scale, &(nn_strides){h->q_stride, h->kv_stride, b->stride},
                             h->q + b->first * h->q_stride, h->k, b->probabilities));
    nn_softmax_causal(b->probabilities, b->queries, b->stride, h->before + b->first + 1);
    return nn_multiply_parts(&mixed, 1.0f, &(nn_strides){b->stride, h->kv_stride, h->y_stride}, b->probabilities, h->v,
                             y + b->first * h->y_stride);
}

static tw_status grouped_attention_forward_head(const head *h, float *y)
{
    for (size_t first = 0; first < h->steps; first += BLOCK) {
        const block b = block_at(h, first);
        TW_TRY(forward_block(h, &b, y));
    }
    return TW_OK;
}

/* Where the keys of a query head begin in a row of qkv. */
static size_t keys_at(const nn_grouped_attention *a, size_t index)
{
    return (a->heads + index * a->kv_heads / a->heads) * a->width;
}

static head head_of(const nn_grouped_attention *a, size_t steps, size_t batch, size_t sequence, size_t index,
                    const float *qkv)
{
    const size_t row = nn_grouped_attention_row(a);
    const float *own = qkv + sequence * row;
    head h = {.steps = steps, .width = a->width, .q = own + index * a->width, .k = own + keys_at(a, index)};
    h.v = h.k + a->kv_heads * a->width;
    h.q_stride = h.kv_stride = batch * row;
    h.y_stride = batch * a->heads * a->width;
    h.probabilities = a->probabilities.values + (sequence * a->heads + index) * steps * steps;
    return h;
}

tw_status nn_grouped_attention_forward(nn_grouped_attention *layer, size_t steps, size_t batch, const float *qkv,
                                       float *y)
{
    TW_TRY(nn_buffer_reserve(&layer->probabilities, batch * layer->heads * steps * steps));
    for (size_t s = 0; s < batch; s++)
        for (size_t i = 0; i < layer->heads; i++) {
            const head h = head_of(layer, steps, batch, s, i, qkv);
            TW_TRY(grouped_attention_forward_head(&h, y + (s * layer->heads + i) * layer->width));
        }
    return TW_OK;
}

/* ---- backward ---- */

/* Gradients of what a head reads; those of keys and values are added, for heads and blocks share them. */
typedef struct head_gradient {
    const float *y;
    float *q, *k, *v;
    float *scores; /* scratch (BLOCK, steps) */
} head_gradient;

static tw_status backward_block(const head *h, const block *b, const head_gradient *g)
{
    const nn_product to_scores = {.transpose_b = 1, .m = b->queries, .n = b->keys, .k = h->width};
    const nn_product to_q = {.m = b->queries, .n = h->width, .k = b->keys};
    const nn_product to_keys = {.transpose_a = 1, .m = b->keys, .n = h->width, .k = b->queries, .beta = 1.0f};
    const float *dy = g->y + b->first * h->y_stride, *q = h->q + b->first * h->q_stride;
    TW_TRY(
        nn_multiply_parts(&to_scores, 1.0f, &(nn_strides){h->y_stride, h->kv_stride, b->stride}, dy, h->v, g->scores));
    TW_TRY(nn_multiply_parts(&to_keys, 1.0f, &(nn_strides){b->stride, h->y_stride, h->kv_stride}, b->probabilities, dy,
                             g->v));
    nn_softmax_gradient(b->probabilities, b->queries, b->keys, b->stride, g->scores);
    TW_TRY(nn_multiply_parts(&to_q, b->scale, &(nn_strides){b->stride, h->kv_stride, h->q_stride}, g->scores, h->k,
                             g->q + b->first * h->q_stride));
    return nn_multiply_parts(&to_keys, b->scale, &(nn_strides){b->stride, h->q_stride, h->kv_stride}, g->scores, q,
                             g->k);
}

static tw_status grouped_attention_backward_head(const head *h, const head_gradient *g)
{
    for (size_t first = 0; first < h->steps; first += BLOCK) {
        const block b = block_at(h, first);
        TW_TRY(backward_block(h, &b, g));
    }
    return TW_OK;
}

tw_status nn_grouped_attention_backward(nn_grouped_attention *layer, size_t steps, size_t batch, const float *qkv,
                                        const float *y_gradient, float *qkv_gradient)
{
    const size_t row = nn_grouped_attention_row(layer), values = layer->kv_heads * layer->width;
    TW_TRY(nn_buffer_reserve(&layer->scratch, BLOCK * steps));
    memset(qkv_gradient, 0, steps * batch * row * sizeof *qkv_gradient);
    for (size_t s = 0; s < batch; s++)
        for (size_t i = 0; i < layer->heads; i++) {
            const head h = head_of(layer, steps, batch, s, i, qkv);
            float *own = qkv_gradient + s * row, *keys = own + keys_at(layer, i);
            const head_gradient g = {y_gradient + (s * layer->heads + i) * layer->width, own + i * layer->width, keys,
                                     keys + values, layer->scratch.values};
            TW_TRY(grouped_attention_backward_head(&h, &g));
        }
    return TW_OK;
}

/* ---- reading on ---- */

static void remember(const nn_grouped_attention *a, size_t steps, const float *qkv, nn_heard *heard)
{
    const size_t row = nn_grouped_attention_row(a), queries = a->heads * a->width, kept = row - queries;
    for (size_t t = 0; t < steps; t++)
        memcpy(heard->rows + (heard->count + t) * kept, qkv + t * row + queries, kept * sizeof *qkv);
    heard->count += steps;
}

tw_status nn_grouped_attention_read(nn_grouped_attention *layer, size_t steps, const float *qkv, nn_heard *heard,
                                    float *y)
{
    const size_t before = heard->count, kept = 2 * layer->kv_heads * layer->width;
    TW_TRY(nn_buffer_reserve(&layer->probabilities, steps * (before + steps)));
    remember(layer, steps, qkv, heard);
    for (size_t i = 0; i < layer->heads; i++) {
        head h = head_of(layer, steps, 1, 0, i, qkv);
        h.before = before;
        h.k = heard->rows + keys_at(layer, i) - layer->heads * layer->width;
        h.v = h.k + kept / 2;
        h.kv_stride = kept;
        h.probabilities = layer->probabilities.values;
        TW_TRY(grouped_attention_forward_head(&h, y + i * layer->width));
    }
    return TW_OK;
}
