/* elementwise.h - loops over whole arrays. Layout does not matter as long as the arrays share it; the compiler turns
 * them into vector code. */
#ifndef NN_ELEMENTWISE_H
#define NN_ELEMENTWISE_H

#include <stddef.h>

/* values = max(0, values) */
static inline void relu(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) values[i] = values[i] > 0.0f ? values[i] : 0.0f;
}

/* gradient = 0 where ReLU's result was 0 */
static inline void relu_gradient(float *gradient, const float *result, size_t count)
{
    for (size_t i = 0; i < count; i++) gradient[i] = result[i] > 0.0f ? gradient[i] : 0.0f;
}

static inline void add(float *sum, const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) sum[i] += values[i];
}

/* sum = max(0, sum + values) */
static inline void add_relu(float *sum, const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float x = sum[i] + values[i];
        sum[i] = x > 0.0f ? x : 0.0f;
    }
}

#endif
