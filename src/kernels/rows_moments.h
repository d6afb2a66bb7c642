/* rows_moments.h - the rows of moments.h for a vector level; see rows.h, which includes it. */
typedef struct moment_sums {
    double_vector sum[SUMS], squares[SUMS];
} moment_sums;

TW_INLINE moment_sums moments_load(const tw_moments *moments)
{
    moment_sums sums;
    memcpy(sums.sum, moments->sum, sizeof sums.sum);
    memcpy(sums.squares, moments->squares, sizeof sums.squares);
    return sums;
}

TW_INLINE void moments_store(tw_moments *moments, const moment_sums *sums)
{
    memcpy(moments->sum, sums->sum, sizeof sums->sum);
    memcpy(moments->squares, sums->squares, sizeof sums->squares);
}

/* Adds n elements, a multiple of 16. */
TW_INLINE void moments_add_whole(moment_sums *sums, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += 16)
        for (size_t k = 0; k < SUMS; k++) {
            double_vector wide = widen(x + i + k * (WIDTH / 2));
            sums->sum[k] += wide;
            sums->squares[k] += wide * wide; /* the product of two floats is exact in double */
        }
}

static void moments_add(tw_moments *moments, const float *x, size_t n)
{
    size_t whole = n / 16 * 16;
    moment_sums sums = moments_load(moments);
    moments_add_whole(&sums, x, whole);
    moments_store(moments, &sums);
    tw_moments_scalar.add(moments, x + whole, n - whole);
}

/* The additions wait for each other; beside the update they wait while memory does. */
TW_INLINE size_t moments_update(tw_update update, tw_moments *moments, float *u, float *v, float *g, size_t n, float a,
                                float m, float threshold, uint32_t first, uint32_t *index, float *value, size_t *done)
{
    const uint32_t loud = loud_pattern(done);
    moment_sums sums = moments_load(moments);
    size_t count = 0, i = 0;
    for (; i < n && is_quiet(g + i, loud); i += BLOCK) {
        fetch_update(update, u + i, v + i, g + i);
        uint64_t hits = update_block(update, u + i, v + i, g + i, a, m, threshold);
        moments_add_whole(&sums, v + i, BLOCK);
        if (hits) count += append(hits, v + i, first + (uint32_t)i, index + count, value + count);
    }
    moments_store(moments, &sums);
    if (done) *done = i;
    return count;
}

static size_t moments_momentum_select(tw_moments *moments, float *u, float *v, float *g, size_t n, float a, float m,
                                      int nesterov, float threshold, uint32_t first, uint32_t *index, float *value,
                                      size_t *done)
{
    size_t whole = n / BLOCK * BLOCK;
    size_t count =
        nesterov ? moments_update(TW_NESTEROV, moments, u, v, g, whole, a, m, threshold, first, index, value, done)
                 : moments_update(TW_MOMENTUM, moments, u, v, g, whole, a, m, threshold, first, index, value, done);
    if (stopped(done, whole)) return count;
    count += tw_moments_scalar.momentum_select(moments, u + whole, v + whole, g + whole, n - whole, a, m, nesterov,
                                               threshold, first + (uint32_t)whole, index + count, value + count, done);
    if (done) *done += whole;
    return count;
}

static const tw_moments_rows moments_rows = {
    .add = moments_add,
    .momentum_select = moments_momentum_select,
};
