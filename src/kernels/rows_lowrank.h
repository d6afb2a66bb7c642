/* rows_lowrank.h - the rows of lowrank.h for a vector level; see rows.h, which includes it.
 *
 * The vectors x_k are taken four at a time, so that what they meet (dst, y) is read once for four of them; the
 * functions marked inline are called with a constant `count` and have no loop over it left. */

/* Sixteen partial sums need no vector wider than sixteen. */
enum { FEW = 4, SUM_LANES = WIDTH < 16 ? WIDTH : 16, SUM_PARTS = 16 / SUM_LANES };

typedef float lane_vector __attribute__((vector_size(SUM_LANES * 4)));

TW_INLINE lane_vector load_lanes(const float *src)
{
    lane_vector x;
    memcpy(&x, src, sizeof x);
    return x;
}

TW_INLINE void add_few(float *dst, const float *x, size_t stride, size_t count, const float *c, size_t n)
{
    for (size_t i = 0; i < n; i += WIDTH) {
        vector sum = load(dst + i);
        for (size_t k = 0; k < count; k++) sum += c[k] * load(x + k * stride + i);
        store(dst + i, sum);
    }
}

static void add_combination(float *dst, const float *x, size_t stride, size_t count, const float *c, size_t n)
{
    size_t whole = n / WIDTH * WIDTH, k = 0;
    for (; k + FEW <= count; k += FEW) add_few(dst, x + k * stride, stride, FEW, c + k, whole);
    if (count - k == 3) add_few(dst, x + k * stride, stride, 3, c + k, whole);
    if (count - k == 2) add_few(dst, x + k * stride, stride, 2, c + k, whole);
    if (count - k == 1) add_few(dst, x + k * stride, stride, 1, c + k, whole);
    tw_lowrank_scalar.add_combination(dst + whole, x + whole, stride, count, c, n - whole);
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
    .add_combination = add_combination,
    .inner_products = inner_products,
};
