/* padding.h - utterances side by side with padding behind their ends, and the same packed one after the other. */
#ifndef MODEL_PADDING_H
#define MODEL_PADDING_H

#include "rows.h"

/* `padded` is (steps, utterances, width), `packed` (rows, width): row t of utterance u is padded[t][u]. */
void padding_remove(const nn_rows *rows, size_t width, const float *padded, float *packed);
/* Zeros stand behind an utterance's end. */
void padding_put(const nn_rows *rows, size_t steps, size_t width, const float *packed, float *padded);

#endif
