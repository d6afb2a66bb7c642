/* The rows of lowrank.h: the reference against plain sums in double, every level against the reference, bit for bit. */
#include "support.h"

#include <math.h>

enum { MOST = 300, SHIFTS = 16, COUNTS = 10 /* past two groups of four */, ROWS = 6 /* past one */, GUARD = 64 };

static const uint32_t guard_bits = 0xDEADBEEF;

/* Arrays with something before and behind them that no row may touch. */
typedef struct arrays {
    size_t room;
    float *dst, *x, *added;
    float c[ROWS * COUNTS], products[COUNTS + 1];
} arrays;

/* At the beginning of a cache line. */
static float *guarded(size_t room)
{
    float *block = aligned_alloc(64, (room + 2 * GUARD) / 16 * 64 + 64);
    assert_non_null(block);
    for (size_t i = 0; i < room + 2 * GUARD; i++) block[i] = tw_bits_float(guard_bits);
    return block + GUARD;
}

static arrays create(size_t room)
{
    return (arrays){
        .room = room, .dst = guarded(room * ROWS), .x = guarded(room * COUNTS), .added = guarded(room * ROWS)};
}

static void destroy(arrays *a)
{
    free(a->dst - GUARD);
    free(a->x - GUARD);
    free(a->added - GUARD);
}

static void fill(arrays *a, content kind)
{
    for (size_t i = 0; i < a->room * ROWS; i++) a->dst[i] = tw_bits_float(pattern(kind, i));
    for (size_t i = 0; i < a->room * ROWS; i++) a->added[i] = tw_bits_float(pattern(kind, 15485863 + i));
    for (size_t i = 0; i < a->room * COUNTS; i++) a->x[i] = tw_bits_float(pattern(kind, 7919 + i));
    for (size_t k = 0; k < ROWS * COUNTS; k++) a->c[k] = tw_bits_float(pattern(kind, 104729 + k));
    for (size_t k = 0; k <= COUNTS; k++) a->products[k] = tw_bits_float(guard_bits);
}

static void assert_alike(const float *expected, const float *actual, size_t n, const char *row, size_t asked)
{
    for (size_t i = 0; i < n; i++)
        if (!alike(tw_float_bits(expected[i]), tw_float_bits(actual[i]), 1))
            fail_msg("%s, n = %zu: element %zu is %a, reference %a", row, asked, i, actual[i], expected[i]);
}

/* Another alignment for each row and each vector, or the same for all, which may be written past the cache. */
static tw_combinations sums_of(arrays *a, size_t shift, size_t count, size_t n)
{
    size_t stride = count % 2 ? n + 3 : (n + 15) / 16 * 16;
    return (tw_combinations){.dst = a->dst + shift,
                             .dst_stride = stride,
                             .rows = (n + count) % (ROWS + 1),
                             .x = a->x + shift,
                             .stride = n + 3,
                             .count = count,
                             .c = a->c,
                             .c_row = count % 3 ? 1 : COUNTS,
                             .c_step = count % 3 ? ROWS : 1,
                             .n = n,
                             .added = n % 3 ? a->added + shift : NULL,
                             .factor = 0.75F,
                             .from_zero = n % 5 == 0,
                             .x_is_large = n % 2 == 0,
                             .past_cache = n % 7 < 4};
}

/* Both rows of a level on one problem, beside the reference: of dst's rows, n elements from `shift` on may change. */
static void compare(const tw_lowrank_rows *rows, arrays *reference, arrays *mine, size_t shift, size_t count, size_t n)
{
    size_t stride = n + 3, room = mine->room;
    tw_combinations expected = sums_of(reference, shift, count, n), actual = sums_of(mine, shift, count, n);
    tw_lowrank_scalar.add_combinations(&expected);
    rows->add_combinations(&actual);
    assert_alike(reference->dst - GUARD, mine->dst - GUARD, room * ROWS + 2 * GUARD, "add_combinations", n);
    tw_lowrank_scalar.inner_products(reference->products, reference->dst + shift, reference->x + shift, stride, count,
                                     n);
    rows->inner_products(mine->products, mine->dst + shift, mine->x + shift, stride, count, n);
    assert_alike(reference->products, mine->products, COUNTS + 1, "inner_products", n);
    assert_alike(reference->x - GUARD, mine->x - GUARD, room * COUNTS + 2 * GUARD, "x", n);
    assert_alike(reference->added - GUARD, mine->added - GUARD, room * ROWS + 2 * GUARD, "added", n);
}

TEST(levels_agree)
{
    arrays reference = create(MOST + SHIFTS), mine = create(MOST + SHIFTS);
    for (int level = 0; level < TW_ISA_LEVELS; level++) {
        const tw_kernels *kernels = tw_kernels_at((tw_isa_level)level);
        if (!kernels) continue;
        for (size_t n = 0; n <= MOST; n += stride()) {
            fill(&reference, (content)(n % CONTENTS));
            fill(&mine, (content)(n % CONTENTS));
            for (size_t count = 0; count < COUNTS; count++)
                compare(kernels->lowrank, &reference, &mine, (n + count) % 3 * 7 % SHIFTS, count, n);
        }
    }
    destroy(&reference);
    destroy(&mine);
}

/* Small integers: sums are exact, whatever their order. */
TEST(reference_adds_and_multiplies)
{
    enum { N = 131, COUNT = 7 };
    float dst[N], x[COUNT * N], c[COUNT], products[COUNT];
    for (size_t i = 0; i < N; i++) dst[i] = (float)(i % 11);
    for (size_t i = 0; i < COUNT * N; i++) x[i] = (float)((i * 37) % 23) - 11;
    for (size_t k = 0; k < COUNT; k++) c[k] = (float)k - 2;
    tw_lowrank_scalar.inner_products(products, dst, x, N, COUNT, N);
    for (size_t k = 0; k < COUNT; k++) {
        double sum = 0;
        for (size_t i = 0; i < N; i++) sum += (double)dst[i] * x[k * N + i];
        assert_true(products[k] == sum);
    }
    tw_combinations sums = {
        .dst = dst, .rows = 1, .x = x, .stride = N, .count = COUNT, .c = c, .c_step = 1, .n = N, .added = x + 1};
    sums.factor = 3;
    tw_lowrank_scalar.add_combinations(&sums);
    for (size_t i = 0; i < N; i++) {
        double sum = (double)(i % 11) + 3.0 * x[1 + i];
        for (size_t k = 0; k < COUNT; k++) sum += (double)c[k] * x[k * N + i];
        assert_true(dst[i] == sum);
    }
}

/* Each row has coefficients of its own, wherever these stand; one that begins as zeros is not read. */
TEST(reference_combines_each_row)
{
    enum { N = 5, COUNT = 3, HIGH = 2, APART = 7 };
    float dst[HIGH * APART], x[COUNT * N], c[HIGH * COUNT], turned[COUNT * HIGH];
    for (size_t i = 0; i < COUNT * N; i++) x[i] = (float)(i * 5 % 13) - 6;
    for (size_t i = 0; i < HIGH * COUNT; i++) c[i] = turned[i % COUNT * HIGH + i / COUNT] = (float)i - 3;
    for (int is_turned = 0; is_turned < 2; is_turned++) {
        tw_combinations sums = {.dst = dst,
                                .dst_stride = APART,
                                .rows = HIGH,
                                .x = x,
                                .stride = N,
                                .count = COUNT,
                                .c = is_turned ? turned : c,
                                .c_row = is_turned ? 1 : COUNT,
                                .c_step = is_turned ? HIGH : 1,
                                .n = N,
                                .from_zero = 1};
        for (size_t i = 0; i < HIGH * APART; i++) dst[i] = NAN;
        tw_lowrank_scalar.add_combinations(&sums);
        for (size_t i = 0; i < HIGH * APART; i++) {
            double sum = 0;
            for (size_t k = 0; k < COUNT; k++) sum += (double)c[i / APART * COUNT + k] * x[k * N + i % APART % N];
            assert_true(i % APART < N ? dst[i] == sum : isnan(dst[i]));
        }
    }
}

/* The shape of the partial sums is part of the contract: where rounding shows which numbers met first. */
TEST(reference_folds_sixteen_partial_sums)
{
    float ones[33], x[33] = {0}, product;
    for (size_t i = 0; i < 33; i++) ones[i] = 1;
    x[0] = 0x1p30f;
    x[8] = 1;         /* another partial sum: beside 2^30 it would be lost */
    x[16] = -0x1p30f; /* the same partial sum as x[0]: cancels it first */
    tw_lowrank_scalar.inner_products(&product, ones, x, 33, 1, 33);
    assert_true(product == 1);
    x[16] = 0;
    x[8] = -0x1p30f; /* meets x[0] in the first fold, and x[1] only in the last */
    x[1] = 1;
    tw_lowrank_scalar.inner_products(&product, ones, x, 33, 1, 33);
    assert_true(product == 1);
    x[8] = 0;
    x[3] = -0x1p30f; /* meets x[1] before x[0]: the 1 is lost */
    tw_lowrank_scalar.inner_products(&product, ones, x, 33, 1, 33);
    assert_true(product == 0);
}

RUN_TESTS(NULL, NULL)
