/* random_targets.h - codes of rows that are never learned: the nearest entry of a random codebook, after a random
 * projection of the frames themselves (BEST-RQ, Chiu et al. 2022). */
#ifndef MODEL_RANDOM_TARGETS_H
#define MODEL_RANDOM_TARGETS_H

#include "buffer.h"
#include "engine.h"
#include "hiding.h"
#include "table.h"

typedef struct random_targets {
    size_t features, stride, groups, codes; /* a row is `stride` frames */
    size_t projection, codebook;            /* in the flat array */
    nn_engine *engine;
    nn_buffer stacked, projected, nearness;
} random_targets;

/* Declares "quantizer.random_projection" and "quantizer.random_codebook" in `table`, of what does not learn. */
tw_status random_targets_declare(const random_targets *sizes, nn_table *table, random_targets *t);
void random_targets_free(random_targets *t);

/* Of the hidden rows: `best` (hidden rows, groups). `frames` are those of `x`; `rows` is how they became rows. */
tw_status random_targets_forward(random_targets *t, const float *values, const hiding *hidden, const nn_rows *frames,
                                 const nn_rows *rows, const float *x, int32_t *best);

#endif
