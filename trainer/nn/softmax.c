/* softmax.c - a row at a time, which stays in the cache between its maximum, its sum and its scaling. */
#include "softmax.h"

#include "wide.h"

static inline float softmax_largest(const float *row, size_t count)
{
    float lanes[NN_LANES];
    size_t i = 0;
    for (size_t k = 0; k < NN_LANES; k++) lanes[k] = row[0];
    for (; i + NN_LANES <= count; i += NN_LANES)
        for (size_t k = 0; k < NN_LANES; k++) lanes[k] = row[i + k] > lanes[k] ? row[i + k] : lanes[k];
    for (; i < count; i++) lanes[0] = row[i] > lanes[0] ? row[i] : lanes[0];
    for (size_t k = 1; k < NN_LANES; k++) lanes[0] = lanes[k] > lanes[0] ? lanes[k] : lanes[0];
    return lanes[0];
}

static inline void softmax_row(float *row, size_t count)
{
    const float maximum = softmax_largest(row, count);
    for (size_t i = 0; i < count; i++) row[i] = nn_exp(row[i] - maximum);
    const float scale = 1.0f / nn_sum(row, count);
    for (size_t i = 0; i < count; i++) row[i] *= scale;
}

NN_WIDE void nn_softmax(float *scores, size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r++) softmax_row(scores + r * columns, columns);
}

NN_WIDE void nn_softmax_causal(float *scores, size_t rows, size_t step, size_t seen)
{
    for (size_t r = 0; r < rows; r++) {
        softmax_row(scores + r * step, seen + r);
        memset(scores + r * step + seen + r, 0, (rows - 1 - r) * sizeof *scores);
    }
}

NN_WIDE void nn_softmax_gradient(const float *probabilities, size_t rows, size_t columns, size_t step, float *gradient)
{
    for (size_t r = 0; r < rows; r++, probabilities += step, gradient += step) {
        const float mean = nn_dot(probabilities, gradient, columns);
        for (size_t i = 0; i < columns; i++) gradient[i] = probabilities[i] * (gradient[i] - mean);
    }
}
