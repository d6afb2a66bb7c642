/* activation.c - one exponential a value, forward and again backward: cheaper than memory for what it gave. */
#include "activation.h"

#include "wide.h"

NN_WIDE void nn_swish_forward(const float *x, size_t count, float *y)
{
    for (size_t i = 0; i < count; i++) y[i] = x[i] * nn_sigmoid(x[i]);
}

NN_WIDE void nn_swish_backward(const float *x, size_t count, float *gradient)
{
    for (size_t i = 0; i < count; i++) {
        const float s = nn_sigmoid(x[i]);
        gradient[i] *= s + x[i] * s * (1.0f - s);
    }
}

NN_WIDE void nn_glu_forward(const float *x, size_t rows, size_t width, float *y)
{
    for (size_t r = 0; r < rows; r++, x += 2 * width, y += width)
        for (size_t i = 0; i < width; i++) y[i] = x[i] * nn_sigmoid(x[width + i]);
}

NN_WIDE void nn_glu_backward(const float *x, const float *y_gradient, size_t rows, size_t width, float *x_gradient)
{
    for (size_t r = 0; r < rows; r++, x += 2 * width, x_gradient += 2 * width, y_gradient += width)
        for (size_t i = 0; i < width; i++) {
            const float s = nn_sigmoid(x[width + i]), dy = y_gradient[i];
            x_gradient[i] = dy * s;
            x_gradient[width + i] = dy * x[i] * s * (1.0f - s);
        }
}

NN_WIDE void nn_swiglu_forward(const float *x, size_t rows, size_t width, float *y)
{
    for (size_t r = 0; r < rows; r++, x += 2 * width, y += width)
        for (size_t i = 0; i < width; i++) y[i] = x[i] * nn_sigmoid(x[i]) * x[width + i];
}

NN_WIDE void nn_swiglu_backward(const float *x, const float *y_gradient, size_t rows, size_t width, float *x_gradient)
{
    for (size_t r = 0; r < rows; r++, x += 2 * width, x_gradient += 2 * width, y_gradient += width)
        for (size_t i = 0; i < width; i++) {
            const float s = nn_sigmoid(x[i]), dy = y_gradient[i];
            x_gradient[i] = dy * x[width + i] * (s + x[i] * s * (1.0f - s));
            x_gradient[width + i] = dy * x[i] * s;
        }
}
