/* rows.h - utterances packed one after the other, without padding: what attention models compute on.
 *
 * Whatever treats every frame alike (products, norms, activations) sees rows and nothing else. What looks at other
 * frames (attention, convolutions) goes utterance by utterance, so that there is no padding to mask and none to leak.
 */
#ifndef NN_ROWS_H
#define NN_ROWS_H

#include <stddef.h>

typedef struct nn_rows {
    size_t count;        /* utterances */
    const size_t *first; /* (count + 1), rising from 0: utterance u has the rows from first[u] to before first[u + 1] */
} nn_rows;

static inline size_t nn_rows_total(const nn_rows *rows)
{
    return rows->first[rows->count];
}

static inline size_t nn_rows_length(const nn_rows *rows, size_t utterance)
{
    return rows->first[utterance + 1] - rows->first[utterance];
}

#endif
