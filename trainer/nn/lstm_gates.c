/* lstm_gates.c - the gates' functions in one pass over a row. */
#include "lstm_gates.h"

#include "wide.h"

NN_WIDE static void forward(float *restrict i, float *restrict f, float *restrict g, float *restrict o,
                            const float *restrict before, float *restrict cell, float *restrict output,
                            float *restrict copy, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        i[k] = nn_sigmoid(i[k]);
        f[k] = nn_sigmoid(f[k]);
        g[k] = nn_tanh(g[k]);
        o[k] = nn_sigmoid(o[k]);
        cell[k] = f[k] * before[k] + i[k] * g[k];
        output[k] = copy[k] = o[k] * nn_tanh(cell[k]);
    }
}

void nn_cell_forward(const nn_cell *c, float *output, float *copy)
{
    size_t h = c->hidden;
    forward(c->gates, c->gates + h, c->gates + 2 * h, c->gates + 3 * h, c->cell_before, c->cell, output, copy, h);
}

NN_WIDE static void backward(float *restrict i, float *restrict f, float *restrict g, float *restrict o,
                             const float *restrict before, const float *restrict cell, const float *restrict above,
                             const float *restrict after, float *restrict cell_gradient, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        float squashed = nn_tanh(cell[k]), output = above[k] + after[k];
        float of_cell = cell_gradient[k] + output * o[k] * (1.0f - squashed * squashed);
        float of_i = of_cell * g[k] * i[k] * (1.0f - i[k]);
        float of_f = of_cell * before[k] * f[k] * (1.0f - f[k]);
        float of_g = of_cell * i[k] * (1.0f - g[k] * g[k]);
        float of_o = output * squashed * o[k] * (1.0f - o[k]);
        cell_gradient[k] = of_cell * f[k];
        i[k] = of_i;
        f[k] = of_f;
        g[k] = of_g;
        o[k] = of_o;
    }
}

void nn_cell_backward(const nn_cell *c, const float *from_above, const float *from_after, float *cell_gradient)
{
    size_t h = c->hidden;
    backward(c->gates, c->gates + h, c->gates + 2 * h, c->gates + 3 * h, c->cell_before, c->cell, from_above,
             from_after, cell_gradient, h);
}
