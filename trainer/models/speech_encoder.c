/* speech_encoder.c - the front end, a norm, a linear layer, blocks; and back, in pieces. */
#include "speech_encoder.h"

#include "conformer.h"
#include "front_end.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct speech_encoder {
    speech_encoder_config config;
    const nn_table *table;
    front_end front;
    nn_layer_norm norm;
    nn_affine projection;
    conformer *blocks;
    size_t block_count;
    /* of the last forward */
    nn_rows rows; /* of the front end's output */
    const float *convolved, *projected_from;
    nn_noise noise;
    int noisy;
    nn_buffer moments, features, projected;
    nn_buffer feature_gradient, convolved_gradient;
    conformer_room room;
};

/* ---- making ---- */

tw_status speech_encoder_check(const speech_encoder_config *c)
{
    if (c->features == 0 || c->channels == 0 || c->width == 0 || c->blocks == 0)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "a speech encoder needs a feature, a channel, a width and a block or more, not %zu, %zu, %zu "
                       "and %zu",
                       c->features, c->channels, c->width, c->blocks);
    if (c->heads == 0 || c->width % c->heads)
        return tw_fail(TW_ERROR_ARGUMENT, "%zu heads do not divide a width of %zu", c->heads, c->width);
    if (c->kernel % 2 == 0)
        return tw_fail(TW_ERROR_ARGUMENT, "a kernel has a middle: its length must be odd, not %zu", c->kernel);
    if (c->features > UINT32_MAX || c->channels > UINT32_MAX || c->width > UINT32_MAX || c->kernel > UINT32_MAX ||
        c->blocks > 1000)
        return tw_fail(TW_ERROR_ARGUMENT, "no speech encoder is as large as that");
    if (!(c->keep > 0.0f && c->keep <= 1.0f))
        return tw_fail(TW_ERROR_ARGUMENT, "the probability of keeping a value must be above 0 and at most 1, not %g",
                       (double)c->keep);
    return TW_OK;
}

static tw_status declare_features(speech_encoder *e, nn_engine *engine, nn_table *table)
{
    const speech_encoder_config *c = &e->config;
    TW_TRY(front_end_declare(c->features, c->channels, engine, table, &e->front));
    TW_TRY(nn_table_end_unit(table, 0));
    return nn_layer_norm_declare("feature_projection.layer_norm", e->front.width, table, &e->norm);
}

static tw_status declare_projection(speech_encoder *e, nn_engine *engine, nn_table *table)
{
    const float range = 1.0f / sqrtf((float)e->front.width);
    const nn_affine_options options = {
        "feature_projection.projection", e->front.width, e->config.width, range, range, engine};
    TW_TRY(nn_affine_declare(&options, table, &e->projection));
    return nn_table_end_unit(table, 0);
}

static tw_status declare_blocks(speech_encoder *e, nn_engine *engine, nn_table *table)
{
    const speech_encoder_config *c = &e->config;
    char name[64];
    e->blocks = calloc(c->blocks, sizeof *e->blocks);
    if (!e->blocks) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu conformer blocks", c->blocks);
    for (; e->block_count < c->blocks; e->block_count++) {
        snprintf(name, sizeof name, "encoder.layers.%zu", e->block_count);
        const conformer_options options = {name, c->width, c->heads, c->kernel, c->relative, engine};
        TW_TRY(conformer_declare(&options, table, &e->blocks[e->block_count]));
        TW_TRY(nn_table_end_unit(table, 0));
    }
    return TW_OK;
}

tw_status speech_encoder_create(const speech_encoder_config *config, nn_engine *engine, nn_table *table,
                                speech_encoder **encoder)
{
    TW_TRY(speech_encoder_check(config));
    speech_encoder *made = calloc(1, sizeof *made);
    if (!made) return tw_fail(TW_ERROR_MEMORY, "no memory for a speech encoder");
    made->config = *config;
    made->table = table;
    tw_status status = declare_features(made, engine, table);
    if (status == TW_OK) status = declare_projection(made, engine, table);
    if (status == TW_OK) status = declare_blocks(made, engine, table);
    if (status == TW_OK)
        *encoder = made;
    else
        speech_encoder_destroy(made);
    return status;
}

void speech_encoder_destroy(speech_encoder *e)
{
    if (!e) return;
    front_end_free(&e->front);
    for (size_t i = 0; i < e->block_count; i++) conformer_free(&e->blocks[i]);
    nn_buffer_free(&e->moments);
    nn_buffer_free(&e->features);
    nn_buffer_free(&e->projected);
    nn_buffer_free(&e->feature_gradient);
    nn_buffer_free(&e->convolved_gradient);
    conformer_room_free(&e->room);
    free(e->blocks);
    free(e);
}

size_t speech_encoder_features(const speech_encoder *e)
{
    return e->front.width;
}

size_t speech_encoder_frozen(const speech_encoder *e, speech_encoder_freeze freeze)
{
    if (freeze == SPEECH_ENCODER_FREEZE_NONE) return 0;
    return freeze == SPEECH_ENCODER_FREEZE_FEATURES ? e->norm.parameters.end
                                                    : e->blocks[e->block_count - 1].parameters.end;
}

/* ---- forward ---- */

static size_t speech_encoder_total(const speech_encoder *e)
{
    return nn_rows_total(&e->rows);
}

tw_status speech_encoder_forward_features(speech_encoder *e, const float *values, const nn_rows *frames, const float *x,
                                          nn_rows *rows, const float **features)
{
    TW_TRY(front_end_forward(&e->front, values, frames, x, &e->rows, &e->convolved));
    TW_TRY(nn_buffer_reserve(&e->moments, 2 * speech_encoder_total(e)));
    TW_TRY(nn_buffer_reserve(&e->features, speech_encoder_total(e) * e->front.width));
    TW_TRY(nn_table_use(e->table, e->norm.parameters, PAGER_FORWARD));
    nn_layer_norm_forward(&e->norm, values, speech_encoder_total(e), e->convolved, e->features.values,
                          e->moments.values);
    *rows = e->rows;
    *features = e->features.values;
    return TW_OK;
}

/* Dropout at place 0 is the linear layer's; each block has the next six. */
static conformer_pass pass_of(const speech_encoder *e, const float *values, size_t block)
{
    return (conformer_pass){.values = values,
                            .rows = e->rows,
                            .noise = e->noisy ? &e->noise : NULL,
                            .place = 1 + block * CONFORMER_DROPOUTS,
                            .keep = e->config.keep};
}

static void drop_projected(const speech_encoder *e, float *values)
{
    if (e->noisy) nn_dropout(&e->noise, 0, e->config.keep, values, speech_encoder_total(e) * e->config.width);
}

tw_status speech_encoder_forward_blocks(speech_encoder *e, const float *values, const float *x, const nn_noise *noise)
{
    e->projected_from = x;
    e->noisy = noise != NULL;
    if (noise) e->noise = *noise;
    TW_TRY(nn_buffer_reserve(&e->projected, speech_encoder_total(e) * e->config.width));
    TW_TRY(nn_table_use(e->table, e->projection.parameters, PAGER_FORWARD));
    TW_TRY(nn_affine_forward(&e->projection, values, speech_encoder_total(e), x, e->projected.values));
    drop_projected(e, e->projected.values);
    for (size_t i = 0; i < e->block_count; i++) {
        const conformer_pass pass = pass_of(e, values, i);
        TW_TRY(nn_table_use(e->table, e->blocks[i].parameters, PAGER_FORWARD));
        TW_TRY(conformer_forward(&e->blocks[i], &pass, speech_encoder_output(e, i)));
    }
    return TW_OK;
}

const float *speech_encoder_output(const speech_encoder *e, size_t blocks)
{
    return blocks ? e->blocks[blocks - 1].y.values : e->projected.values;
}

tw_status speech_encoder_forward(speech_encoder *e, const float *values, const nn_rows *frames, const float *x,
                                 const nn_noise *noise, nn_rows *rows, const float **y)
{
    const float *features;
    TW_TRY(speech_encoder_forward_features(e, values, frames, x, rows, &features));
    TW_TRY(speech_encoder_forward_blocks(e, values, features, noise));
    *y = speech_encoder_output(e, e->block_count);
    return TW_OK;
}

/* ---- backward ---- */

static tw_status speech_encoder_announce(const speech_encoder *e, nn_range range, const speech_encoder_gradients *g)
{
    return nn_table_announce(e->table, range, g->parameters, g->ready, g->context);
}

tw_status speech_encoder_backward_blocks(speech_encoder *e, const float *values, size_t begin, size_t end,
                                         float *gradient, const speech_encoder_gradients *gradients)
{
    for (size_t i = end; i-- > begin;) {
        const conformer_pass pass = pass_of(e, values, i);
        TW_TRY(nn_table_use(e->table, e->blocks[i].parameters, PAGER_BACKWARD));
        TW_TRY(conformer_backward(&e->blocks[i], &pass, speech_encoder_output(e, i), gradient, gradients->parameters,
                                  &e->room));
        TW_TRY(speech_encoder_announce(e, e->blocks[i].parameters, gradients));
    }
    return TW_OK;
}

tw_status speech_encoder_backward_projection(speech_encoder *e, const float *values, float *gradient, float *x_gradient,
                                             const speech_encoder_gradients *gradients)
{
    drop_projected(e, gradient);
    TW_TRY(nn_table_use(e->table, e->projection.parameters, PAGER_BACKWARD));
    TW_TRY(nn_affine_backward_parameters(&e->projection, speech_encoder_total(e), e->projected_from, gradient,
                                         gradients->parameters));
    TW_TRY(speech_encoder_announce(e, e->projection.parameters, gradients));
    return x_gradient ? nn_affine_backward_source(&e->projection, values, speech_encoder_total(e), gradient, x_gradient)
                      : TW_OK;
}

static tw_status speech_encoder_backward_norm(speech_encoder *e, const float *values, const float *gradient,
                                              const speech_encoder_gradients *gradients)
{
    const size_t count = speech_encoder_total(e) * e->front.width;
    TW_TRY(nn_buffer_reserve(&e->convolved_gradient, count));
    float *out = e->convolved_gradient.values;
    memset(out, 0, count * sizeof *out);
    TW_TRY(nn_table_use(e->table, e->norm.parameters, PAGER_BACKWARD));
    nn_layer_norm_backward(&e->norm, values, speech_encoder_total(e), e->convolved, e->moments.values, gradient,
                           gradients->parameters, out);
    return speech_encoder_announce(e, e->norm.parameters, gradients);
}

tw_status speech_encoder_backward_features(speech_encoder *e, const float *values, float *gradient,
                                           const speech_encoder_gradients *gradients)
{
    TW_TRY(speech_encoder_backward_norm(e, values, gradient, gradients));
    return front_end_backward(&e->front, values, e->convolved_gradient.values, gradients->parameters, gradients->ready,
                              gradients->context);
}

tw_status speech_encoder_backward(speech_encoder *e, const float *values, float *gradient, speech_encoder_freeze freeze,
                                  const speech_encoder_gradients *gradients)
{
    if (freeze == SPEECH_ENCODER_FREEZE_ALL) return TW_OK;
    const int features = freeze == SPEECH_ENCODER_FREEZE_NONE;
    TW_TRY(speech_encoder_backward_blocks(e, values, 0, e->block_count, gradient, gradients));
    TW_TRY(nn_buffer_reserve(&e->feature_gradient, speech_encoder_total(e) * e->front.width));
    float *x_gradient = features ? e->feature_gradient.values : NULL;
    TW_TRY(speech_encoder_backward_projection(e, values, gradient, x_gradient, gradients));
    return features ? speech_encoder_backward_features(e, values, x_gradient, gradients) : TW_OK;
}
