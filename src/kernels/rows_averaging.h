/* rows_averaging.h - the rows of averaging.h for a vector level; see rows.h, which includes it. */

/* n is a multiple of 16; 1 if all patterns are below `limit`. */
TW_INLINE int difference_whole(float *dst, const float *a, const float *b, size_t n, uint32_t limit, int past_cache)
{
    word_vector seen = {0};
    for (size_t i = 0; i < n; i += 16) {
        fetch_soon(a + i);
        fetch_soon(b + i);
        for (size_t k = i; k < i + 16; k += WIDTH) {
            vector now = load(a + k) - load(b + k);
            write_vector(dst + k, now, past_cache);
            seen |= carry_from((word_vector)now, limit);
        }
    }
    return none_carried(seen);
}

static int difference(float *dst, const float *a, const float *b, size_t n, float most, int past_cache)
{
    const size_t whole = n / 16 * 16;
    uint32_t largest;
    int within;
    memcpy(&largest, &most, sizeof largest);
    if (past_cache && (uintptr_t)dst % sizeof(vector) == 0) {
        within = difference_whole(dst, a, b, whole, largest + 1, 1);
        drain();
    } else {
        within = difference_whole(dst, a, b, whole, largest + 1, 0);
    }
    return tw_averaging_scalar.difference(dst + whole, a + whole, b + whole, n - whole, most, 0) && within;
}

/* c of one vector. */
TW_INLINE vector drawn(const tw_average *average, size_t partners, size_t at)
{
    vector sent = load(average->sent + at), c = load(average->theirs[0] + at) - sent;
    for (size_t p = 1; p < partners; p++) c += load(average->theirs[p] + at) - sent;
    return c * average->share;
}

TW_INLINE void draw_whole(tw_average *average, size_t partners, float *dst, size_t first, size_t n, int add)
{
    double_vector sums[SUMS];
    memcpy(sums, average->squares, sizeof sums);
    for (size_t i = first; i < first + n; i += BLOCK) {
        float c[BLOCK];
        for (size_t k = 0; k < BLOCK; k += WIDTH) {
            vector now = drawn(average, partners, i + k);
            store(c + k, now);
            store(dst + i + k, add ? load(dst + i + k) + now : now);
        }
        for (size_t k = 0; k < BLOCK; k += WIDTH / 2)
            sums[k / (WIDTH / 2) % SUMS] = plus_squares(sums[k / (WIDTH / 2) % SUMS], c + k);
    }
    memcpy(average->squares, sums, sizeof sums);
}

/* One partner, by far the most frequent number, has a loop without the test for others. */
static void draw(tw_average *average, float *dst, size_t first, size_t n, int add)
{
    size_t whole = n / BLOCK * BLOCK;
    if (average->partners > 1)
        draw_whole(average, average->partners, dst, first, whole, add);
    else if (add)
        draw_whole(average, 1, dst, first, whole, 1);
    else
        draw_whole(average, 1, dst, first, whole, 0);
    tw_averaging_scalar.draw(average, dst, first + whole, n - whole, add);
}

static const tw_averaging_rows averaging_rows = {.difference = difference, .draw = draw};
