/* transformer.c - the stack, and what it remembers of a text that it reads on. */
#include "transformer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct transformer {
    const nn_table *table;
    transformer_options options;
    decoder_block *blocks;
    size_t first, end; /* of the blocks, those that are computed; and */
    int normed;        /* whether the norm is */
    nn_heard *heard;   /* of each block; room for `remembered` steps stands in one array */
    float *memory;
    size_t remembered;
    nn_rms_norm norm;
    nn_rotary rotary;
    nn_buffer scales, y;
    nn_buffer gradient; /* of what goes from block to block: blocks still read the batch's x */
    decoder_room room;
    transformer_batch batch; /* of the last forward */
};

/* ---- making ---- */

static tw_status declare_block(transformer *t, nn_table *table, size_t index)
{
    const transformer_options *o = &t->options;
    char name[64];
    snprintf(name, sizeof name, "model.layers.%zu", index);
    const decoder_options block = {.name = name,
                                   .family = o->family,
                                   .width = o->width,
                                   .heads = o->heads,
                                   .kv_heads = o->kv_heads,
                                   .head = o->head,
                                   .inner = o->inner,
                                   .epsilon = o->epsilon,
                                   .range = o->range,
                                   .out_range = o->range / sqrtf(2.0f * (float)o->layers),
                                   .engine = o->engine,
                                   .lora = o->lora};
    return decoder_declare(&block, table, &t->blocks[index]);
}

static tw_status transformer_fill(transformer *t, nn_table *table)
{
    t->blocks = calloc(t->options.layers, sizeof *t->blocks);
    t->heard = calloc(t->options.layers, sizeof *t->heard);
    if (!t->blocks || !t->heard) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu blocks", t->options.layers);
    for (size_t i = 0; i < t->options.layers; i++) {
        TW_TRY(declare_block(t, table, i));
        TW_TRY(nn_table_end_unit(table, 0));
    }
    return nn_rms_norm_declare("model.norm", t->options.width, t->options.epsilon, table, &t->norm);
}

tw_status transformer_create(const transformer_options *options, nn_table *table, transformer **stack)
{
    transformer *made = calloc(1, sizeof *made);
    if (!made) return tw_fail(TW_ERROR_MEMORY, "no memory for a transformer");
    made->table = table;
    made->options = *options;
    transformer_hold(made, 0, options->layers + 1);
    made->rotary = (nn_rotary){.width = options->head, .base = options->theta, .scaling = options->scaling};
    tw_status status = transformer_fill(made, table);
    if (status == TW_OK)
        *stack = made;
    else
        transformer_destroy(made);
    return status;
}

void transformer_destroy(transformer *t)
{
    if (!t) return;
    for (size_t i = 0; t->blocks && i < t->options.layers; i++) decoder_free(&t->blocks[i]);
    free(t->blocks);
    free(t->heard);
    free(t->memory);
    nn_rotary_free(&t->rotary);
    nn_buffer_free(&t->scales);
    nn_buffer_free(&t->y);
    nn_buffer_free(&t->gradient);
    decoder_room_free(&t->room);
    free(t);
}

void transformer_hold(transformer *t, size_t first, size_t end)
{
    const size_t layers = t->options.layers;
    t->first = first < layers ? first : layers;
    t->end = end < layers ? end : layers;
    t->normed = first <= layers && end > layers;
}

/* ---- memory ---- */

tw_status transformer_remember(transformer *t, size_t room)
{
    const transformer_options *o = &t->options;
    const size_t kept = room * 2 * o->kv_heads * o->head;
    if (room != t->remembered) {
        free(t->memory);
        t->remembered = 0;
        t->memory = calloc(o->layers * kept, sizeof *t->memory);
        if (!t->memory && room > 0) return tw_fail(TW_ERROR_MEMORY, "no memory for a text of %zu tokens", room);
        t->remembered = room;
    }
    for (size_t i = 0; i < o->layers; i++) t->heard[i] = (nn_heard){t->memory ? t->memory + i * kept : NULL, 0};
    return TW_OK;
}

/* ---- running ---- */

static decoder_pass pass_of(const transformer *t, const float *values, size_t index)
{
    const transformer_batch *b = &t->batch;
    return (decoder_pass){.values = values,
                          .steps = b->steps,
                          .batch = b->batch,
                          .rotary = &t->rotary,
                          .first = t->remembered ? t->heard[index].count : 0,
                          .noise = &b->noise,
                          .place = 1 + DECODER_DROPOUTS * index,
                          .keep = b->keep};
}

/* What block `index` reads; what is after the last is the norm. */
static const float *input_of(const transformer *t, size_t index)
{
    return index > t->first ? t->blocks[index - 1].y.values : t->batch.x;
}

static tw_status check_memory(const transformer *t, const transformer_batch *batch)
{
    const size_t count = t->remembered ? t->heard->count : 0;
    if (t->remembered == 0 || (batch->batch == 1 && batch->steps <= t->remembered - count)) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "%zu steps of %zu texts after %zu steps do not fit a memory of %zu steps of one",
                   batch->steps, batch->batch, count, t->remembered);
}

static tw_status forward_norm(transformer *t, const float *values)
{
    const size_t rows = t->batch.steps * t->batch.batch;
    TW_TRY(nn_buffer_reserve(&t->scales, rows));
    TW_TRY(nn_buffer_reserve(&t->y, rows * t->options.width));
    TW_TRY(nn_table_use(t->table, t->norm.parameters, PAGER_FORWARD));
    nn_rms_norm_forward(&t->norm, values, rows, input_of(t, t->end), t->y.values, t->scales.values);
    return TW_OK;
}

tw_status transformer_forward(transformer *t, const float *values, const transformer_batch *batch, const float **y)
{
    TW_TRY(check_memory(t, batch));
    t->batch = *batch;
    TW_TRY(nn_rotary_prepare(&t->rotary, t->remembered ? t->remembered : batch->steps));
    for (size_t i = t->first; i < t->end; i++) {
        const decoder_pass pass = pass_of(t, values, i);
        TW_TRY(nn_table_use(t->table, t->blocks[i].parameters, PAGER_FORWARD));
        TW_TRY(decoder_forward(&t->blocks[i], &pass, t->remembered ? &t->heard[i] : NULL, input_of(t, i)));
    }
    if (t->normed) TW_TRY(forward_norm(t, values));
    *y = t->normed ? t->y.values : input_of(t, t->end);
    return TW_OK;
}

static tw_status backward_norm(transformer *t, const float *values, const transformer_gradients *g)
{
    const size_t rows = t->batch.steps * t->batch.batch;
    TW_TRY(nn_table_use(t->table, t->norm.parameters, PAGER_BACKWARD));
    nn_rms_norm_backward(&t->norm, values, rows, input_of(t, t->end), t->scales.values, g->y, g->parameters,
                         t->gradient.values);
    return nn_table_announce(t->table, t->norm.parameters, g->parameters, g->ready, g->context);
}

tw_status transformer_backward(transformer *t, const float *values, const transformer_gradients *g)
{
    const size_t count = t->batch.steps * t->batch.batch * t->options.width;
    TW_TRY(nn_buffer_reserve(&t->gradient, count));
    float *gradient = t->gradient.values;
    if (t->normed) {
        memset(gradient, 0, count * sizeof *gradient);
        TW_TRY(backward_norm(t, values, g));
    } else {
        memcpy(gradient, g->y, count * sizeof *gradient);
    }
    for (size_t i = t->end; i-- > t->first;) {
        const decoder_pass pass = pass_of(t, values, i);
        TW_TRY(nn_table_use(t->table, t->blocks[i].parameters, PAGER_BACKWARD));
        TW_TRY(decoder_backward(&t->blocks[i], &pass, input_of(t, i), gradient, g->parameters, &t->room));
        TW_TRY(nn_table_announce(t->table, t->blocks[i].parameters, g->parameters, g->ready, g->context));
    }
    memcpy(g->x, gradient, count * sizeof *gradient);
    return TW_OK;
}
