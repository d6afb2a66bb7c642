/* Every row of every level against the reference, bit for bit, over all small sizes and all alignments. */
#include "levels.h"
#include "support.h"

enum { MOST = 200, SHIFTS = 16 };

/* Where a row finds its arrays; every row writes to some and leaves the others alone. */
typedef struct arrays {
    float *u, *v, *w, *g, *value;
    uint32_t *index;
    uint16_t *half;
} arrays;

/* --- the rows, all called alike; what a row returns, as a double ------------------------------------------------ */

static double all_finite(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    return kernels->all_finite(x->g, p->n);
}

static double all_below(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    return kernels->all_below(x->g, p->n, p->threshold + FLT_MIN);
}

static double sum_squares(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    return kernels->sum_squares(x->g, p->n);
}

/* To sums that are there. */
static double add_squares(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    double partial[16];
    for (size_t k = 0; k < 16; k++) partial[k] = (double)k / 3;
    kernels->add_squares(partial, x->g, p->n);
    return tw_kernels_fold(partial);
}

static double add(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    kernels->add(x->v, x->g, p->n);
    return 0;
}

/* theirs: g, and with nesterov u beside it; sent: value. */
static double draw(const tw_kernels *kernels, const problem *p, const arrays *x, int add)
{
    const float *theirs[] = {x->g, x->u};
    tw_average average = {.theirs = theirs, .partners = 1 + (size_t)p->nesterov, .sent = x->value, .share = p->a};
    kernels->averaging->draw(&average, x->v, 0, p->n, add);
    return tw_kernels_fold(average.squares);
}

static double draw_and_add(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    return draw(kernels, p, x, 1);
}

static double draw_only(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    return draw(kernels, p, x, 0);
}

static double difference(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    return kernels->averaging->difference(x->v, x->g, x->u, p->n, FLT_MAX, 0);
}

static double difference_past_the_cache(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    return kernels->averaging->difference(x->v, x->g, x->u, p->n, p->threshold, 1);
}

/* Sums and digests in one number: of what has no NaN, whose bits are the compiler's choice. */
static double told(tw_descent *descent, const problem *p, const arrays *x)
{
    int is_sound = tw_kernels_at(TW_ISA_SCALAR)->all_below(x->v, p->n, INFINITY) &&
                   tw_kernels_at(TW_ISA_SCALAR)->all_below(x->u, p->n, INFINITY);
    for (size_t lane = 0; lane < 16; lane++) {
        if (isnan(descent->mean[lane])) descent->mean[lane] = 0;
        if (isnan(descent->before[lane])) descent->before[lane] = 0;
        if (isnan(descent->both[lane])) descent->both[lane] = 0;
    }
    return tw_crc32c(0, descent, is_sound ? sizeof *descent : offsetof(tw_descent, theta));
}

/* In two pieces. theta: u; the mean: g. */
static double descend(const tw_kernels *kernels, const problem *p, const arrays *x, float *weights, int past_cache)
{
    size_t first = p->n / 2 / 16 * 16;
    tw_descent descent = {.rate = p->a, .momentum = p->m, .nesterov = p->nesterov, .past_cache = past_cache};
    kernels->descent->descend(&descent, x->g, x->v, x->u, weights, first);
    kernels->descent->descend(&descent, x->g + first, x->v + first, x->u + first, weights ? weights + first : NULL,
                              p->n - first);
    return told(&descent, p, x);
}

static double descend_to_theta(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    return descend(kernels, p, x, NULL, 0);
}

static double descend_to_weights(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    return descend(kernels, p, x, x->value, 0);
}

static double descend_past_the_cache(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    return descend(kernels, p, x, x->value, 1);
}

static double digest(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    size_t first = p->n / 2 / 16 * 16;
    tw_digest digest = {.first = {1, 2}, .second = {[3] = 3}};
    kernels->descent->digest(&digest, x->g, first);
    kernels->descent->digest(&digest, x->g + first, p->n - first);
    return tw_crc32c(0, &digest, sizeof digest);
}

static double divide(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    kernels->divide(x->v, p->a, p->n);
    return 0;
}

static double velocity(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    kernels->velocity(x->v, x->g, p->n, p->m, p->nesterov);
    return 0;
}

static double scale(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    kernels->scale(x->v, p->a, p->n);
    return 0;
}

/* The lists hold `count` entries; the room behind them, up to n, is the row's to use: make it alike. */
static double settled(size_t count, const problem *p, const arrays *x)
{
    assert_true(count <= p->n);
    memset(x->index + count, 0, (p->n - count) * sizeof *x->index);
    memset(x->value + count, 0, (p->n - count) * sizeof *x->value);
    return (double)count;
}

static double momentum_select(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    size_t count = kernels->momentum_select(x->u, x->v, x->g, p->n, p->a, p->m, p->nesterov, p->threshold, FIRST,
                                            x->index, x->value, NULL);
    return settled(count, p, x);
}

/* Both counts in one number. */
static double looking_momentum_select(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    size_t done, count = kernels->momentum_select(x->u, x->v, x->g, p->n, p->a, p->m, p->nesterov, p->threshold, FIRST,
                                                  x->index, x->value, &done);
    return settled(count, p, x) + 1000 * (double)done;
}

static double looking_accumulate_select(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    size_t done,
        count = kernels->accumulate_select(x->v, x->g, p->n, p->a, p->threshold, FIRST, x->index, x->value, &done);
    return settled(count, p, x) + 1000 * (double)done;
}

static double accumulate_select(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    size_t count = kernels->accumulate_select(x->v, x->g, p->n, p->a, p->threshold, FIRST, x->index, x->value, NULL);
    return settled(count, p, x);
}

/* The first moment, the second, and the residual: u, w and v. */
static double adapt(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    kernels->directions->adapt(&steps[p->nesterov], x->u, x->w, x->g, p->n);
    return 0;
}

static double adapt_select(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    size_t count = kernels->directions->adapt_select(&steps[p->nesterov], x->u, x->w, x->v, x->g, p->n, p->a,
                                                     p->threshold, FIRST, x->index, x->value, NULL);
    return settled(count, p, x);
}

static double looking_adapt_select(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    size_t done, count = kernels->directions->adapt_select(&steps[p->nesterov], x->u, x->w, x->v, x->g, p->n, p->a,
                                                           p->threshold, FIRST, x->index, x->value, &done);
    return settled(count, p, x) + 1000 * (double)done;
}

/* m: u; the divisor: w. */
static double share(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    kernels->directions->share(&shared_steps[p->nesterov], x->u, x->w, x->g, x->value, p->n);
    return 0;
}

static double share_of_momentum(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    kernels->directions->share(&shared_steps[p->nesterov], x->u, NULL, x->g, x->value, p->n);
    return 0;
}

static double adopt(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    kernels->directions->adopt(&shared_steps[p->nesterov], x->u, x->w, x->g, p->n, 0);
    return 0;
}

static double adopt_past_the_cache(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    kernels->directions->adopt(&shared_steps[p->nesterov], x->u, x->w, x->g, p->n, 1);
    kernels->drain();
    return 0;
}

static double adopt_momentum(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    kernels->directions->adopt(&shared_steps[p->nesterov], x->u, NULL, x->g, p->n, 0);
    return 0;
}

static double select_only(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    return settled(kernels->select(x->v, p->n, p->threshold, FIRST, x->index, x->value), p, x);
}

static double to_fp16(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    kernels->to_fp16(x->half, x->g, p->n);
    return 0;
}

static double from_fp16(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    kernels->from_fp16(x->value, x->half, p->n);
    return 0;
}

static double to_bf16(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    kernels->to_bf16(x->half, x->g, p->n);
    return 0;
}

static double from_bf16(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    kernels->from_bf16(x->value, x->half, p->n);
    return 0;
}

static double share_fp16(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    kernels->fp16->share(x->half, x->g, p->n, p->a);
    return 0;
}

static double share_bf16(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    kernels->bf16->share(x->half, x->g, p->n, p->a);
    return 0;
}

static double share_and_keep_fp16(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    kernels->fp16->share_and_keep(x->half, x->v, x->g, p->n, p->a, p->threshold);
    return 0;
}

static double share_and_keep_bf16(const tw_kernels *kernels, const problem *p, const arrays *x)
{
    kernels->bf16->share_and_keep(x->half, x->v, x->g, p->n, p->a, p->threshold);
    return 0;
}

typedef struct row {
    const char *name;
    double (*run)(const tw_kernels *kernels, const problem *p, const arrays *x);
    int arithmetic; /* which of two NaNs a sum passes on is the compiler's choice: any NaN equals any other */
} row;

static const row rows[] = {
    {"all_finite", all_finite, 0},
    {"all_below", all_below, 0},
    {"sum_squares", sum_squares, 1},
    {"add_squares", add_squares, 1},
    {"add", add, 1},
    {"scale", scale, 1},
    {"draw and add", draw_and_add, 1},
    {"draw", draw_only, 1},
    {"difference", difference, 1},
    {"difference past the cache", difference_past_the_cache, 1},
    {"descend to theta", descend_to_theta, 1},
    {"descend to weights", descend_to_weights, 1},
    {"descend past the cache", descend_past_the_cache, 1},
    {"digest", digest, 0},
    {"divide", divide, 1},
    {"velocity", velocity, 1},
    {"momentum_select", momentum_select, 1},
    {"accumulate_select", accumulate_select, 1},
    {"momentum_select that looks", looking_momentum_select, 1},
    {"accumulate_select that looks", looking_accumulate_select, 1},
    {"adapt", adapt, 1},
    {"adapt_select", adapt_select, 1},
    {"adapt_select that looks", looking_adapt_select, 1},
    {"share", share, 1},
    {"share of momentum", share_of_momentum, 1},
    {"adopt", adopt, 1},
    {"adopt past the cache", adopt_past_the_cache, 1},
    {"adopt momentum", adopt_momentum, 1},
    {"select", select_only, 0},
    {"to_fp16", to_fp16, 0},
    {"from_fp16", from_fp16, 0},
    {"to_bf16", to_bf16, 0},
    {"from_bf16", from_bf16, 0},
    {"share_fp16", share_fp16, 0},
    {"share_bf16", share_bf16, 0},
    {"share_and_keep_fp16", share_and_keep_fp16, 1},
    {"share_and_keep_bf16", share_and_keep_bf16, 1},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* One block holds all arrays, each with something before and after it that no row may touch. */
typedef struct block {
    size_t room, words;
    uint32_t *data;
} block;

/* The margin is odd, so that the arrays of one block differ in alignment. */
static block block_for(size_t n)
{
    size_t room = n + SHIFTS + 21;
    block b = {.room = room, .words = 7 * room};
    b.data = calloc(b.words, sizeof *b.data);
    assert_non_null(b.data);
    return b;
}

static arrays at_shift(const block *b, size_t shift)
{
    float *floats = (void *)b->data;
    return (arrays){.u = floats + shift,
                    .v = floats + b->room + shift,
                    .g = floats + 2 * b->room + shift,
                    .value = floats + 3 * b->room + shift,
                    .index = b->data + 4 * b->room + shift,
                    .half = (uint16_t *)(b->data + 5 * b->room) + shift,
                    .w = floats + 6 * b->room + shift};
}

static void assert_blocks_alike(const block *a, const block *b, int arithmetic, const char *what)
{
    if (memcmp(a->data, b->data, a->words * sizeof *a->data) == 0) return;
    for (size_t i = 0; i < a->words; i++)
        if (!alike(a->data[i], b->data[i], arithmetic))
            fail_msg("%s: array %zu of a block, element %zu: %08x, reference %08x", what, i / a->room, i % a->room,
                     b->data[i], a->data[i]);
}

/* --- the levels against the reference ---------------------------------------------------------------------------- */

/* Outside its n elements of each array a row must change nothing. */
static void assert_margins(const block *before, const block *after, size_t n, size_t shift, const char *what)
{
    enum { ARRAYS = 7, HALVES = 5 };
    size_t bytes = before->room * sizeof *before->data;
    for (size_t array = 0; array < ARRAYS; array++) {
        const char *a = (const char *)before->data + array * bytes, *b = (const char *)after->data + array * bytes;
        size_t size = array == HALVES ? 2 : 4, end = (shift + n) * size;
        if (memcmp(a, b, shift * size) != 0) fail_msg("%s writes before array %zu", what, array);
        if (memcmp(a + end, b + end, bytes - end) != 0) fail_msg("%s writes behind array %zu", what, array);
    }
}

static void check_row(const row *r, const problem *p, size_t shift, const block *before, block *expected, block *actual)
{
    char what[96];
    size_t bytes = before->words * sizeof *before->data;
    memcpy(expected->data, before->data, bytes);
    arrays x = at_shift(expected, shift);
    double number = r->run(tw_kernels_at(TW_ISA_SCALAR), p, &x);
    assert_margins(before, expected, p->n, shift, r->name);
    for (int level = TW_ISA_SCALAR + 1; level < TW_ISA_LEVELS; level++) {
        const tw_kernels *kernels = tw_kernels_at((tw_isa_level)level);
        if (!kernels) continue;
        snprintf(what, sizeof what, "%s.%s, n = %zu, shift = %zu", tw_isa_name((tw_isa_level)level), r->name, p->n,
                 shift);
        memcpy(actual->data, before->data, bytes);
        x = at_shift(actual, shift);
        assert_same_number(number, r->run(kernels, p, &x), what);
        assert_blocks_alike(expected, actual, r->arithmetic, what);
    }
}

static void check_size(size_t n, size_t shifts, size_t problem_number)
{
    block before = block_for(n), expected = block_for(n), actual = block_for(n);
    problem p = problems[problem_number];
    p.n = n;
    for (int kind = 0; kind < CONTENTS; kind++) {
        for (size_t i = 0; i < before.words; i++) before.data[i] = pattern((content)kind, i + n);
        for (size_t shift = 0; shift < shifts; shift++)
            for (int r = 0; r < ROWS; r++) check_row(&rows[r], &p, shift, &before, &expected, &actual);
    }
    free(before.data);
    free(expected.data);
    free(actual.data);
}

TEST(levels_agree_on_every_size_and_alignment)
{
    for (size_t n = 0; n <= MOST; n += stride()) check_size(n, SHIFTS, n % PROBLEMS);
}

TEST(levels_agree_on_every_problem)
{
    static const size_t sizes[] = {1, 63, 64, 65, 129, 191, 4097, 10007};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t p = 0; p < PROBLEMS; p++) check_size(sizes[s], 1, p);
}

TEST(levels_convert_every_half)
{
    enum { HALVES = 65536 };
    uint16_t *halves = malloc(HALVES * sizeof *halves);
    float *floats = malloc(HALVES * sizeof *floats);
    assert_true(halves && floats);
    for (int i = 0; i < HALVES; i++) halves[i] = (uint16_t)i;
    for (int level = 0; level < TW_ISA_LEVELS; level++) {
        const tw_kernels *kernels = tw_kernels_at((tw_isa_level)level);
        if (!kernels) continue;
        kernels->from_fp16(floats, halves, HALVES);
        for (int i = 0; i < HALVES; i++)
            assert_int_equal(tw_float_bits(floats[i]), tw_float_bits(tw_from_fp16((uint16_t)i)));
        kernels->from_bf16(floats, halves, HALVES);
        for (int i = 0; i < HALVES; i++)
            assert_int_equal(tw_float_bits(floats[i]), tw_float_bits(tw_from_bf16((uint16_t)i)));
    }
    free(halves);
    free(floats);
}

TEST(levels_stay_within_the_arrays)
{
    arrays all = {.u = before_the_edge(MOST, 4),
                  .v = before_the_edge(MOST, 4),
                  .g = before_the_edge(MOST, 4),
                  .value = before_the_edge(MOST, 4),
                  .index = before_the_edge(MOST, 4),
                  .half = before_the_edge(MOST, 2),
                  .w = before_the_edge(MOST, 4)};
    for (size_t i = 0; i < MOST; i++)
        all.v[i] = 1; /* u and g are 0: it stays 1, all of it is selected, the lists fill their room */
    for (size_t n = 0; n <= MOST; n++) {
        size_t skip = MOST - n;
        arrays x = {all.u + skip,     all.v + skip,     all.w + skip,   all.g + skip,
                    all.value + skip, all.index + skip, all.half + skip};
        problem p = {.n = n, .a = 1, .m = 0, .threshold = 0};
        for (int level = 0; level < TW_ISA_LEVELS; level++)
            for (int r = 0; r < ROWS && tw_kernels_at((tw_isa_level)level); r++)
                rows[r].run(tw_kernels_at((tw_isa_level)level), &p, &x);
    }
}

TEST(all_finite_sees_one_bad_element)
{
    static const uint32_t bad[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF};
    float x[MOST];
    for (size_t i = 0; i < MOST; i++) x[i] = i % 2 ? FLT_MAX : -0x1p-149f;
    for (int level = 0; level < TW_ISA_LEVELS; level++) {
        const tw_kernels *kernels = tw_kernels_at((tw_isa_level)level);
        if (!kernels) continue;
        for (size_t n = 0; n < MOST; n++) {
            x[n] = tw_bits_float(bad[n % 5]);
            assert_int_equal(kernels->all_finite(x, n), 1);
            for (size_t longer = n + 1; longer <= MOST; longer++) assert_int_equal(kernels->all_finite(x, longer), 0);
            x[n] = 1;
        }
    }
}

/* In a vector and behind the last whole one. A difference of two finite numbers may be infinite, and NaN is not within
 * any bounds, nor is what is beyond them by a bit. */
TEST(difference_sees_one_bad_element)
{
    static const struct {
        float good[2], bad[2], most;
    } cases[] = {{{FLT_MAX, 1}, {FLT_MAX, -FLT_MAX}, FLT_MAX},
                 {{1, -1}, {0x1.000002p1f, 0}, 2},
                 {{-1, 1}, {0, 0x1.000002p1f}, 2},
                 {{INFINITY, 1}, {1, NAN}, INFINITY}};
    float a[MOST], b[MOST], dst[MOST];
    for (int level = 0; level < TW_ISA_LEVELS; level++) {
        const tw_kernels *kernels = tw_kernels_at((tw_isa_level)level);
        for (size_t c = 0; kernels && c < sizeof cases / sizeof *cases; c++) {
            const float *good = cases[c].good, *bad = cases[c].bad, most = cases[c].most;
            for (size_t i = 0; i < MOST; i++) a[i] = good[0], b[i] = good[1];
            for (size_t n = 0; n < MOST; n++) {
                a[n] = bad[0], b[n] = bad[1];
                assert_int_equal(kernels->averaging->difference(dst, a, b, n, most, 0), 1);
                for (size_t longer = n + 1; longer <= MOST; longer++)
                    assert_int_equal(kernels->averaging->difference(dst, a, b, longer, most, longer % 2), 0);
                a[n] = good[0], b[n] = good[1];
            }
        }
    }
}

/* From the limit on, whatever the sign; NaN is nowhere below. */
TEST(all_below_sees_one_that_is_not)
{
    static const float limits[] = {0x1p-149f, 0x1p-126f, 1e24F, FLT_MAX, INFINITY};
    float x[MOST];
    for (int level = 0; level < TW_ISA_LEVELS; level++) {
        const tw_kernels *kernels = tw_kernels_at((tw_isa_level)level);
        for (size_t n = 0; kernels && n < MOST; n++) {
            float limit = limits[n % 5], below = tw_bits_float(tw_float_bits(limit) - 1);
            const float others[] = {limit, -limit, INFINITY, -INFINITY, NAN, tw_bits_float(0xFFFFFFFF)};
            for (size_t i = 0; i < MOST; i++) x[i] = i % 2 ? below : -below;
            assert_int_equal(kernels->all_below(x, MOST, limit), 1);
            for (size_t bad = 0; bad < sizeof others / sizeof *others; bad++) {
                x[n] = others[bad];
                assert_int_equal(kernels->all_below(x, n, limit), 1);
                assert_int_equal(kernels->all_below(x, n + 1, limit), 0);
                assert_int_equal(kernels->all_below(x, MOST, limit), 0);
            }
        }
    }
}

TEST(best_is_the_level_asked_for)
{
    assert_ptr_equal(tw_kernels_best(), tw_kernels_at(tw_isa_best()));
    for (int level = 0; level < TW_ISA_LEVELS; level++)
        assert_int_equal(tw_kernels_at((tw_isa_level)level) != NULL, tw_isa_supported((tw_isa_level)level));
}

static void assert_complete(const void *table, size_t size, tw_isa_level level)
{
    static const char missing[sizeof(void (*)(void))];
    for (size_t at = 0; at < size; at += sizeof missing)
        if (memcmp((const char *)table + at, missing, sizeof missing) == 0)
            fail_msg("%s: a table of %zu bytes has no row at byte %zu", tw_isa_name(level), size, at);
}

/* The tables of this build, also those of levels that this processor lacks: they are data. */
TEST(every_level_has_every_row)
{
    _Static_assert(sizeof(tw_kernels) - offsetof(tw_kernels, averaging) == 10 * sizeof(void *),
                   "a new family of rows is to be looked at below");
    for (int i = 0; i < TW_ISA_LEVELS; i++) {
        const tw_kernels *table = tw_kernels_tables[i];
        tw_isa_level level = (tw_isa_level)i;
        if (!table) continue;
        assert_complete(table, sizeof *table, level);
        assert_complete(table->averaging, sizeof *table->averaging, level);
        assert_complete(table->moments, sizeof *table->moments, level);
        assert_complete(table->chunks, sizeof *table->chunks, level);
        assert_complete(table->descent, sizeof *table->descent, level);
        assert_complete(table->directions, sizeof *table->directions, level);
        assert_complete(table->quantise, sizeof *table->quantise, level);
        assert_complete(table->lowrank, sizeof *table->lowrank, level);
        assert_complete(table->rounded, sizeof *table->rounded, level);
        assert_complete(table->fp16, sizeof *table->fp16, level);
        assert_complete(table->bf16, sizeof *table->bf16, level);
    }
}

RUN_TESTS(NULL, NULL)
