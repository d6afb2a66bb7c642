/* decoder_block.c - two branches, forward and backward. */
#include "decoder_block.h"

#include "elementwise.h"

#include <stdio.h>
#include <string.h>

enum { ATTENTION, FEED };

/* ---- making ---- */

typedef struct declaring {
    const decoder_options *options;
    nn_table *table;
    char name[128];
} declaring;

static const char *decoder_block_name_of(declaring *d, const char *part)
{
    snprintf(d->name, sizeof d->name, "%s.%s", d->options->name, part);
    return d->name;
}

static tw_status declare_affine(declaring *d, const char *part, size_t inputs, size_t outputs, float range,
                                nn_affine *affine)
{
    const nn_affine_options options = {
        decoder_block_name_of(d, part), inputs, outputs, range, 0.0f, d->options->engine};
    return nn_affine_declare_plain(&options, d->table, affine);
}

static tw_status adapt(const declaring *d, size_t inputs, size_t outputs, size_t column, nn_affine *affine)
{
    return nn_lora_declare(d->options->lora, d->name, inputs, outputs, column, &affine->lora);
}

/* A matrix by itself, with its adapter. */
static tw_status declare_whole(declaring *d, const char *part, size_t inputs, size_t outputs, nn_affine *affine)
{
    TW_TRY(declare_affine(d, part, inputs, outputs, d->options->out_range, affine));
    return adapt(d, inputs, outputs, 0, affine);
}

/* A matrix, and its rows among those of the joint one. */
static tw_status declare_part(declaring *d, const char *part, size_t outputs, nn_affine *joint)
{
    nn_affine alone;
    TW_TRY(declare_affine(d, part, d->options->width, outputs, d->options->range, &alone));
    TW_TRY(adapt(d, d->options->width, outputs, joint->outputs, joint));
    joint->outputs += outputs;
    return TW_OK;
}

/* Biases side by side, as the matrices are. */
static tw_status declare_biases(declaring *d, nn_affine *joint)
{
    const size_t outputs[] = {d->options->heads * d->options->head, d->options->kv_heads * d->options->head};
    static const char *const parts[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
    joint->bias = d->table->elements;
    joint->plain = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const nn_declaration bias = {
            decoder_block_name_of(d, parts[i]), "bias", 1, {outputs[i > 0]}, NN_INITIAL_ZERO, 0.0f};
        TW_TRY(nn_table_declare(d->table, &bias));
    }
    return TW_OK;
}

static tw_status declare_head_norms(declaring *d, nn_rms_norm norms[2])
{
    const decoder_options *o = d->options;
    TW_TRY(nn_rms_norm_declare(decoder_block_name_of(d, "self_attn.q_norm"), o->head, o->epsilon, d->table, &norms[0]));
    return nn_rms_norm_declare(decoder_block_name_of(d, "self_attn.k_norm"), o->head, o->epsilon, d->table, &norms[1]);
}

static nn_affine joint_here(const declaring *d)
{
    return (nn_affine){
        .inputs = d->options->width, .weight = d->table->elements, .engine = d->options->engine, .plain = 1};
}

static tw_status declare_attention(declaring *d, decoder_block *b)
{
    const decoder_options *o = d->options;
    const size_t queries = o->heads * o->head, keys = o->kv_heads * o->head;
    b->attention = (nn_grouped_attention){.heads = o->heads, .kv_heads = o->kv_heads, .width = o->head};
    TW_TRY(nn_rms_norm_declare(decoder_block_name_of(d, "input_layernorm"), o->width, o->epsilon, d->table,
                               &b->norms[ATTENTION]));
    b->joint = joint_here(d);
    TW_TRY(declare_part(d, "self_attn.q_proj", queries, &b->joint));
    TW_TRY(declare_part(d, "self_attn.k_proj", keys, &b->joint));
    TW_TRY(declare_part(d, "self_attn.v_proj", keys, &b->joint));
    if (o->family == DECODER_QWEN2) TW_TRY(declare_biases(d, &b->joint));
    if (o->family == DECODER_QWEN3) TW_TRY(declare_head_norms(d, b->head_norms));
    return declare_whole(d, "self_attn.o_proj", queries, o->width, &b->out);
}

static tw_status declare_feed(declaring *d, decoder_block *b)
{
    const decoder_options *o = d->options;
    TW_TRY(nn_rms_norm_declare(decoder_block_name_of(d, "post_attention_layernorm"), o->width, o->epsilon, d->table,
                               &b->norms[FEED]));
    b->gates = joint_here(d);
    TW_TRY(declare_part(d, "mlp.gate_proj", o->inner, &b->gates));
    TW_TRY(declare_part(d, "mlp.up_proj", o->inner, &b->gates));
    return declare_whole(d, "mlp.down_proj", o->inner, o->width, &b->down);
}

tw_status decoder_declare(const decoder_options *options, nn_table *table, decoder_block *block)
{
    declaring d = {.options = options, .table = table};
    *block = (decoder_block){
        .family = options->family, .width = options->width, .inner = options->inner, .parameters.first = table->count};
    TW_TRY(declare_attention(&d, block));
    TW_TRY(declare_feed(&d, block));
    block->parameters.end = table->count;
    return TW_OK;
}

void decoder_free(decoder_block *b)
{
    nn_buffer *const own[] = {&b->normed[0], &b->normed[1], &b->scales[0],   &b->scales[1], &b->qkv,    &b->attended,
                              &b->sum,       &b->plain,     &b->head_scales, &b->wide,      &b->active, &b->y};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) nn_buffer_free(own[i]);
    nn_grouped_attention_free(&b->attention);
}

void decoder_room_free(decoder_room *room)
{
    nn_buffer_free(&room->narrow);
    nn_buffer_free(&room->wide);
    nn_buffer_free(&room->branch);
}

/* ---- forward ---- */

static size_t rows_of(const decoder_pass *pass)
{
    return pass->steps * pass->batch;
}

static void decoder_block_drop(const decoder_pass *pass, size_t i, float *values, size_t count)
{
    nn_dropout(pass->noise, pass->place + i, pass->keep, values, count);
}

static tw_status decoder_block_normalise(decoder_block *b, const decoder_pass *pass, size_t which, const float *x)
{
    const size_t rows = rows_of(pass);
    TW_TRY(nn_buffer_reserve(&b->scales[which], rows));
    TW_TRY(nn_buffer_reserve(&b->normed[which], rows * b->width));
    nn_rms_norm_forward(&b->norms[which], pass->values, rows, x, b->normed[which].values, b->scales[which].values);
    return TW_OK;
}

/* sum = x + dropout(branch), where the branch's output stands in `sum`. */
static void decoder_block_join(const decoder_block *b, const decoder_pass *pass, size_t which, const float *x,
                               float *sum)
{
    decoder_block_drop(pass, which, sum, rows_of(pass) * b->width);
    add(sum, x, rows_of(pass) * b->width);
}

/* Queries and keys turn; values stay as they are. */
static nn_turned turned(const decoder_block *b, const decoder_pass *pass)
{
    const nn_grouped_attention *a = &b->attention;
    return (nn_turned){.first = pass->first,
                       .steps = pass->steps,
                       .batch = pass->batch,
                       .heads = a->heads + a->kv_heads,
                       .stride = nn_grouped_attention_row(a)};
}

/* The queries of all rows, or the keys; and where they begin in a row, and in head_scales. */
typedef struct heads_of {
    nn_rms_heads what;
    size_t at, scales;
} heads_of;

static heads_of heads_at(const decoder_block *b, size_t rows, size_t which)
{
    const nn_grouped_attention *a = &b->attention;
    return (heads_of){{rows, which ? a->kv_heads : a->heads, nn_grouped_attention_row(a)},
                      which ? a->heads * a->width : 0,
                      which ? rows * a->heads : 0};
}

static tw_status normalise_heads(decoder_block *b, const decoder_pass *pass)
{
    const nn_grouped_attention *a = &b->attention;
    const size_t rows = rows_of(pass), count = rows * nn_grouped_attention_row(a);
    TW_TRY(nn_buffer_reserve(&b->plain, count));
    TW_TRY(nn_buffer_reserve(&b->head_scales, rows * (a->heads + a->kv_heads)));
    memcpy(b->plain.values, b->qkv.values, count * sizeof *b->plain.values);
    for (size_t i = 0; i < 2; i++) {
        const heads_of heads = heads_at(b, rows, i);
        nn_rms_norm_forward_heads(&b->head_norms[i], pass->values, &heads.what, b->plain.values + heads.at,
                                  b->qkv.values + heads.at, b->head_scales.values + heads.scales);
    }
    return TW_OK;
}

static tw_status forward_attention(decoder_block *b, const decoder_pass *pass, nn_heard *heard, const float *x)
{
    const size_t rows = rows_of(pass);
    const nn_turned what = turned(b, pass);
    nn_grouped_attention *a = &b->attention;
    TW_TRY(decoder_block_normalise(b, pass, ATTENTION, x));
    TW_TRY(nn_buffer_reserve(&b->qkv, rows * nn_grouped_attention_row(a)));
    TW_TRY(nn_buffer_reserve(&b->attended, rows * b->out.inputs));
    TW_TRY(nn_affine_forward(&b->joint, pass->values, rows, b->normed[ATTENTION].values, b->qkv.values));
    if (b->family == DECODER_QWEN3) TW_TRY(normalise_heads(b, pass));
    nn_rotary_forward(pass->rotary, &what, b->qkv.values);
    TW_TRY(heard ? nn_grouped_attention_read(a, pass->steps, b->qkv.values, heard, b->attended.values)
                 : nn_grouped_attention_forward(a, pass->steps, pass->batch, b->qkv.values, b->attended.values));
    TW_TRY(nn_affine_forward(&b->out, pass->values, rows, b->attended.values, b->sum.values));
    decoder_block_join(b, pass, ATTENTION, x, b->sum.values);
    return TW_OK;
}

static tw_status forward_feed(decoder_block *b, const decoder_pass *pass)
{
    const size_t rows = rows_of(pass);
    TW_TRY(decoder_block_normalise(b, pass, FEED, b->sum.values));
    TW_TRY(nn_buffer_reserve(&b->wide, rows * 2 * b->inner));
    TW_TRY(nn_buffer_reserve(&b->active, rows * b->inner));
    TW_TRY(nn_affine_forward(&b->gates, pass->values, rows, b->normed[FEED].values, b->wide.values));
    nn_swiglu_forward(b->wide.values, rows, b->inner, b->active.values);
    TW_TRY(nn_affine_forward(&b->down, pass->values, rows, b->active.values, b->y.values));
    decoder_block_join(b, pass, FEED, b->sum.values, b->y.values);
    return TW_OK;
}

tw_status decoder_forward(decoder_block *block, const decoder_pass *pass, nn_heard *heard, const float *x)
{
    TW_TRY(nn_buffer_reserve(&block->sum, rows_of(pass) * block->width));
    TW_TRY(nn_buffer_reserve(&block->y, rows_of(pass) * block->width));
    TW_TRY(forward_attention(block, pass, heard, x));
    return forward_feed(block, pass);
}

/* ---- backward ---- */

typedef struct backward {
    decoder_block *block;
    const decoder_pass *pass;
    float *gradient; /* of the residual stream: a branch adds its own */
    float *gradients;
    decoder_room *room;
} backward;

static tw_status decoder_block_backward_affine(const backward *b, const nn_affine *affine, const float *x,
                                               const float *y_gradient, float *x_gradient)
{
    const size_t rows = rows_of(b->pass);
    TW_TRY(nn_affine_backward_parameters(affine, rows, x, y_gradient, b->gradients));
    return nn_affine_backward_source(affine, b->pass->values, rows, y_gradient, x_gradient);
}

static void decoder_block_backward_norm(const backward *b, size_t which, const float *x, const float *y_gradient)
{
    nn_rms_norm_backward(&b->block->norms[which], b->pass->values, rows_of(b->pass), x, b->block->scales[which].values,
                         y_gradient, b->gradients, b->gradient);
}

/* What of the stream's gradient enters a branch at its end. */
static float *decoder_block_enter(const backward *b, size_t which)
{
    const size_t count = rows_of(b->pass) * b->block->width;
    float *branch = b->room->branch.values;
    memcpy(branch, b->gradient, count * sizeof *branch);
    decoder_block_drop(b->pass, which, branch, count);
    return branch;
}

static tw_status backward_feed(const backward *b)
{
    const decoder_block *d = b->block;
    float *narrow = b->room->narrow.values, *wide = b->room->wide.values, *branch = decoder_block_enter(b, FEED);
    TW_TRY(decoder_block_backward_affine(b, &d->down, d->active.values, branch, narrow));
    nn_swiglu_backward(d->wide.values, narrow, rows_of(b->pass), d->inner, wide);
    TW_TRY(decoder_block_backward_affine(b, &d->gates, d->normed[FEED].values, wide, branch));
    decoder_block_backward_norm(b, FEED, d->sum.values, branch);
    return TW_OK;
}

/* The gradient of qkv becomes that of what the product gave. */
static void backward_heads(const backward *b, float *gradient)
{
    const decoder_block *d = b->block;
    for (size_t i = 0; i < 2; i++) {
        const heads_of heads = heads_at(d, rows_of(b->pass), i);
        nn_rms_norm_backward_heads(&d->head_norms[i], b->pass->values, &heads.what, d->plain.values + heads.at,
                                   d->head_scales.values + heads.scales, b->gradients, gradient + heads.at);
    }
}

static tw_status backward_attention(const backward *b, const float *x)
{
    decoder_block *d = b->block;
    const nn_turned what = turned(d, b->pass);
    float *narrow = b->room->narrow.values, *wide = b->room->wide.values, *branch = decoder_block_enter(b, ATTENTION);
    TW_TRY(decoder_block_backward_affine(b, &d->out, d->attended.values, branch, narrow));
    TW_TRY(nn_grouped_attention_backward(&d->attention, b->pass->steps, b->pass->batch, d->qkv.values, narrow, wide));
    nn_rotary_back(b->pass->rotary, &what, wide);
    if (d->family == DECODER_QWEN3) backward_heads(b, wide);
    TW_TRY(decoder_block_backward_affine(b, &d->joint, d->normed[ATTENTION].values, wide, branch));
    decoder_block_backward_norm(b, ATTENTION, x, branch);
    return TW_OK;
}

static size_t decoder_block_larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

tw_status decoder_backward(decoder_block *block, const decoder_pass *pass, const float *x, float *gradient,
                           float *gradients, decoder_room *room)
{
    const size_t rows = rows_of(pass);
    const backward b = {block, pass, gradient, gradients, room};
    TW_TRY(nn_buffer_reserve(&room->branch, rows * block->width));
    TW_TRY(nn_buffer_reserve(&room->narrow, rows * decoder_block_larger(block->out.inputs, block->inner)));
    TW_TRY(nn_buffer_reserve(&room->wide, rows * decoder_block_larger(block->joint.outputs, block->gates.outputs)));
    TW_TRY(backward_feed(&b));
    return backward_attention(&b, x);
}
