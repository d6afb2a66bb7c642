/* lora.c - two narrow products each way. What is of rank columns is computed again in backward and not kept. */
#include "lora.h"

#include "elementwise.h"
#include "error.h"
#include "product.h"

#include <math.h>
#include <string.h>

/* The places of dropout that adapters have begin here, above those of any network. */
enum { PLACES = 1 << 14 };

const char *const nn_lora_targets[NN_LORA_TARGETS] = {"q", "k", "v", "o", "gate", "up", "down"};

void nn_lora_free(nn_lora *all)
{
    nn_table_free(&all->table);
    nn_buffer_free(&all->x);
    nn_buffer_free(&all->narrow);
    nn_buffer_free(&all->wide);
}

/* ---- making ---- */

static int is_target(const nn_lora *all, const char *matrix)
{
    const char *dot = strrchr(matrix, '.'), *last = dot ? dot + 1 : matrix;
    for (unsigned i = 0; i < NN_LORA_TARGETS; i++) {
        const size_t length = strlen(nn_lora_targets[i]);
        if (strncmp(last, nn_lora_targets[i], length) == 0 && strcmp(last + length, "_proj") == 0)
            return (int)(all->options.targets >> i & 1);
    }
    return 0;
}

tw_status nn_lora_declare(nn_lora *all, const char *matrix, size_t inputs, size_t outputs, size_t column,
                          nn_lora_pairs *pairs)
{
    if (!all || !is_target(all, matrix)) return TW_OK;
    const size_t rank = all->options.rank, least = inputs < outputs ? inputs : outputs;
    if (rank > least)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "%s is %zu by %zu, and adapters of rank %zu beside it would be no smaller; the rank is at most "
                       "%zu, or leave it out of the targets",
                       matrix, outputs, inputs, rank, least);
    const nn_declaration a = {matrix,         "lora_A.weight",    2,
                              {rank, inputs}, NN_INITIAL_UNIFORM, 1.0f / sqrtf((float)inputs)},
                         b = {matrix, "lora_B.weight", 2, {outputs, rank}, NN_INITIAL_ZERO, 0.0f};
    pairs->all = all;
    pairs->pairs[pairs->count++] = (nn_lora_pair){column, outputs, all->table.count, all->table.count + 1};
    TW_TRY(nn_table_declare(&all->table, &a));
    return nn_table_declare(&all->table, &b);
}

/* ---- running ---- */

/* One pair in one call. */
typedef struct lora_call {
    nn_lora *all;
    const nn_lora_pair *pair;
    const nn_lora_rows *size;
    size_t rank;
    float scale;
    const float *a, *b;
} lora_call;

static lora_call call_of(const nn_lora_pairs *pairs, size_t index, const nn_lora_rows *size)
{
    nn_lora *all = pairs->all;
    const nn_lora_pair *pair = &pairs->pairs[index];
    return (lora_call){.all = all,
                       .pair = pair,
                       .size = size,
                       .rank = all->options.rank,
                       .scale = all->options.alpha / (float)all->options.rank,
                       .a = all->values + all->table.offsets[pair->a],
                       .b = all->values + all->table.offsets[pair->b]};
}

static void drop(const lora_call *c, float *values)
{
    nn_dropout(&c->all->noise, PLACES + c->pair->a, c->all->keep, values, c->size->rows * c->size->inputs);
}

/* dropout(x), which is x where nothing is dropped. */
static tw_status drop_source(const lora_call *c, const float *x, const float **dropped)
{
    const size_t count = c->size->rows * c->size->inputs;
    *dropped = x;
    if (c->all->keep >= 1.0f) return TW_OK;
    TW_TRY(nn_buffer_reserve(&c->all->x, count));
    *dropped = memcpy(c->all->x.values, x, count * sizeof *x);
    drop(c, c->all->x.values);
    return TW_OK;
}

/* narrow = x A' */
static tw_status narrow_source(const lora_call *c, const float *x)
{
    const nn_product product = {.transpose_b = 1, .m = c->size->rows, .n = c->rank, .k = c->size->inputs};
    const nn_strides strides = {c->size->inputs, c->size->inputs, c->rank};
    TW_TRY(nn_buffer_reserve(&c->all->narrow, c->size->rows * c->rank));
    return nn_multiply_parts(&product, 1.0f, &strides, x, c->a, c->all->narrow.values);
}

/* narrow = scale * dy B */
static tw_status narrow_gradient(const lora_call *c, const float *y_gradient)
{
    const nn_product product = {.m = c->size->rows, .n = c->rank, .k = c->pair->outputs};
    const nn_strides strides = {c->size->outputs, c->rank, c->rank};
    TW_TRY(nn_buffer_reserve(&c->all->narrow, c->size->rows * c->rank));
    return nn_multiply_parts(&product, c->scale, &strides, y_gradient + c->pair->column, c->b, c->all->narrow.values);
}

static tw_status add_forward(const lora_call *c, const float *x, float *y)
{
    const nn_product product = {
        .transpose_b = 1, .m = c->size->rows, .n = c->pair->outputs, .k = c->rank, .beta = 1.0f};
    const nn_strides strides = {c->rank, c->rank, c->size->outputs};
    TW_TRY(drop_source(c, x, &x));
    TW_TRY(narrow_source(c, x));
    return nn_multiply_parts(&product, c->scale, &strides, c->all->narrow.values, c->b, y + c->pair->column);
}

tw_status nn_lora_forward(const nn_lora_pairs *pairs, const nn_lora_rows *size, const float *x, float *y)
{
    for (size_t i = 0; i < pairs->count; i++) {
        const lora_call c = call_of(pairs, i, size);
        TW_TRY(add_forward(&c, x, y));
    }
    return TW_OK;
}

static tw_status write_gradients(const lora_call *c, const float *x, const float *y_gradient)
{
    float *gradients = c->all->gradients;
    const size_t *offsets = c->all->table.offsets;
    const nn_product of_b = {.transpose_a = 1, .m = c->pair->outputs, .n = c->rank, .k = c->size->rows},
                     of_a = {.transpose_a = 1, .m = c->rank, .n = c->size->inputs, .k = c->size->rows};
    const nn_strides strides_b = {c->size->outputs, c->rank, c->rank},
                     strides_a = {c->rank, c->size->inputs, c->size->inputs};
    TW_TRY(drop_source(c, x, &x));
    TW_TRY(narrow_source(c, x));
    TW_TRY(nn_multiply_parts(&of_b, c->scale, &strides_b, y_gradient + c->pair->column, c->all->narrow.values,
                             gradients + offsets[c->pair->b]));
    TW_TRY(narrow_gradient(c, y_gradient));
    return nn_multiply_parts(&of_a, 1.0f, &strides_a, c->all->narrow.values, x, gradients + offsets[c->pair->a]);
}

tw_status nn_lora_backward_parameters(const nn_lora_pairs *pairs, const nn_lora_rows *size, const float *x,
                                      const float *y_gradient)
{
    for (size_t i = 0; i < pairs->count; i++) {
        const lora_call c = call_of(pairs, i, size);
        TW_TRY(write_gradients(&c, x, y_gradient));
    }
    return TW_OK;
}

static tw_status add_backward(const lora_call *c, const float *y_gradient, float *x_gradient)
{
    const size_t count = c->size->rows * c->size->inputs;
    const nn_product product = {.m = c->size->rows, .n = c->size->inputs, .k = c->rank};
    const nn_strides strides = {c->rank, c->size->inputs, c->size->inputs};
    TW_TRY(narrow_gradient(c, y_gradient));
    TW_TRY(nn_buffer_reserve(&c->all->wide, count));
    float *wide = c->all->wide.values;
    TW_TRY(nn_multiply_parts(&product, 1.0f, &strides, c->all->narrow.values, c->a, wide));
    drop(c, wide);
    add(x_gradient, wide, count);
    return TW_OK;
}

tw_status nn_lora_backward_source(const nn_lora_pairs *pairs, const nn_lora_rows *size, const float *y_gradient,
                                  float *x_gradient)
{
    for (size_t i = 0; i < pairs->count; i++) {
        const lora_call c = call_of(pairs, i, size);
        TW_TRY(add_backward(&c, y_gradient, x_gradient));
    }
    return TW_OK;
}
