#include "front_end.h"

#include <stdlib.h>

tw_status front_end_declare(size_t features, size_t channels, nn_engine *engine, nn_table *table, front_end *f)
{
    const size_t halved = nn_halved(features);
    f->table = table;
    f->parameters.first = table->count;
    TW_TRY(nn_subsampling_declare("feature_extractor.conv_layers.0.conv", features, 1, channels, engine, table,
                                  &f->convolutions[0]));
    TW_TRY(nn_subsampling_declare("feature_extractor.conv_layers.1.conv", halved, channels, channels, engine, table,
                                  &f->convolutions[1]));
    f->parameters.end = table->count;
    f->width = nn_halved(halved) * channels;
    return TW_OK;
}

void front_end_free(front_end *f)
{
    for (size_t i = 0; i < FRONT_END_CONVOLUTIONS; i++) {
        nn_subsampling_free(&f->convolutions[i]);
        nn_buffer_free(&f->y[i]);
    }
    nn_buffer_free(&f->gradient);
    free(f->places);
}

size_t front_end_rows(size_t frames)
{
    return nn_halved(nn_halved(frames));
}

/* ---- forward ---- */

static tw_status reserve_places(front_end *f, size_t utterances)
{
    if (utterances < f->place_capacity) return TW_OK;
    free(f->places);
    f->place_capacity = 0;
    f->places = malloc(FRONT_END_CONVOLUTIONS * (utterances + 1) * sizeof *f->places);
    if (!f->places) return tw_fail(TW_ERROR_MEMORY, "no memory for a batch of %zu utterances", utterances);
    f->place_capacity = utterances + 1;
    return TW_OK;
}

static tw_status check_frames(const nn_rows *frames)
{
    if (frames->count == 0) return tw_fail(TW_ERROR_ARGUMENT, "a batch needs an utterance");
    for (size_t u = 0; u < frames->count; u++)
        if (frames->first[u + 1] <= frames->first[u])
            return tw_fail(TW_ERROR_ARGUMENT, "utterance %zu of a batch has no frame", u);
    return TW_OK;
}

static tw_status place_rows(front_end *f, const nn_rows *frames)
{
    TW_TRY(check_frames(frames));
    TW_TRY(reserve_places(f, frames->count));
    const nn_rows *longer = frames;
    for (size_t i = 0; i < FRONT_END_CONVOLUTIONS; i++) {
        size_t *first = f->places + i * (frames->count + 1);
        first[0] = 0;
        for (size_t u = 0; u < frames->count; u++) first[u + 1] = first[u] + nn_halved(nn_rows_length(longer, u));
        f->rows[i] = (nn_rows){frames->count, first};
        longer = &f->rows[i];
    }
    return TW_OK;
}

/* What convolution i reads. */
static const nn_rows *rows_before(const front_end *f, size_t i)
{
    return i ? &f->rows[i - 1] : &f->frames;
}

static const float *values_before(const front_end *f, size_t i)
{
    return i ? f->y[i - 1].values : f->x;
}

static size_t front_end_outputs(const front_end *f, size_t i)
{
    const nn_subsampling *c = &f->convolutions[i];
    return nn_rows_total(&f->rows[i]) * nn_halved(c->bins) * c->channels;
}

tw_status front_end_forward(front_end *f, const float *values, const nn_rows *frames, const float *x, nn_rows *rows,
                            const float **y)
{
    TW_TRY(place_rows(f, frames));
    f->frames = *frames;
    f->x = x;
    for (size_t i = 0; i < FRONT_END_CONVOLUTIONS; i++) {
        TW_TRY(nn_buffer_reserve(&f->y[i], front_end_outputs(f, i)));
        TW_TRY(nn_table_use(f->table, f->convolutions[i].parameters, PAGER_FORWARD));
        TW_TRY(nn_subsampling_forward(&f->convolutions[i], values, rows_before(f, i), values_before(f, i), &f->rows[i],
                                      f->y[i].values));
    }
    *rows = f->rows[FRONT_END_CONVOLUTIONS - 1];
    *y = f->y[FRONT_END_CONVOLUTIONS - 1].values;
    return TW_OK;
}

/* ---- backward ---- */

tw_status front_end_backward(front_end *f, const float *values, float *gradient, float *gradients,
                             nn_gradient_ready ready, void *context)
{
    TW_TRY(nn_buffer_reserve(&f->gradient, front_end_outputs(f, 0)));
    for (size_t i = FRONT_END_CONVOLUTIONS; i-- > 0;) {
        TW_TRY(nn_table_use(f->table, f->convolutions[i].parameters, PAGER_BACKWARD));
        TW_TRY(nn_subsampling_backward(&f->convolutions[i], values, rows_before(f, i), values_before(f, i), &f->rows[i],
                                       f->y[i].values, i ? gradient : f->gradient.values, gradients,
                                       i ? f->gradient.values : NULL));
        TW_TRY(nn_table_announce(f->table, f->convolutions[i].parameters, gradients, ready, context));
    }
    return TW_OK;
}
