/* subsampling.h - a convolution of 3 x 3 over time and frequency, stride 2 each way, zeros around, then ReLU: half as
 * many frames, half as many bins, `channels` values for each. An utterance at a time, of any length. */
#ifndef NN_SUBSAMPLING_H
#define NN_SUBSAMPLING_H

#include "buffer.h"
#include "engine.h"
#include "rows.h"
#include "table.h"

typedef struct nn_subsampling {
    size_t bins, inputs, channels; /* of a frame: (bins, inputs) in; (nn_halved(bins), channels) out */
    size_t weight, bias;           /* where they begin in the flat array */
    nn_range parameters;
    nn_engine *engine;  /* lives as long as the layer */
    nn_buffer patches;  /* of one utterance: what each output sees, a row each */
    nn_buffer turned;   /* the weight as (channels, 3, 3, inputs), and its gradient */
    nn_buffer gradient; /* of the patches */
} nn_subsampling;

static inline size_t nn_halved(size_t length)
{
    return (length + 1) / 2;
}

/* Declares "<name>.weight" (channels, inputs, 3, 3) and "<name>.bias". */
tw_status nn_subsampling_declare(const char *name, size_t bins, size_t inputs, size_t channels, nn_engine *engine,
                                 nn_table *table, nn_subsampling *layer);
void nn_subsampling_free(nn_subsampling *layer);

/* `halved`: rows of y, each utterance nn_halved(length) long. */
tw_status nn_subsampling_forward(nn_subsampling *layer, const float *values, const nn_rows *rows, const float *x,
                                 const nn_rows *halved, float *y);
/* Writes all gradients. y is what forward gave; y_gradient is overwritten. x_gradient may be NULL. */
tw_status nn_subsampling_backward(nn_subsampling *layer, const float *values, const nn_rows *rows, const float *x,
                                  const nn_rows *halved, const float *y, float *y_gradient, float *gradients,
                                  float *x_gradient);

#endif
