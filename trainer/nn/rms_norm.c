/* rms_norm.c - a row at a time, which stays in the cache between its passes. */
#include "rms_norm.h"

#include "wide.h"

tw_status nn_rms_norm_declare(const char *name, size_t width, float epsilon, nn_table *table, nn_rms_norm *norm)
{
    const nn_declaration weight = {name, "weight", 1, {width}, NN_INITIAL_ONE, 0.0f};
    *norm = (nn_rms_norm){width, epsilon, table->elements, {table->count, table->count + 1}};
    return nn_table_declare(table, &weight);
}

NN_WIDE static void forward_rows(size_t rows, size_t width, float epsilon, const float *weight, const float *x,
                                 float *y, float *scales)
{
    for (size_t r = 0; r < rows; r++, x += width, y += width) {
        const float scale = scales[r] = 1.0f / sqrtf(nn_dot(x, x, width) / (float)width + epsilon);
        for (size_t i = 0; i < width; i++) y[i] = x[i] * scale * weight[i];
    }
}

void nn_rms_norm_forward(const nn_rms_norm *norm, const float *values, size_t rows, const float *x, float *y,
                         float *scales)
{
    forward_rows(rows, norm->width, norm->epsilon, values + norm->weight, x, y, scales);
}

/* The mean, over a row, of dy * weight times the normalised x. */
static inline float rms_norm_project(size_t width, const float *weight, const float *x, const float *dy, float scale)
{
    float lanes[NN_LANES] = {0};
    size_t i = 0;
    for (; i + NN_LANES <= width; i += NN_LANES)
        for (size_t k = 0; k < NN_LANES; k++) lanes[k] += dy[i + k] * weight[i + k] * (x[i + k] * scale);
    for (; i < width; i++) lanes[0] += dy[i] * weight[i] * (x[i] * scale);
    return nn_sum_lanes(lanes) / (float)width;
}

/* Adds to dweight, unless that is NULL, and to `kept` times what dx was. */
NN_WIDE static void backward_rows(size_t rows, size_t width, const float *weight, const float *x, const float *scales,
                                  const float *dy, float *dweight, float kept, float *dx)
{
    for (size_t r = 0; r < rows; r++, x += width, dy += width, dx += width) {
        const float scale = scales[r], along = rms_norm_project(width, weight, x, dy, scale);
        for (size_t i = 0; i < width; i++) {
            const float normal = x[i] * scale;
            if (dweight) dweight[i] += dy[i] * normal;
            dx[i] = kept * dx[i] + (dy[i] * weight[i] - normal * along) * scale;
        }
    }
}

/* NULL where it is not wanted. */
static float *begin_gradient(const nn_rms_norm *norm, float *gradients)
{
    return gradients ? memset(gradients + norm->weight, 0, norm->width * sizeof *gradients) : NULL;
}

void nn_rms_norm_backward(const nn_rms_norm *norm, const float *values, size_t rows, const float *x,
                          const float *scales, const float *y_gradient, float *gradients, float *x_gradient)
{
    float *own = begin_gradient(norm, gradients);
    backward_rows(rows, norm->width, values + norm->weight, x, scales, y_gradient, own, 1.0f, x_gradient);
}

void nn_rms_norm_forward_heads(const nn_rms_norm *norm, const float *values, const nn_rms_heads *what, const float *x,
                               float *y, float *scales)
{
    for (size_t r = 0; r < what->rows; r++, x += what->stride, y += what->stride, scales += what->heads)
        nn_rms_norm_forward(norm, values, what->heads, x, y, scales);
}

void nn_rms_norm_backward_heads(const nn_rms_norm *norm, const float *values, const nn_rms_heads *what, const float *x,
                                const float *scales, float *gradients, float *gradient)
{
    float *own = begin_gradient(norm, gradients);
    for (size_t r = 0; r < what->rows; r++, x += what->stride, gradient += what->stride, scales += what->heads)
        backward_rows(what->heads, norm->width, values + norm->weight, x, scales, gradient, own, 0.0f, gradient);
}
