#include "muon.h"

#include "error.h"
#include "product.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5 };
static const float linear = 3.4445f, cubic = -4.7750f, quintic = 2.0315f;

static bool ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name), end_length = strlen(end);
    return length >= end_length && strcmp(name + length - end_length, end) == 0;
}

bool muon_takes(const tw_tensor *tensor)
{
    static const char *const others[] = {"embed_tokens.weight", "lm_head.weight", "encoder.weight", "decoder.weight",
                                         "output.weight",       "fc.weight",      "fc2.weight"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (ends_with(tensor->name, others[i])) return false;
    return tensor->dims == 2;
}

tw_status muon_create(const tw_tensor *tensors, size_t count, muon *out)
{
    size_t elements = 0, side = 0;
    *out = (muon){0};
    for (size_t i = 0; i < count; i++) {
        if (!muon_takes(&tensors[i])) continue;
        const size_t rows = tensors[i].shape[0], columns = tensors[i].shape[1],
                     shorter = rows < columns ? rows : columns;
        if (rows * columns > elements) elements = rows * columns;
        if (shorter > side) side = shorter;
    }
    if (elements == 0)
        return tw_fail(TW_ERROR_ARGUMENT, "--optimizer muon takes the matrices between layers, and this network has "
                                          "none; write --optimizer adamw");
    out->matrix = malloc((elements + 1) * sizeof(float));
    out->next = malloc((elements + 1) * sizeof(float));
    out->gram = malloc((side * side + 1) * sizeof(float));
    out->polynomial = malloc((side * side + 1) * sizeof(float));
    if (out->matrix && out->next && out->gram && out->polynomial) return TW_OK;
    muon_free(out);
    return tw_fail(TW_ERROR_MEMORY, "no memory for Muon's matrices of %zu weights", elements);
}

void muon_free(muon *m)
{
    free(m->matrix);
    free(m->next);
    free(m->gram);
    free(m->polynomial);
    *m = (muon){0};
}

/* So that no singular value is above 1. */
static void normalise(float *x, size_t count)
{
    double squares = 0;
    for (size_t i = 0; i < count; i++) squares += (double)x[i] * x[i];
    const float scale = (float)(1 / fmax(sqrt(squares), 1e-7));
    for (size_t i = 0; i < count; i++) x[i] *= scale;
}

/* next = linear X + (cubic G + quintic G G) X, where G = X X' on the shorter side, from which it is multiplied. */
static tw_status muon_round(muon *m, size_t rows, size_t columns)
{
    const bool wide = rows <= columns;
    const size_t side = wide ? rows : columns;
    const nn_product gram = {!wide, wide, side, side, wide ? columns : rows, 0};
    const nn_product square = {0, 0, side, side, side, cubic};
    const nn_product whole = {0, 0, rows, columns, side, linear};
    const nn_strides of_gram = {columns, columns, side}, of_square = {side, side, side};
    const nn_strides of_whole = {wide ? side : columns, wide ? columns : side, columns};
    TW_TRY(nn_multiply_parts(&gram, 1, &of_gram, m->matrix, m->matrix, m->gram));
    memcpy(m->polynomial, m->gram, side * side * sizeof(float));
    TW_TRY(nn_multiply_parts(&square, quintic, &of_square, m->gram, m->gram, m->polynomial));
    memcpy(m->next, m->matrix, rows * columns * sizeof(float));
    return nn_multiply_parts(&whole, 1, &of_whole, wide ? m->polynomial : m->matrix, wide ? m->matrix : m->polynomial,
                             m->next);
}

tw_status muon_orthogonalise(muon *m, size_t rows, size_t columns)
{
    normalise(m->matrix, rows * columns);
    for (int round = 0; round < ROUNDS; round++) {
        TW_TRY(muon_round(m, rows, columns));
        float *const matrix = m->matrix;
        m->matrix = m->next;
        m->next = matrix;
    }
    return TW_OK;
}

float muon_length(size_t rows, size_t columns)
{
    return 0.2f * sqrtf((float)(rows > columns ? rows : columns));
}
