/* softmax.h - rows of scores to probabilities, and back: what attention does between its products. */
#ifndef NN_SOFTMAX_H
#define NN_SOFTMAX_H

#include <stddef.h>

/* In place; the rows are next to each other. */
void nn_softmax(float *scores, size_t rows, size_t columns);
/* Row r, which begins r * step values after the first, sees its first seen + r scores alone. The others, up to column
 * seen + rows - 1, become 0. */
void nn_softmax_causal(float *scores, size_t rows, size_t step, size_t seen);
/* From the gradient of the probabilities to that of the scores, in place. Rows of both begin `step` values apart. */
void nn_softmax_gradient(const float *probabilities, size_t rows, size_t columns, size_t step, float *gradient);

#endif
