/* attention.h - what every row of an utterance takes from its others (Vaswani et al. 2017), several heads side by side:
 *
 *     score[i][j] = q[i] k[j] / sqrt(width of a head),  y[i] = sum over j of softmax(score[i])[j] v[j]
 *
 * or, with relative positions in the form of Transformer-XL (Dai et al. 2019),
 *
 *     score[i][j] = ((q[i] + u) k[j] + (q[i] + v) r[i - j]) / sqrt(width of a head)
 *
 * with r[m] = W sinusoids(m). q, k and v are the caller's, side by side in one array: one product makes all three. */
#ifndef NN_ATTENTION_H
#define NN_ATTENTION_H

#include "buffer.h"
#include "engine.h"
#include "rows.h"
#include "table.h"

typedef struct nn_attention {
    size_t width, heads; /* heads divide width */
    int relative;
    size_t position_weight, bias_u, bias_v; /* where they begin in the flat array, if relative */
    nn_range parameters;                    /* none, if not */
    nn_engine *engine;                      /* lives as long as the layer */
    nn_buffer probabilities;                /* a square for each utterance and head, from forward to backward */
    nn_buffer sinusoids, positions;         /* relative: of the longest utterance, (2 length - 1, width) each: row p is
                                             * that of m = length - 1 - p */
    nn_buffer position_gradients;           /* as positions */
    nn_buffer queries;                      /* relative: q + u, then q + v, (2, rows, width) */
    nn_buffer scratch;
    size_t longest; /* of the last forward */
} nn_attention;

/* If relative, declares "<name>.linear_pos.weight" (width, width), "<name>.pos_bias_u" and "<name>.pos_bias_v" (heads,
 * width / heads). */
tw_status nn_attention_declare(const char *name, size_t width, size_t heads, int relative, nn_engine *engine,
                               nn_table *table, nn_attention *layer);
void nn_attention_free(nn_attention *layer);

/* qkv (rows, 3 width): q, k, v of a row; y (rows, width). */
tw_status nn_attention_forward(nn_attention *layer, const float *values, const nn_rows *rows, const float *qkv,
                               float *y);
/* For the last forward. All gradients are written; qkv_gradient as qkv. */
tw_status nn_attention_backward(nn_attention *layer, const float *values, const nn_rows *rows, const float *qkv,
                                const float *y_gradient, float *gradients, float *qkv_gradient);

#endif
