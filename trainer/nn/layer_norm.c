/* layer_norm.c - a row at a time, which stays in the cache between its passes. */
#include "layer_norm.h"

#include "wide.h"

static const float epsilon = 1e-5f;

tw_status nn_layer_norm_declare(const char *name, size_t width, nn_table *table, nn_layer_norm *norm)
{
    const nn_declaration weight = {name, "weight", 1, {width}, NN_INITIAL_ONE, 0.0f};
    const nn_declaration bias = {name, "bias", 1, {width}, NN_INITIAL_ZERO, 0.0f};
    *norm = (nn_layer_norm){width, table->elements, table->elements + width, {table->count, table->count + 2}};
    TW_TRY(nn_table_declare(table, &weight));
    return nn_table_declare(table, &bias);
}

static inline float variance_of(const float *x, size_t width, float mean)
{
    float lanes[NN_LANES] = {0};
    size_t i = 0;
    for (; i + NN_LANES <= width; i += NN_LANES)
        for (size_t k = 0; k < NN_LANES; k++) lanes[k] += (x[i + k] - mean) * (x[i + k] - mean);
    for (; i < width; i++) lanes[0] += (x[i] - mean) * (x[i] - mean);
    return nn_sum_lanes(lanes) / (float)width;
}

NN_WIDE static void forward_rows(size_t rows, size_t width, const float *weight, const float *bias, const float *x,
                                 float *y, float *moments)
{
    for (size_t r = 0; r < rows; r++, x += width, y += width, moments += 2) {
        const float mean = nn_sum(x, width) / (float)width,
                    inverse = 1.0f / sqrtf(variance_of(x, width, mean) + epsilon);
        for (size_t i = 0; i < width; i++) y[i] = (x[i] - mean) * inverse * weight[i] + bias[i];
        moments[0] = mean;
        moments[1] = inverse;
    }
}

void nn_layer_norm_forward(const nn_layer_norm *norm, const float *values, size_t rows, const float *x, float *y,
                           float *moments)
{
    forward_rows(rows, norm->width, values + norm->weight, values + norm->bias, x, y, moments);
}

/* The means, over a row, of g = dy * weight and of g times the normalised x. */
static inline void layer_norm_project(size_t width, const float *weight, const float *x, const float *dy,
                                      const float moments[2], float means[2])
{
    float plain[NN_LANES] = {0}, along[NN_LANES] = {0};
    size_t i = 0;
    for (; i + NN_LANES <= width; i += NN_LANES)
        for (size_t k = 0; k < NN_LANES; k++) {
            const float g = dy[i + k] * weight[i + k];
            plain[k] += g;
            along[k] += g * ((x[i + k] - moments[0]) * moments[1]);
        }
    for (; i < width; i++) {
        const float g = dy[i] * weight[i];
        plain[0] += g;
        along[0] += g * ((x[i] - moments[0]) * moments[1]);
    }
    means[0] = nn_sum_lanes(plain) / (float)width;
    means[1] = nn_sum_lanes(along) / (float)width;
}

NN_WIDE static void backward_rows(size_t rows, size_t width, const float *weight, const float *x, const float *moments,
                                  const float *dy, float *dweight, float *dbias, float *dx)
{
    memset(dweight, 0, width * sizeof *dweight);
    memset(dbias, 0, width * sizeof *dbias);
    for (size_t r = 0; r < rows; r++, x += width, dy += width, dx += width, moments += 2) {
        float means[2];
        layer_norm_project(width, weight, x, dy, moments, means);
        for (size_t i = 0; i < width; i++) {
            const float normal = (x[i] - moments[0]) * moments[1];
            dweight[i] += dy[i] * normal;
            dbias[i] += dy[i];
            dx[i] += (dy[i] * weight[i] - means[0] - normal * means[1]) * moments[1];
        }
    }
}

void nn_layer_norm_backward(const nn_layer_norm *norm, const float *values, size_t rows, const float *x,
                            const float *moments, const float *y_gradient, float *gradients, float *x_gradient)
{
    backward_rows(rows, norm->width, values + norm->weight, x, moments, y_gradient, gradients + norm->weight,
                  gradients + norm->bias, x_gradient);
}
