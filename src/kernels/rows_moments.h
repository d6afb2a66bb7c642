/* rows_moments.h - the rows of moments.h for a vector level; see rows.h, which includes it. */
static void moments_add(tw_moments *moments, const float *x, size_t n)
{
    size_t whole = n / 16 * 16;
    double_vector sum[SUMS], squares[SUMS];
    memcpy(sum, moments->sum, sizeof sum);
    memcpy(squares, moments->squares, sizeof squares);
    for (size_t i = 0; i < whole; i += 16)
        for (size_t k = 0; k < SUMS; k++) {
            double_vector wide = widen(x + i + k * (WIDTH / 2));
            sum[k] += wide;
            squares[k] += wide * wide; /* the product of two floats is exact in double */
        }
    memcpy(moments->sum, sum, sizeof sum);
    memcpy(moments->squares, squares, sizeof squares);
    tw_moments_scalar.add(moments, x + whole, n - whole);
}

static void fill_moments(tw_moments_rows *table)
{
    table->add = moments_add;
}
