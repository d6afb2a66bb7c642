/* matrix.h - a matrix and the two thin factors that stand for it: PowerSGD's arithmetic for one tensor on one rank. */
#ifndef TW_MATRIX_H
#define TW_MATRIX_H

#include <stddef.h>
#include <stdint.h>

enum { TW_MATRIX_MAX_RANK = 256, TW_MATRIX_ROWS = 4 /* at most so many are taken together */ };

/* The matrix itself is given to each function, a row after the other; the factors are kept a column after the other. */
typedef struct tw_matrix {
    size_t rows, columns, rank; /* rank 0: the tensor is not compressed */
    float *p;                   /* rows x rank */
    float *q;                   /* columns x rank */
    float *start;               /* columns x rank, orthonormal: what the matrix is multiplied by to get P */
} tw_matrix;

/* Of `rank` at most what the matrix has; 0 where the factors have no fewer values than the matrix itself. */
size_t tw_matrix_rank(size_t rank, size_t rows, size_t columns);

/* Orthonormalises the start; columns that are zero, or turn out to be, are first drawn from (seed, stream). `scratch`
 * has room for `columns` doubles. */
void tw_matrix_refresh_start(tw_matrix *matrix, uint64_t seed, uint64_t stream, double *scratch);

/* Row `row` of P = row `row` of the matrix, times the start. */
void tw_matrix_multiply_row(tw_matrix *matrix, size_t row, const float *values);

/* Q = the matrix's transpose times P. */
void tw_matrix_multiply_transposed(tw_matrix *matrix, const float *values);

/* dst += product * rows `row` to row + rows - 1 of P*Q', at most TW_MATRIX_ROWS of them, + factor * added, which has as
 * many rows as dst, unless it is NULL. A product of 0 leaves P*Q' out. */
void tw_matrix_update_rows(const tw_matrix *matrix, size_t row, size_t rows, float *dst, float product,
                           const float *added, float factor);

/* dst = P*Q' */
void tw_matrix_product(const tw_matrix *matrix, float *dst);

#endif
