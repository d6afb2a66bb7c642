/* rows_lowrank.h - the rows of lowrank.h for a vector level; see rows.h, which includes it.
 *
 * Vectors are taken FEW at a time, so that what they meet is read once for FEW of them; the functions marked inline are
 * called with constants, and have no loop over these left. */

/* Sixteen partial sums need no vector wider than sixteen. WIDE vectors of FEW rows fit into a level's registers. */
enum { FEW = 4, WIDE = WIDTH < 16 ? 2 : 4, SUM_LANES = WIDTH < 16 ? WIDTH : 16, SUM_PARTS = 16 / SUM_LANES };

typedef float lane_vector __attribute__((vector_size(SUM_LANES * 4)));

TW_INLINE lane_vector load_lanes(const float *src)
{
    lane_vector x;
    memcpy(&x, src, sizeof x);
    return x;
}

/* Asks for a vector that comes so many floats later. Behind the end of an array, where nothing may be read, it does no
 * harm. */
TW_INLINE void fetch_row(const float *at, size_t floats)
{
    const char *later = (const char *)((uintptr_t)at + floats * sizeof *at);
    for (size_t byte = 0; byte < WIDTH * sizeof *at; byte += 64) __builtin_prefetch(later + byte, 1, 2);
}

/* Of `rows` rows from `row` on, the elements from i on that `wide` vectors hold. Of the large matrix, as many rows are
 * asked for as are now used: those that come next. */
TW_INLINE void combine_vectors(const tw_combinations *sums, size_t row, size_t rows, size_t i, size_t wide, int past)
{
    vector sum[FEW][WIDE], x[WIDE];
    float *dst = sums->dst + row * sums->dst_stride + i;
    const float *added = sums->added ? sums->added + row * sums->dst_stride + i : NULL,
                *c = sums->c + row * sums->c_row;
    for (size_t r = 0; r < rows; r++)
        for (size_t w = 0; w < wide; w++) {
            sum[r][w] = sums->from_zero ? broadcast(0) : load(dst + r * sums->dst_stride + w * WIDTH);
            if (added) fetch_row(dst + r * sums->dst_stride + w * WIDTH, rows * sums->dst_stride);
        }
    for (size_t k = 0; k < sums->count; k++) {
        for (size_t w = 0; w < wide; w++) {
            x[w] = load(sums->x + k * sums->stride + i + w * WIDTH);
            if (sums->x_is_large) fetch_row(sums->x + k * sums->stride + i + w * WIDTH, sums->count * sums->stride);
        }
        for (size_t r = 0; r < rows; r++)
            for (size_t w = 0; w < wide; w++) sum[r][w] += c[r * sums->c_row + k * sums->c_step] * x[w];
    }
    for (size_t r = 0; r < rows; r++)
        for (size_t w = 0; w < wide; w++) {
            size_t at = r * sums->dst_stride + w * WIDTH;
            if (added) {
                sum[r][w] += sums->factor * load(added + at);
                fetch_row(added + at, rows * sums->dst_stride);
            }
            write_vector(dst + at, sum[r][w], past);
        }
}

TW_INLINE void combine_rows(const tw_combinations *sums, size_t row, size_t rows, int past)
{
    const size_t step = (size_t)WIDE * WIDTH;
    size_t i = 0;
    for (; i + step <= sums->n; i += step) combine_vectors(sums, row, rows, i, WIDE, past);
    for (; i + WIDTH <= sums->n; i += WIDTH) combine_vectors(sums, row, rows, i, 1, past);
}

TW_INLINE void combine(const tw_combinations *sums, int past)
{
    size_t row = 0;
    for (; row + FEW <= sums->rows; row += FEW) combine_rows(sums, row, FEW, past);
    for (; row < sums->rows; row++) combine_rows(sums, row, 1, past);
}

/* A vector may be written past the cache where it begins at a multiple of its length. */
static void add_combinations(const tw_combinations *sums)
{
    size_t whole = sums->n / WIDTH * WIDTH;
    tw_combinations rest = *sums;
    if (sums->past_cache && (uintptr_t)sums->dst % sizeof(vector) == 0 && sums->dst_stride % WIDTH == 0) {
        combine(sums, 1);
        drain();
    } else
        combine(sums, 0);
    rest.dst += whole;
    rest.x += whole;
    if (sums->added) rest.added += whole;
    rest.n -= whole;
    tw_lowrank_scalar.add_combinations(&rest);
}

TW_INLINE void multiply_few(float *products, const float *y, const float *x, size_t stride, size_t count, size_t n)
{
    size_t whole = n / 16 * 16;
    lane_vector sums[FEW][SUM_PARTS] = {0};
    for (size_t i = 0; i < whole; i += 16)
        for (size_t part = 0; part < SUM_PARTS; part++) {
            lane_vector left = load_lanes(y + i + part * SUM_LANES);
            for (size_t k = 0; k < count; k++)
                sums[k][part] += left * load_lanes(x + k * stride + i + part * SUM_LANES);
        }
    for (size_t k = 0; k < count; k++)
        products[k] = tw_finish_inner_product((float *)sums[k], y + whole, x + k * stride + whole, n - whole);
}

static void inner_products(float *products, const float *y, const float *x, size_t stride, size_t count, size_t n)
{
    size_t k = 0;
    for (; k + FEW <= count; k += FEW) multiply_few(products + k, y, x + k * stride, stride, FEW, n);
    if (count - k == 3) multiply_few(products + k, y, x + k * stride, stride, 3, n);
    if (count - k == 2) multiply_few(products + k, y, x + k * stride, stride, 2, n);
    if (count - k == 1) multiply_few(products + k, y, x + k * stride, stride, 1, n);
}

static const tw_lowrank_rows lowrank_rows = {
    .add_combinations = add_combinations,
    .inner_products = inner_products,
};
