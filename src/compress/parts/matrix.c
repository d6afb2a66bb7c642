#include "matrix.h"

#include "kernels.h"
#include "orthonormal.h"
#include "smaller.h"

#include <thinwire/thinwire_plugin.h>

size_t tw_matrix_rank(size_t rank, size_t rows, size_t columns)
{
    size_t most = rows < columns ? rows : columns, least = rank < most ? rank : most;
    return least * (rows + columns) < rows * columns ? least : 0;
}

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
 * the second-level cache from some columns of P to the next. */
void tw_matrix_multiply_transposed(tw_matrix *matrix, const float *values)
{
    enum { ROWS = 8, COLUMNS = 8192 };
    size_t rows = matrix->rows, columns = matrix->columns;
    for (size_t row = 0; row < rows; row += ROWS)
        for (size_t column = 0; column < columns; column += COLUMNS) {
            tw_combinations sums = {.dst = matrix->q + column,
                                    .dst_stride = columns,
                                    .rows = matrix->rank,
                                    .x = values + row * columns + column,
                                    .stride = columns,
                                    .count = tw_smaller(ROWS, rows - row),
                                    .c = matrix->p + row,
                                    .c_row = rows,
                                    .c_step = 1,
                                    .n = tw_smaller(COLUMNS, columns - column),
                                    .from_zero = row == 0,
                                    .x_is_large = 1};
            tw_kernels_best()->lowrank->add_combinations(&sums);
        }
}

/* P*Q' of some rows, of which c holds P's, c_step apart for each column of P. */
static tw_combinations product_of(const tw_matrix *matrix, float *dst, size_t rows, const float *c, size_t c_step)
{
    return (tw_combinations){.dst = dst,
                             .dst_stride = matrix->columns,
                             .rows = rows,
                             .x = matrix->q,
                             .stride = matrix->columns,
                             .count = matrix->rank,
                             .c = c,
                             .c_row = 1,
                             .c_step = c_step,
                             .n = matrix->columns};
}

void tw_matrix_update_rows(const tw_matrix *matrix, size_t row, size_t rows, float *dst, float product,
                           const float *added, float factor)
{
    float coefficients[TW_MATRIX_MAX_RANK * TW_MATRIX_ROWS];
    tw_combinations sums = product_of(matrix, dst, rows, coefficients, TW_MATRIX_ROWS);
    if (product == 0) sums.count = 0;
    sums.added = added;
    sums.factor = factor;
    for (size_t k = 0; k < sums.count; k++)
        for (size_t r = 0; r < rows; r++)
            coefficients[k * TW_MATRIX_ROWS + r] = product * matrix->p[k * matrix->rows + row + r];
    tw_kernels_best()->lowrank->add_combinations(&sums);
}

void tw_matrix_product(const tw_matrix *matrix, float *dst)
{
    tw_combinations sums = product_of(matrix, dst, matrix->rows, matrix->p, matrix->rows);
    sums.from_zero = 1;
    sums.past_cache = matrix->rows * matrix->columns >= TW_PAST_CACHE;
    tw_kernels_best()->lowrank->add_combinations(&sums);
}
