/* conformer.h - a block of a conformer (Gulati et al. 2020):
 *
 *     a = x + feed(x) / 2,  b = a + attend(a),  c = b + convolve(b),  y = norm(c + feed'(c) / 2)
 *
 * Each of the four begins with a layer norm and ends with dropout; the convolution module has a layer norm where the
 * paper has a batch norm, which would mix utterances and workers. Tensors are named as in Hugging Face's
 * Wav2Vec2Conformer, "ffn1_layer_norm.weight" and on; the weights of linear_q, _k and _v stand side by side, and so do
 * their biases, so that one product does all three. */
#ifndef MODEL_CONFORMER_H
#define MODEL_CONFORMER_H

#include "activation.h"
#include "affine.h"
#include "attention.h"
#include "depthwise.h"
#include "dropout.h"
#include "layer_norm.h"

enum { CONFORMER_NORMS = 6, CONFORMER_DROPOUTS = 6, CONFORMER_WIDENING = 4 };

typedef struct conformer_options {
    const char *name; /* what stands before the tensors' names */
    size_t width, heads, kernel;
    int relative;
    nn_engine *engine; /* lives as long as the block */
} conformer_options;

/* A feed-forward part. What it keeps for backward: the widened rows before and after swish. */
typedef struct conformer_feed {
    nn_affine widen, narrow;
    nn_buffer wide, active;
} conformer_feed;

typedef struct conformer {
    size_t width;
    nn_range parameters;
    nn_layer_norm norms[CONFORMER_NORMS]; /* feed, attention, convolution, its inner one, feed', last */
    conformer_feed feeds[2];
    nn_affine joint, out; /* q, k and v at once; what leaves attention */
    nn_attention attention;
    nn_affine pointwise[2];
    nn_depthwise depthwise;
    nn_buffer sums[4]; /* a, b, c, and what the last norm reads */
    nn_buffer normed[CONFORMER_NORMS - 1], moments[CONFORMER_NORMS];
    nn_buffer qkv, attended;
    nn_buffer gate_inputs, gated, convolved, swished;
    nn_buffer y;
} conformer;

/* Declares the tensors in `table`. */
tw_status conformer_declare(const conformer_options *options, nn_table *table, conformer *block);
void conformer_free(conformer *block);

/* What a call computes on. Dropouts are at six places from `place` on. */
typedef struct conformer_pass {
    const float *values;
    nn_rows rows;
    const nn_noise *noise; /* NULL: no dropout */
    size_t place;
    float keep;
} conformer_pass;

/* block->y.values is the output; x stays until backward. */
tw_status conformer_forward(conformer *block, const conformer_pass *pass, const float *x);

/* Room for backward, which blocks share. */
typedef struct conformer_room {
    nn_buffer narrow, wide, branch;
} conformer_room;
void conformer_room_free(conformer_room *room);

/* For the last forward, with its pass and x. `gradient`, of y, becomes that of x. The parameters' are written. */
tw_status conformer_backward(conformer *block, const conformer_pass *pass, const float *x, float *gradient,
                             float *gradients, conformer_room *room);

#endif
