#include "matrix.h"

#include "kernels.h"
#include "orthonormal.h"

#include <string.h>
#include <thinwire/thinwire_plugin.h>

/* Fills one column of the start with numbers in [-1, 1). */
static void draw_column(tw_matrix *matrix, size_t column, uint64_t seed, uint64_t stream)
{
    uint32_t words[4];
    for (size_t i = 0; i < matrix->columns; i++) {
        if (i % 4 == 0) tw_random(seed, stream, column << 32 | i / 4, words);
        matrix->start[column * matrix->columns + i] = (float)(int32_t)words[i % 4] * 0x1p-31F;
    }
}

void tw_matrix_refresh_start(tw_matrix *matrix, uint64_t seed, uint64_t stream, double *scratch)
{
    size_t columns = matrix->columns;
    if (tw_orthonormalise(matrix->start, matrix->rank, columns, scratch) == 0) return;
    for (size_t k = 0; k < matrix->rank; k++)
        if (tw_kernels_best()->sum_squares(matrix->start + k * columns, columns) == 0)
            draw_column(matrix, k, seed, stream);
    tw_orthonormalise(matrix->start, matrix->rank, columns, scratch);
}

void tw_matrix_multiply_row(tw_matrix *matrix, size_t row, const float *values)
{
    float products[TW_MATRIX_MAX_RANK];
    size_t columns = matrix->columns;
    tw_kernels_best()->lowrank->inner_products(products, values, matrix->start, columns, matrix->rank, columns);
    for (size_t k = 0; k < matrix->rank; k++) matrix->p[k * matrix->rows + row] = products[k];
}

/* A few rows at a time, so that Q is not read and written for each; in panels of columns, so that those rows stay in
 * the second-level cache from one column of P to the next. */
void tw_matrix_multiply_transposed(tw_matrix *matrix, const float *values)
{
    enum { ROWS = 4, COLUMNS = 8192 };
    size_t rows = matrix->rows, columns = matrix->columns;
    memset(matrix->q, 0, matrix->rank * columns * sizeof *matrix->q);
    for (size_t row = 0; row < rows; row += ROWS)
        for (size_t column = 0; column < columns; column += COLUMNS) {
            size_t high = rows - row < ROWS ? rows - row : ROWS;
            size_t wide = columns - column < COLUMNS ? columns - column : COLUMNS;
            for (size_t k = 0; k < matrix->rank; k++)
                tw_kernels_best()->lowrank->add_combination(matrix->q + k * columns + column,
                                                            values + row * columns + column, columns, high,
                                                            matrix->p + k * rows + row, wide);
        }
}

void tw_matrix_add_product_row(const tw_matrix *matrix, size_t row, float factor, float *dst)
{
    float coefficients[TW_MATRIX_MAX_RANK];
    size_t columns = matrix->columns;
    for (size_t k = 0; k < matrix->rank; k++) coefficients[k] = factor * matrix->p[k * matrix->rows + row];
    tw_kernels_best()->lowrank->add_combination(dst, matrix->q, columns, matrix->rank, coefficients, columns);
}

void tw_matrix_product(const tw_matrix *matrix, float *dst)
{
    for (size_t row = 0; row < matrix->rows; row++, dst += matrix->columns) {
        memset(dst, 0, matrix->columns * sizeof *dst);
        tw_matrix_add_product_row(matrix, row, 1, dst);
    }
}
