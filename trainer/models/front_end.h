/* front_end.h - from frames of features to a row for each four of them: two convolutions that sub-sample over time and
 * frequency, with ReLU. Before conformers in the speech encoder, and before LSTM layers in the shape of DeepSpeech 2
 * (Amodei et al. 2016).
 *
 * A part, as `recurrent` is. Batches are packed (rows.h). */
#ifndef MODEL_FRONT_END_H
#define MODEL_FRONT_END_H

#include "subsampling.h"

enum { FRONT_END_CONVOLUTIONS = 2, FRONT_END_STRIDE = 4 }; /* frames to a row */

typedef struct front_end {
    const nn_table *table;
    nn_subsampling convolutions[FRONT_END_CONVOLUTIONS];
    nn_range parameters;
    size_t width; /* values of a row */
    /* of the last forward */
    nn_rows frames, rows[FRONT_END_CONVOLUTIONS]; /* of each convolution's output */
    const float *x;
    size_t *places; /* the memory of rows[].first */
    size_t place_capacity;
    nn_buffer y[FRONT_END_CONVOLUTIONS], gradient; /* of the first convolution's output */
} front_end;

/* Declares "feature_extractor.conv_layers.0.conv.*" and "...1.conv.*" in `table`, which lives as long, as does the
 * engine. Free it in any case. */
tw_status front_end_declare(size_t features, size_t channels, nn_engine *engine, nn_table *table, front_end *f);
void front_end_free(front_end *f);

/* Rows that `frames` frames make, a row for each four that were begun; 0 of none. */
size_t front_end_rows(size_t frames);

/* `frames`: packed utterances of a frame or more, (frames, features). Both stay until backward. The front end's, until
 * its next forward: *rows, packed, and *y (rows, width). */
tw_status front_end_forward(front_end *f, const float *values, const nn_rows *frames, const float *x, nn_rows *rows,
                            const float **y);

/* `gradient`, of y, is overwritten; `gradients`, the table's flat array, is written, and announced. */
tw_status front_end_backward(front_end *f, const float *values, float *gradient, float *gradients,
                             nn_gradient_ready ready, void *context);

#endif
