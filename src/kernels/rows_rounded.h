/* rows_rounded.h - the rows of rounded.h for a vector level; see rows.h, which includes it. */

enum { PAIR = 2 * WIDTH }; /* elements */

/* Two vectors of what is kept, one behind the other in memory, as words: the first's elements are the lower halves. */
typedef struct rounded_pair {
    vector first, second;
} rounded_pair;

TW_INLINE rounded_pair get_pair(const uint16_t *src)
{
    word_vector woven = (word_vector)weave(src);
    return (rounded_pair){(vector)(woven << 16), (vector)(woven & 0xFFFF0000u)};
}

/* What lies behind the upper half of a word is cut off. */
TW_INLINE void put_pair(uint16_t *dst, word_vector first, word_vector second)
{
    unweave(dst, (woven_vector)(first >> 16 | (second & 0xFFFF0000u)));
}

TW_INLINE tw_noise noise_behind(tw_noise noise, size_t n)
{
    noise.first += (uint32_t)n;
    return noise;
}

/* All that a row is asked, but for the arrays. */
typedef struct rounded_request {
    float a, m, threshold;
    tw_noise noise;
    tw_adam_step adam; /* of whom a second moment is there */
} rounded_request;

/* For a pair: a number below 65,536 for each u, and each v. */
typedef struct rounded_noise {
    word_vector u[2], v[2];
} rounded_noise;

/* Of the pair that begins at the element `number`, and of the one 32 elements on. */
TW_INLINE void draw_noise(rounded_noise noise[2], const tw_noise *key, uint32_t number)
{
    for (uint32_t half = 0; half < 2; half++) {
        word_vector word = hash(key, lane_numbers() + (number + half * WIDTH));
        noise[0].v[half] = noise[1].u[half] = word >> 16;
        noise[0].u[half] = noise[1].v[half] = word & 0xFFFFu;
    }
}

/* A vector's new v, before it is rounded; *velocity gets the new u. `second`: Adam's second moment, else NULL; which of
 * them it is, is known when this is compiled into its caller. */
TW_INLINE vector rounded_sum(tw_update update, float *second, vector v, const float *g, const rounded_request *r,
                             vector *velocity)
{
    vector step = r->a * load(g);
    if (second) return v + taken(&r->adam, update == TW_NESTEROV, step, velocity, second);
    if (update == TW_ACCUMULATE) return v + step;
    *velocity = r->m * *velocity + step;
    return v + (update == TW_NESTEROV ? r->m * *velocity + step : *velocity);
}

/* Updates a pair, and writes the new v to `now` unless that is NULL; bit by bit which are above the threshold. What is
 * not a number has nothing in its lower half here, so that no noise carries: it came from bf16 or from arithmetic. */
TW_INLINE uint64_t update_pair(tw_update update, uint16_t *u, float *second, uint16_t *v, float *g,
                               const rounded_noise *noise, const rounded_request *r, float *now)
{
    rounded_pair before = get_pair(v), velocity = {0};
    if (update != TW_ACCUMULATE) velocity = get_pair(u);
    rounded_pair sum = {
        rounded_sum(update, second, before.first, g, r, &velocity.first),
        rounded_sum(update, second ? second + WIDTH : NULL, before.second, g + WIDTH, r, &velocity.second)};
    word_vector kept[2] = {(word_vector)sum.first + noise->v[0], (word_vector)sum.second + noise->v[1]};
    put_pair(v, kept[0], kept[1]);
    if (update != TW_ACCUMULATE)
        put_pair(u, (word_vector)velocity.first + noise->u[0], (word_vector)velocity.second + noise->u[1]);
    uint64_t hits = 0;
    for (size_t half = 0; half < 2; half++) {
        vector x = (vector)(kept[half] & 0xFFFF0000u);
        hits |= above(x, r->threshold) << half * WIDTH;
        store(g + half * WIDTH, (vector){0});
        if (now) store(now + half * WIDTH, x);
    }
    return hits;
}

/* A block that begins at the element `number`. */
TW_INLINE uint64_t rounded_block(tw_update update, uint16_t *u, float *second, uint16_t *v, float *g, uint32_t number,
                                 const rounded_request *r, float *now)
{
    enum { FAR = BLOCK / 2 };
    uint64_t hits = 0;
    for (uint32_t k = 0; k < FAR; k += PAIR) {
        rounded_noise noise[2];
        draw_noise(noise, &r->noise, number + k);
        for (uint32_t i = 0, at = k; i < 2; i++, at += FAR)
            hits |= update_pair(update, u + at, second ? second + at : NULL, v + at, g + at, &noise[i], r,
                                now ? now + at : NULL)
                    << at;
    }
    return hits;
}

TW_INLINE void read_block(const uint16_t *v, float *now)
{
    for (size_t k = 0; k < BLOCK; k += PAIR) {
        rounded_pair x = get_pair(v + k);
        store(now + k, x.first);
        store(now + k + WIDTH, x.second);
    }
}

/* Most blocks have nothing to list, and are not read again. */
TW_INLINE size_t list_block(uint64_t hits, const uint16_t *v, uint32_t number, uint32_t *index, float *value)
{
    float now[BLOCK];
    read_block(v, now);
    return append(hits, now, number, index, value);
}

/* `moments`: of whom they are wanted, else NULL; whichever is known when this is compiled into its caller. */
TW_INLINE size_t rounded_select(tw_update update, tw_moments *moments, uint16_t *u, float *second, uint16_t *v,
                                float *g, size_t n, const rounded_request *r, uint32_t *index, float *value,
                                size_t *done)
{
    const uint32_t loud = loud_pattern(done);
    float now[BLOCK];
    moment_sums sums = {0};
    if (moments) sums = moments_load(moments);
    size_t count = 0, i = 0;
    for (; i < n && is_quiet(g + i, loud); i += BLOCK) {
        uint32_t number = r->noise.first + (uint32_t)i;
        fetch_later(g + i, BLOCK * sizeof *g);
        fetch_later(v + i, BLOCK * sizeof *v);
        if (update != TW_ACCUMULATE) fetch_later(u + i, BLOCK * sizeof *u);
        if (second) fetch_later(second + i, BLOCK * sizeof *second);
        uint64_t hits =
            rounded_block(update, u + i, second ? second + i : NULL, v + i, g + i, number, r, moments ? now : NULL);
        if (moments) moments_add_whole(&sums, now, BLOCK);
        if (hits) count += list_block(hits, v + i, number, index + count, value + count);
    }
    if (moments) moments_store(moments, &sums);
    if (done) *done = i;
    return count;
}

TW_INLINE size_t rounded_momentum_whole(tw_moments *moments, uint16_t *u, uint16_t *v, float *g, size_t n, int nesterov,
                                        const rounded_request *r, uint32_t *index, float *value, size_t *done)
{
    return nesterov ? rounded_select(TW_NESTEROV, moments, u, NULL, v, g, n, r, index, value, done)
                    : rounded_select(TW_MOMENTUM, moments, u, NULL, v, g, n, r, index, value, done);
}

static size_t rounded_momentum_select(tw_moments *moments, uint16_t *u, uint16_t *v, float *g, size_t n, float a,
                                      float m, int nesterov, float threshold, tw_noise noise, uint32_t *index,
                                      float *value, size_t *done)
{
    const rounded_request r = {.a = a, .m = m, .threshold = threshold, .noise = noise};
    size_t whole = n / BLOCK * BLOCK;
    size_t count = moments ? rounded_momentum_whole(moments, u, v, g, whole, nesterov, &r, index, value, done)
                           : rounded_momentum_whole(NULL, u, v, g, whole, nesterov, &r, index, value, done);
    if (stopped(done, whole)) return count;
    count +=
        tw_rounded_scalar.momentum_select(moments, u + whole, v + whole, g + whole, n - whole, a, m, nesterov,
                                          threshold, noise_behind(noise, whole), index + count, value + count, done);
    if (done) *done += whole;
    return count;
}

static size_t rounded_adapt_select(const tw_adam_step *step, uint16_t *u, float *second, uint16_t *v, float *g,
                                   size_t n, float a, float threshold, tw_noise noise, uint32_t *index, float *value,
                                   size_t *done)
{
    const rounded_request r = {.a = a, .threshold = threshold, .noise = noise, .adam = *step};
    size_t whole = n / BLOCK * BLOCK;
    size_t count = step->nesterov ? rounded_select(TW_NESTEROV, NULL, u, second, v, g, whole, &r, index, value, done)
                                  : rounded_select(TW_MOMENTUM, NULL, u, second, v, g, whole, &r, index, value, done);
    if (stopped(done, whole)) return count;
    count += tw_rounded_scalar.adapt_select(step, u + whole, second + whole, v + whole, g + whole, n - whole, a,
                                            threshold, noise_behind(noise, whole), index + count, value + count, done);
    if (done) *done += whole;
    return count;
}

static size_t rounded_accumulate_select(uint16_t *v, float *g, size_t n, float a, float threshold, tw_noise noise,
                                        uint32_t *index, float *value, size_t *done)
{
    const rounded_request r = {.a = a, .threshold = threshold, .noise = noise};
    size_t whole = n / BLOCK * BLOCK;
    size_t count = rounded_select(TW_ACCUMULATE, NULL, v, NULL, v, g, whole, &r, index, value, done);
    if (stopped(done, whole)) return count;
    count += tw_rounded_scalar.accumulate_select(v + whole, g + whole, n - whole, a, threshold,
                                                 noise_behind(noise, whole), index + count, value + count, done);
    if (done) *done += whole;
    return count;
}

static uint64_t block_above(const uint16_t *v, float threshold)
{
    uint64_t hits = 0;
    for (size_t k = 0; k < BLOCK; k += PAIR) {
        rounded_pair x = get_pair(v + k);
        hits |= (above(x.first, threshold) | above(x.second, threshold) << WIDTH) << k;
    }
    return hits;
}

static size_t rounded_select_only(const uint16_t *v, size_t n, float threshold, uint32_t first, uint32_t *index,
                                  float *value)
{
    size_t count = 0, whole = n / BLOCK * BLOCK;
    for (size_t i = 0; i < whole; i += BLOCK) {
        uint64_t hits = block_above(v + i, threshold);
        if (hits) count += list_block(hits, v + i, first + (uint32_t)i, index + count, value + count);
    }
    return count + tw_rounded_scalar.select(v + whole, n - whole, threshold, first + (uint32_t)whole, index + count,
                                            value + count);
}

static void scale_pair(uint16_t *v, float a, const rounded_noise *noise)
{
    rounded_pair x = get_pair(v);
    put_pair(v, (word_vector)(a * x.first) + noise->v[0], (word_vector)(a * x.second) + noise->v[1]);
}

static void rounded_scale(uint16_t *v, float a, size_t n, tw_noise noise)
{
    size_t whole = n / BLOCK * BLOCK;
    for (size_t i = 0; i < whole; i += BLOCK)
        for (size_t k = i; k < i + BLOCK / 2; k += PAIR) {
            rounded_noise drawn[2];
            draw_noise(drawn, &noise, noise.first + (uint32_t)k);
            scale_pair(v + k, a, &drawn[0]);
            scale_pair(v + k + BLOCK / 2, a, &drawn[1]);
        }
    tw_rounded_scalar.scale(v + whole, a, n - whole, noise_behind(noise, whole));
}

static const tw_rounded_rows rounded_rows = {
    .momentum_select = rounded_momentum_select,
    .adapt_select = rounded_adapt_select,
    .accumulate_select = rounded_accumulate_select,
    .select = rounded_select_only,
    .scale = rounded_scale,
};
