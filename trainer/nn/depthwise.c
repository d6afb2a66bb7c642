/* depthwise.c - rows of channels: the innermost loop runs over a whole row, whatever the kernel. */
#include "depthwise.h"

#include "affine.h"
#include "wide.h"

tw_status nn_depthwise_declare(const char *name, size_t width, size_t kernel, nn_table *table, nn_depthwise *layer)
{
    const float range = 1.0f / sqrtf((float)kernel);
    const nn_declaration weight = {name, "weight", 3, {width, 1, kernel}, NN_INITIAL_UNIFORM, range};
    const nn_declaration bias = {name, "bias", 1, {width}, NN_INITIAL_UNIFORM, range};
    *layer = (nn_depthwise){.width = width,
                            .kernel = kernel,
                            .weight = table->elements,
                            .bias = table->elements + width * kernel,
                            .parameters = {table->count, table->count + 2}};
    TW_TRY(nn_table_declare(table, &weight));
    return nn_table_declare(table, &bias);
}

void nn_depthwise_free(nn_depthwise *layer)
{
    nn_buffer_free(&layer->turned);
}

static void depthwise_turn(const float *matrix, size_t rows, size_t columns, float *turned)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) turned[c * rows + r] = matrix[r * columns + c];
}

/* The rows that tap k of row t's window falls upon: those of [0, length) that t + k - half is one of. */
typedef struct window {
    size_t first, end; /* of t */
} window;

static inline window window_of(size_t length, size_t k, size_t half)
{
    window w = {k < half ? half - k : 0, k > half ? length - (k - half < length ? k - half : length) : length};
    if (w.first > w.end) w.first = w.end;
    return w;
}

static inline const float *seen(const float *x, size_t t, size_t k, size_t half, size_t width)
{
    return x + (t + k - half) * width;
}

/* Without a branch for the ends: each tap has its own range of rows. */
NN_WIDE static void forward_utterance(size_t length, size_t width, size_t kernel, const float *weight,
                                      const float *bias, const float *x, float *y)
{
    for (size_t t = 0; t < length; t++) {
        const size_t half = kernel / 2, first = t < half ? half - t : 0;
        const size_t end = t + kernel - half > length ? length + half - t : kernel;
        float *row = y + t * width;
        memcpy(row, bias, width * sizeof *row);
        for (size_t k = first; k < end; k++) {
            const float *from = seen(x, t, k, half, width), *w = weight + k * width;
            for (size_t c = 0; c < width; c++) row[c] += w[c] * from[c];
        }
    }
}

tw_status nn_depthwise_forward(nn_depthwise *layer, const float *values, const nn_rows *rows, const float *x, float *y)
{
    const size_t width = layer->width, kernel = layer->kernel;
    TW_TRY(nn_buffer_reserve(&layer->turned, 2 * width * kernel));
    depthwise_turn(values + layer->weight, width, kernel, layer->turned.values);
    for (size_t u = 0; u < rows->count; u++)
        forward_utterance(nn_rows_length(rows, u), width, kernel, layer->turned.values, values + layer->bias,
                          x + rows->first[u] * width, y + rows->first[u] * width);
    return TW_OK;
}

NN_WIDE static void backward_utterance(size_t length, size_t width, size_t kernel, const float *weight, const float *x,
                                       const float *dy, float *restrict dweight, float *restrict dx)
{
    const size_t half = kernel / 2;
    memset(dx, 0, length * width * sizeof *dx);
    for (size_t k = 0; k < kernel; k++) {
        const window w = window_of(length, k, half);
        for (size_t t = w.first; t < w.end; t++) {
            const float *from = seen(x, t, k, half, width), *gradient = dy + t * width;
            float *to = dx + (t + k - half) * width;
            for (size_t c = 0; c < width; c++) {
                dweight[k * width + c] += gradient[c] * from[c];
                to[c] += weight[k * width + c] * gradient[c];
            }
        }
    }
}

tw_status nn_depthwise_backward(nn_depthwise *layer, const float *values, const nn_rows *rows, const float *x,
                                const float *y_gradient, float *gradients, float *x_gradient)
{
    const size_t width = layer->width, kernel = layer->kernel;
    TW_TRY(nn_buffer_reserve(&layer->turned, 2 * width * kernel));
    float *weight = layer->turned.values, *dweight = weight + width * kernel;
    depthwise_turn(values + layer->weight, width, kernel, weight);
    memset(dweight, 0, width * kernel * sizeof *dweight);
    for (size_t u = 0; u < rows->count; u++) {
        const size_t at = rows->first[u] * width;
        backward_utterance(nn_rows_length(rows, u), width, kernel, weight, x + at, y_gradient + at, dweight,
                           x_gradient + at);
    }
    depthwise_turn(dweight, kernel, width, gradients + layer->weight);
    nn_sum_rows(y_gradient, nn_rows_total(rows), width, gradients + layer->bias);
    return TW_OK;
}
