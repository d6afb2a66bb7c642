/* embedding.h - one row of a matrix for each token. */
#ifndef NN_EMBEDDING_H
#define NN_EMBEDDING_H

#include <stddef.h>
#include <stdint.h>

/* dst: (count, width); the tokens are rows of the matrix (the caller has checked them). */
void nn_embedding_forward(const float *matrix, size_t width, const int32_t *tokens, size_t count, float *dst);
/* Adds each row of `gradient` to its token's row, in the order of the tokens. */
void nn_embedding_backward(const float *gradient, size_t width, const int32_t *tokens, size_t count,
                           float *matrix_gradient);

#endif
