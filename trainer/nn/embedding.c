/* embedding.c - gather, and scatter with addition. */
#include "embedding.h"

#include "elementwise.h"

#include <string.h>

void nn_embedding_forward(const float *matrix, size_t width, const int32_t *tokens, size_t count, float *dst)
{
    for (size_t i = 0; i < count; i++) memcpy(dst + i * width, matrix + (size_t)tokens[i] * width, width * sizeof *dst);
}

void nn_embedding_backward(const float *gradient, size_t width, const int32_t *tokens, size_t count,
                           float *matrix_gradient)
{
    for (size_t i = 0; i < count; i++) add(matrix_gradient + (size_t)tokens[i] * width, gradient + i * width, width);
}
