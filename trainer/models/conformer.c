/* conformer.c - four branches and a norm, written out; and the same from the end. */
#include "conformer.h"

#include "wide.h"

#include <stdio.h>

/* Norms, in the order of the forward pass. */
enum { FEED, ATTENTION, CONVOLUTION, INNER, LAST_FEED, FINAL };

/* ---- making ---- */

typedef struct declaring {
    const conformer_options *options;
    nn_table *table;
    char name[96];
} declaring;

static const char *conformer_name_of(declaring *d, const char *part)
{
    snprintf(d->name, sizeof d->name, "%s.%s", d->options->name, part);
    return d->name;
}

static tw_status declare_norm(declaring *d, const char *part, nn_layer_norm *norm)
{
    return nn_layer_norm_declare(conformer_name_of(d, part), d->options->width, d->table, norm);
}

static tw_status declare_affine(declaring *d, const char *part, size_t inputs, size_t outputs, nn_affine *affine)
{
    const float range = 1.0f / sqrtf((float)inputs);
    const nn_affine_options options = {conformer_name_of(d, part), inputs, outputs, range, range, d->options->engine};
    return nn_affine_declare(&options, d->table, affine);
}

static tw_status declare_feed(declaring *d, const char *widen, const char *narrow, conformer_feed *feed)
{
    const size_t width = d->options->width;
    TW_TRY(declare_affine(d, widen, width, CONFORMER_WIDENING * width, &feed->widen));
    return declare_affine(d, narrow, CONFORMER_WIDENING * width, width, &feed->narrow);
}

static tw_status declare_joint(declaring *d, nn_affine *joint)
{
    static const char *const parts[] = {"self_attn.linear_q", "self_attn.linear_k", "self_attn.linear_v"};
    const size_t width = d->options->width;
    const float range = 1.0f / sqrtf((float)width);
    *joint = (nn_affine){.inputs = width,
                         .outputs = 3 * width,
                         .weight = d->table->elements,
                         .bias = d->table->elements + 3 * width * width,
                         .engine = d->options->engine};
    for (size_t i = 0; i < 6; i++) {
        const nn_declaration tensor = {.layer = conformer_name_of(d, parts[i % 3]),
                                       .name = i < 3 ? "weight" : "bias",
                                       .dims = i < 3 ? 2 : 1,
                                       .shape = {width, width},
                                       .initial = NN_INITIAL_UNIFORM,
                                       .scale = range};
        TW_TRY(nn_table_declare(d->table, &tensor));
    }
    return TW_OK;
}

static tw_status declare_attention(declaring *d, conformer *c)
{
    const conformer_options *o = d->options;
    TW_TRY(declare_norm(d, "self_attn_layer_norm", &c->norms[ATTENTION]));
    TW_TRY(declare_joint(d, &c->joint));
    TW_TRY(nn_attention_declare(conformer_name_of(d, "self_attn"), o->width, o->heads, o->relative, o->engine, d->table,
                                &c->attention));
    return declare_affine(d, "self_attn.linear_out", o->width, o->width, &c->out);
}

static tw_status declare_convolution(declaring *d, conformer *c)
{
    const conformer_options *o = d->options;
    TW_TRY(declare_norm(d, "conv_module.layer_norm", &c->norms[CONVOLUTION]));
    TW_TRY(declare_affine(d, "conv_module.pointwise_conv1", o->width, 2 * o->width, &c->pointwise[0]));
    TW_TRY(nn_depthwise_declare(conformer_name_of(d, "conv_module.depthwise_conv"), o->width, o->kernel, d->table,
                                &c->depthwise));
    TW_TRY(declare_norm(d, "conv_module.depthwise_layer_norm", &c->norms[INNER]));
    return declare_affine(d, "conv_module.pointwise_conv2", o->width, o->width, &c->pointwise[1]);
}

tw_status conformer_declare(const conformer_options *options, nn_table *table, conformer *block)
{
    declaring d = {.options = options, .table = table};
    block->width = options->width;
    block->parameters.first = table->count;
    TW_TRY(declare_norm(&d, "ffn1_layer_norm", &block->norms[FEED]));
    TW_TRY(declare_feed(&d, "ffn1.intermediate_dense", "ffn1.output_dense", &block->feeds[0]));
    TW_TRY(declare_attention(&d, block));
    TW_TRY(declare_convolution(&d, block));
    TW_TRY(declare_norm(&d, "ffn2_layer_norm", &block->norms[LAST_FEED]));
    TW_TRY(declare_feed(&d, "ffn2.intermediate_dense", "ffn2.output_dense", &block->feeds[1]));
    TW_TRY(declare_norm(&d, "final_layer_norm", &block->norms[FINAL]));
    block->parameters.end = table->count;
    return TW_OK;
}

void conformer_free(conformer *block)
{
    nn_buffer *const own[] = {&block->feeds[0].wide,
                              &block->feeds[0].active,
                              &block->feeds[1].wide,
                              &block->feeds[1].active,
                              &block->qkv,
                              &block->attended,
                              &block->gate_inputs,
                              &block->gated,
                              &block->convolved,
                              &block->swished,
                              &block->y};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) nn_buffer_free(own[i]);
    for (size_t i = 0; i < 4; i++) nn_buffer_free(&block->sums[i]);
    for (size_t i = 0; i + 1 < CONFORMER_NORMS; i++) nn_buffer_free(&block->normed[i]);
    for (size_t i = 0; i < CONFORMER_NORMS; i++) nn_buffer_free(&block->moments[i]);
    nn_attention_free(&block->attention);
    nn_depthwise_free(&block->depthwise);
}

void conformer_room_free(conformer_room *room)
{
    nn_buffer_free(&room->narrow);
    nn_buffer_free(&room->wide);
    nn_buffer_free(&room->branch);
}

/* ---- forward ---- */

static size_t conformer_total(const conformer_pass *pass)
{
    return nn_rows_total(&pass->rows);
}

/* The i-th of the block's dropouts. */
static void conformer_drop(const conformer_pass *pass, size_t i, float *values, size_t count)
{
    if (pass->noise) nn_dropout(pass->noise, pass->place + i, pass->keep, values, count);
}

NN_WIDE static void add_scaled(const float *x, const float *branch, float scale, size_t count, float *sum)
{
    for (size_t i = 0; i < count; i++) sum[i] = x[i] + scale * branch[i];
}

NN_WIDE static void scale_to(const float *from, float scale, size_t count, float *to)
{
    for (size_t i = 0; i < count; i++) to[i] = scale * from[i];
}

static tw_status conformer_normalise(conformer *c, const conformer_pass *pass, size_t index, const float *x)
{
    TW_TRY(nn_buffer_reserve(&c->moments[index], 2 * conformer_total(pass)));
    TW_TRY(nn_buffer_reserve(&c->normed[index], conformer_total(pass) * c->width));
    nn_layer_norm_forward(&c->norms[index], pass->values, conformer_total(pass), x, c->normed[index].values,
                          c->moments[index].values);
    return TW_OK;
}

/* sum = x + scale * dropout(branch), where the branch's output stands in `sum`. */
static void conformer_join(const conformer *c, const conformer_pass *pass, size_t dropout, const float *x, float scale,
                           float *sum)
{
    conformer_drop(pass, dropout, sum, conformer_total(pass) * c->width);
    add_scaled(x, sum, scale, conformer_total(pass) * c->width, sum);
}

static tw_status forward_feed(conformer *c, const conformer_pass *pass, size_t which, const float *x, float *sum)
{
    const size_t rows = conformer_total(pass), wide = rows * CONFORMER_WIDENING * c->width,
                 norm = which ? LAST_FEED : FEED;
    conformer_feed *feed = &c->feeds[which];
    TW_TRY(conformer_normalise(c, pass, norm, x));
    TW_TRY(nn_buffer_reserve(&feed->wide, wide));
    TW_TRY(nn_buffer_reserve(&feed->active, wide));
    TW_TRY(nn_affine_forward(&feed->widen, pass->values, rows, c->normed[norm].values, feed->wide.values));
    nn_swish_forward(feed->wide.values, wide, feed->active.values);
    conformer_drop(pass, which ? 4 : 0, feed->active.values, wide);
    TW_TRY(nn_affine_forward(&feed->narrow, pass->values, rows, feed->active.values, sum));
    conformer_join(c, pass, which ? 5 : 1, x, 0.5f, sum);
    return TW_OK;
}

static tw_status forward_attention(conformer *c, const conformer_pass *pass, const float *x, float *sum)
{
    const size_t rows = conformer_total(pass);
    TW_TRY(conformer_normalise(c, pass, ATTENTION, x));
    TW_TRY(nn_buffer_reserve(&c->qkv, 3 * rows * c->width));
    TW_TRY(nn_buffer_reserve(&c->attended, rows * c->width));
    TW_TRY(nn_affine_forward(&c->joint, pass->values, rows, c->normed[ATTENTION].values, c->qkv.values));
    TW_TRY(nn_attention_forward(&c->attention, pass->values, &pass->rows, c->qkv.values, c->attended.values));
    TW_TRY(nn_affine_forward(&c->out, pass->values, rows, c->attended.values, sum));
    conformer_join(c, pass, 2, x, 1.0f, sum);
    return TW_OK;
}

static tw_status reserve_convolution(conformer *c, size_t rows)
{
    TW_TRY(nn_buffer_reserve(&c->gate_inputs, 2 * rows * c->width));
    TW_TRY(nn_buffer_reserve(&c->gated, rows * c->width));
    TW_TRY(nn_buffer_reserve(&c->convolved, rows * c->width));
    return nn_buffer_reserve(&c->swished, rows * c->width);
}

static tw_status forward_convolution(conformer *c, const conformer_pass *pass, const float *x, float *sum)
{
    const size_t rows = conformer_total(pass);
    TW_TRY(conformer_normalise(c, pass, CONVOLUTION, x));
    TW_TRY(reserve_convolution(c, rows));
    TW_TRY(
        nn_affine_forward(&c->pointwise[0], pass->values, rows, c->normed[CONVOLUTION].values, c->gate_inputs.values));
    nn_glu_forward(c->gate_inputs.values, rows, c->width, c->gated.values);
    TW_TRY(nn_depthwise_forward(&c->depthwise, pass->values, &pass->rows, c->gated.values, c->convolved.values));
    TW_TRY(conformer_normalise(c, pass, INNER, c->convolved.values));
    nn_swish_forward(c->normed[INNER].values, rows * c->width, c->swished.values);
    TW_TRY(nn_affine_forward(&c->pointwise[1], pass->values, rows, c->swished.values, sum));
    conformer_join(c, pass, 3, x, 1.0f, sum);
    return TW_OK;
}

tw_status conformer_forward(conformer *block, const conformer_pass *pass, const float *x)
{
    const size_t rows = conformer_total(pass);
    nn_buffer *sums = block->sums;
    for (size_t i = 0; i < 4; i++) TW_TRY(nn_buffer_reserve(&sums[i], rows * block->width));
    TW_TRY(nn_buffer_reserve(&block->y, rows * block->width));
    TW_TRY(nn_buffer_reserve(&block->moments[FINAL], 2 * rows));
    TW_TRY(forward_feed(block, pass, 0, x, sums[0].values));
    TW_TRY(forward_attention(block, pass, sums[0].values, sums[1].values));
    TW_TRY(forward_convolution(block, pass, sums[1].values, sums[2].values));
    TW_TRY(forward_feed(block, pass, 1, sums[2].values, sums[3].values));
    nn_layer_norm_forward(&block->norms[FINAL], pass->values, rows, sums[3].values, block->y.values,
                          block->moments[FINAL].values);
    return TW_OK;
}

/* ---- backward ---- */

typedef struct backward {
    conformer *block;
    const conformer_pass *pass;
    float *gradient; /* of the residual stream: a branch adds its own */
    float *gradients;
    conformer_room *room;
} backward;

static tw_status conformer_backward_affine(const backward *b, const nn_affine *affine, const float *x,
                                           const float *y_gradient, float *x_gradient)
{
    const size_t rows = conformer_total(b->pass);
    TW_TRY(nn_affine_backward_parameters(affine, rows, x, y_gradient, b->gradients));
    return nn_affine_backward_source(affine, b->pass->values, rows, y_gradient, x_gradient);
}

static void conformer_backward_norm(const backward *b, size_t index, const float *x, const float *y_gradient,
                                    float *sum)
{
    nn_layer_norm_backward(&b->block->norms[index], b->pass->values, conformer_total(b->pass), x,
                           b->block->moments[index].values, y_gradient, b->gradients, sum);
}

/* What of the stream's gradient enters a branch at its end. */
static float *conformer_enter(const backward *b, size_t dropout, float scale)
{
    const size_t count = conformer_total(b->pass) * b->block->width;
    float *branch = b->room->branch.values;
    scale_to(b->gradient, scale, count, branch);
    conformer_drop(b->pass, dropout, branch, count);
    return branch;
}

static tw_status backward_feed(const backward *b, size_t which, const float *x)
{
    conformer *c = b->block;
    const size_t wide = conformer_total(b->pass) * CONFORMER_WIDENING * c->width, norm = which ? LAST_FEED : FEED;
    const conformer_feed *feed = &c->feeds[which];
    float *inner = b->room->wide.values, *branch = conformer_enter(b, which ? 5 : 1, 0.5f);
    TW_TRY(conformer_backward_affine(b, &feed->narrow, feed->active.values, branch, inner));
    conformer_drop(b->pass, which ? 4 : 0, inner, wide);
    nn_swish_backward(feed->wide.values, wide, inner);
    TW_TRY(conformer_backward_affine(b, &feed->widen, c->normed[norm].values, inner, branch));
    conformer_backward_norm(b, norm, x, branch, b->gradient);
    return TW_OK;
}

static tw_status backward_convolution(const backward *b, const float *x)
{
    conformer *c = b->block;
    const size_t rows = conformer_total(b->pass), count = rows * c->width;
    float *wide = b->room->wide.values, *narrow = b->room->narrow.values, *branch = conformer_enter(b, 3, 1.0f);
    TW_TRY(conformer_backward_affine(b, &c->pointwise[1], c->swished.values, branch, narrow));
    nn_swish_backward(c->normed[INNER].values, count, narrow);
    memset(branch, 0, count * sizeof *branch);
    conformer_backward_norm(b, INNER, c->convolved.values, narrow, branch);
    TW_TRY(nn_depthwise_backward(&c->depthwise, b->pass->values, &b->pass->rows, c->gated.values, branch, b->gradients,
                                 narrow));
    nn_glu_backward(c->gate_inputs.values, narrow, rows, c->width, wide);
    TW_TRY(conformer_backward_affine(b, &c->pointwise[0], c->normed[CONVOLUTION].values, wide, branch));
    conformer_backward_norm(b, CONVOLUTION, x, branch, b->gradient);
    return TW_OK;
}

static tw_status backward_attention(const backward *b, const float *x)
{
    conformer *c = b->block;
    float *wide = b->room->wide.values, *narrow = b->room->narrow.values, *branch = conformer_enter(b, 2, 1.0f);
    TW_TRY(conformer_backward_affine(b, &c->out, c->attended.values, branch, narrow));
    TW_TRY(nn_attention_backward(&c->attention, b->pass->values, &b->pass->rows, c->qkv.values, narrow, b->gradients,
                                 wide));
    TW_TRY(conformer_backward_affine(b, &c->joint, c->normed[ATTENTION].values, wide, branch));
    conformer_backward_norm(b, ATTENTION, x, branch, b->gradient);
    return TW_OK;
}

static void backward_final(const backward *b)
{
    const size_t count = conformer_total(b->pass) * b->block->width;
    float *branch = b->room->branch.values;
    memcpy(branch, b->gradient, count * sizeof *branch);
    memset(b->gradient, 0, count * sizeof *branch);
    conformer_backward_norm(b, FINAL, b->block->sums[3].values, branch, b->gradient);
}

tw_status conformer_backward(conformer *block, const conformer_pass *pass, const float *x, float *gradient,
                             float *gradients, conformer_room *room)
{
    const size_t count = conformer_total(pass) * block->width;
    const backward b = {block, pass, gradient, gradients, room};
    TW_TRY(nn_buffer_reserve(&room->narrow, count));
    TW_TRY(nn_buffer_reserve(&room->branch, count));
    TW_TRY(nn_buffer_reserve(&room->wide, CONFORMER_WIDENING * count));
    backward_final(&b);
    TW_TRY(backward_feed(&b, 1, block->sums[2].values));
    TW_TRY(backward_convolution(&b, block->sums[1].values));
    TW_TRY(backward_attention(&b, block->sums[0].values));
    return backward_feed(&b, 0, x);
}
