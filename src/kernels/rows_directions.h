/* rows_directions.h - the rows of directions.h for a vector level; see rows.h, which includes it. */

TW_INLINE vector within(vector x, float most)
{
    return larger(smaller(x, broadcast(most)), broadcast(-most));
}

TW_INLINE vector taken(const tw_adam_step *step, int nesterov, vector gradient, vector *first, float *second)
{
    vector fresh = step->fresh * gradient, m = step->beta1 * *first + fresh;
    vector squares = step->beta2 * load(second) + step->fresh_square * (gradient * gradient);
    vector v = smaller(squares, broadcast(TW_ADAM_LARGEST_SQUARE));
    *first = m;
    store(second, v);
    vector ahead = nesterov ? step->beta1 * m + fresh : m;
    return within(step->correction * ahead / (step->correct_root * (vector)roots(v) + step->epsilon), TW_ADAM_LARGEST);
}

TW_INLINE vector taken_there(const tw_adam_step *step, int nesterov, vector gradient, float *first, float *second)
{
    vector m = load(first), direction = taken(step, nesterov, gradient, &m, second);
    store(first, m);
    return direction;
}

TW_INLINE void adapt_whole(const tw_adam_step *step, int nesterov, float *first, float *second, float *g, size_t n)
{
    for (size_t i = 0; i < n; i += WIDTH) store(g + i, taken_there(step, nesterov, load(g + i), first + i, second + i));
}

static void adapt(const tw_adam_step *step, float *first, float *second, float *g, size_t n)
{
    const tw_adam_step s = *step; /* a copy, so that no store is thought to change it */
    size_t whole = n / WIDTH * WIDTH;
    if (s.nesterov)
        adapt_whole(&s, 1, first, second, g, whole);
    else
        adapt_whole(&s, 0, first, second, g, whole);
    tw_directions_scalar.adapt(step, first + whole, second + whole, g + whole, n - whole);
}

TW_INLINE uint64_t adapt_block(const tw_adam_step *step, int nesterov, float *first, float *second, float *v, float *g,
                               float a, float threshold)
{
    uint64_t hits = 0;
    for (size_t k = 0; k < BLOCK; k += WIDTH) {
        vector sum = load(v + k) + taken_there(step, nesterov, a * load(g + k), first + k, second + k);
        store(v + k, sum);
        store(g + k, (vector){0});
        hits |= above(sum, threshold) << k;
    }
    return hits;
}

TW_INLINE size_t adapt_and_select(const tw_adam_step *step, int nesterov, float *first, float *second, float *v,
                                  float *g, size_t n, float a, float threshold, uint32_t number, uint32_t *index,
                                  float *value, size_t *done)
{
    const uint32_t loud = loud_pattern(done);
    size_t count = 0, i = 0;
    for (; i < n && is_quiet(g + i, loud); i += BLOCK) {
        fetch_update(TW_MOMENTUM, first + i, v + i, g + i);
        fetch_later(second + i, BLOCK * sizeof *second);
        uint64_t hits = adapt_block(step, nesterov, first + i, second + i, v + i, g + i, a, threshold);
        if (hits) count += append(hits, v + i, number + (uint32_t)i, index + count, value + count);
    }
    if (done) *done = i;
    return count;
}

static size_t adapt_select(const tw_adam_step *step, float *first, float *second, float *v, float *g, size_t n, float a,
                           float threshold, uint32_t number, uint32_t *index, float *value, size_t *done)
{
    const tw_adam_step s = *step;
    size_t whole = n / BLOCK * BLOCK;
    size_t count = s.nesterov
                       ? adapt_and_select(&s, 1, first, second, v, g, whole, a, threshold, number, index, value, done)
                       : adapt_and_select(&s, 0, first, second, v, g, whole, a, threshold, number, index, value, done);
    if (stopped(done, whole)) return count;
    count += tw_directions_scalar.adapt_select(step, first + whole, second + whole, v + whole, g + whole, n - whole, a,
                                               threshold, number + (uint32_t)whole, index + count, value + count, done);
    if (done) *done += whole;
    return count;
}

/* A divisor, what of it m is shared over, and all ones where an element moves. */
typedef struct divisors {
    vector whole, shared;
    word_vector moves;
} divisors;

TW_INLINE divisors divisors_at(const tw_shared_step *step, const float *divisor, size_t i)
{
    vector whole = divisor ? load(divisor + i) : broadcast(1), shared = step->divides ? whole : broadcast(1);
    word_vector moves = (word_vector)(whole > 0.0f);
    return (divisors){whole, (vector)(moves & (word_vector)shared), moves};
}

static void share(const tw_shared_step *step, const float *first, const float *divisor, const float *g, float *share,
                  size_t n)
{
    const tw_shared_step s = *step;
    size_t whole = n / WIDTH * WIDTH;
    for (size_t i = 0; i < whole; i += WIDTH) {
        fetch_early(first + i, WIDTH);
        if (divisor) fetch_early(divisor + i, WIDTH);
        fetch_early(g + i, WIDTH);
        divisors by = divisors_at(&s, divisor, i);
        vector fresh = within(load(g + i) / by.shared, s.most);
        vector sum = s.kept * load(first + i) / by.shared + s.fresh * fresh;
        store(share + i, (vector)(by.moves & (word_vector)sum));
    }
    tw_directions_scalar.share(step, first + whole, divisor ? divisor + whole : NULL, g + whole, share + whole,
                               n - whole);
}

TW_INLINE void adopt_whole(const tw_shared_step *step, float *first, const float *divisor, float *g, size_t n, int past)
{
    for (size_t i = 0; i < n; i += WIDTH) {
        if (divisor) fetch_early(divisor + i, WIDTH);
        fetch_early(g + i, WIDTH);
        divisors by = divisors_at(step, divisor, i);
        vector m = within(load(g + i) * by.shared, TW_ADAM_LARGEST);
        vector direction = within(step->correction * m / by.whole, TW_ADAM_LARGEST);
        write_vector(first + i, m, past);
        store(g + i, (vector)choose(by.moves, (word_vector)direction, (word_vector)m));
    }
}

static void adopt(const tw_shared_step *step, float *first, const float *divisor, float *g, size_t n, int past)
{
    const tw_shared_step s = *step;
    size_t whole = n / WIDTH * WIDTH;
    if (past && (uintptr_t)first % sizeof(vector) == 0)
        adopt_whole(&s, first, divisor, g, whole, 1);
    else
        adopt_whole(&s, first, divisor, g, whole, 0);
    tw_directions_scalar.adopt(step, first + whole, divisor ? divisor + whole : NULL, g + whole, n - whole, 0);
}

static const tw_directions_rows directions_rows = {TW_DIRECTIONS_LOOPS};
