/* speech_encoder.h - from frames of features to one vector for each four of them: the front end (front_end.h), a layer
 * norm and a linear layer, then conformer blocks (Gulati et al. 2020, with a layer norm in the convolution module). The
 * inside of w2v-BERT, and with a linear layer and CTC upon it a recogniser.
 *
 * A part, not a model: it declares its tensors in its user's table, as `recurrent` does, and computes on the user's
 * flat arrays. Tensors are named as in Hugging Face's Wav2Vec2Conformer where a twin exists there:
 * "feature_extractor.*", "feature_projection.*", "encoder.layers.0.*" and on. They are declared in the order of the
 * forward pass, so a frozen part is always the beginning of the table.
 *
 * Batches are packed (rows.h). An encoder belongs to one thread. */
#ifndef MODEL_SPEECH_ENCODER_H
#define MODEL_SPEECH_ENCODER_H

#include "dropout.h"
#include "engine.h"
#include "rows.h"
#include "table.h"

typedef struct speech_encoder speech_encoder;

typedef struct speech_encoder_config {
    size_t features; /* of a frame */
    size_t channels; /* of the two convolutions */
    size_t width;    /* of a row, a multiple of `heads`; the feed-forward parts are four times as wide */
    size_t heads;
    size_t kernel; /* of the depthwise convolutions, in rows; odd */
    size_t blocks; /* at least 1 */
    int relative;  /* attention with relative positions, in the form of Transformer-XL */
    float keep;    /* probability; 1: no dropout */
} speech_encoder_config;

/* TW_ERROR_ARGUMENT says which size cannot be. */
tw_status speech_encoder_check(const speech_encoder_config *config);
/* Declares the tensors in `table`, which lives as long, as does the engine. Takes memory for names and sizes only: a
 * table that nobody gives values to counts parameters. */
tw_status speech_encoder_create(const speech_encoder_config *config, nn_engine *engine, nn_table *table,
                                speech_encoder **encoder);
void speech_encoder_destroy(speech_encoder *encoder);

/* Values of a row after the convolutions and their norm: what w2v-BERT masks and quantises. */
size_t speech_encoder_features(const speech_encoder *encoder);

/* What does not learn. Tensors before the returned index stand still: they can live in an array of buffers. */
typedef enum speech_encoder_freeze {
    SPEECH_ENCODER_FREEZE_NONE,
    SPEECH_ENCODER_FREEZE_FEATURES, /* the convolutions and their norm */
    SPEECH_ENCODER_FREEZE_ALL
} speech_encoder_freeze;
size_t speech_encoder_frozen(const speech_encoder *encoder, speech_encoder_freeze freeze);

/* ---- forward ---- */

/* Convolutions and norm. `frames`: packed utterances of a frame or more, (frames, features). Both stay until backward.
 * The encoder's, until its next forward: *rows, packed, and *features (rows, speech_encoder_features). */
tw_status speech_encoder_forward_features(speech_encoder *encoder, const float *values, const nn_rows *frames,
                                          const float *x, nn_rows *rows, const float **features);

/* Linear layer, and blocks before `tap`; then the rest. `x` stands in for the features (masked ones, or those
 * themselves) and stays until backward. `noise` NULL: no dropout. *y (rows, width) is the encoder's. */
tw_status speech_encoder_forward_blocks(speech_encoder *encoder, const float *values, const float *x,
                                        const nn_noise *noise);
/* The output of the first `blocks` blocks of the last forward; 0: of the linear layer. */
const float *speech_encoder_output(const speech_encoder *encoder, size_t blocks);

/* Both at once, for a recogniser: *y (rows, width). */
tw_status speech_encoder_forward(speech_encoder *encoder, const float *values, const nn_rows *frames, const float *x,
                                 const nn_noise *noise, nn_rows *rows, const float **y);

/* ---- backward, of the last forward ---- */

typedef struct speech_encoder_gradients {
    float *parameters; /* the table's flat array; gradients are written, not added */
    nn_gradient_ready ready;
    void *context;
} speech_encoder_gradients;

/* Back from the output of the block before `end` to the output of the block before `begin`, the last block first; both
 * gradients in `gradient` (rows, width), in place. */
tw_status speech_encoder_backward_blocks(speech_encoder *encoder, const float *values, size_t begin, size_t end,
                                         float *gradient, const speech_encoder_gradients *gradients);
/* Through the linear layer: gradient (rows, width) in, x_gradient (rows, features) out, or NULL. */
tw_status speech_encoder_backward_projection(speech_encoder *encoder, const float *values, float *gradient,
                                             float *x_gradient, const speech_encoder_gradients *gradients);
/* Through norm and convolutions; `gradient` (rows, features) is overwritten. */
tw_status speech_encoder_backward_features(speech_encoder *encoder, const float *values, float *gradient,
                                           const speech_encoder_gradients *gradients);

/* All at once: `gradient` (rows, width), of the output, is overwritten. Frozen parts have no gradient, and nothing is
 * computed for them. */
tw_status speech_encoder_backward(speech_encoder *encoder, const float *values, float *gradient,
                                  speech_encoder_freeze freeze, const speech_encoder_gradients *gradients);

#endif
