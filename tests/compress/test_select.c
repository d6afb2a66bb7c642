/* The exact choice of the k largest, against sorting. */
#include "select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

#include "kernels.h"
#include "support/cmocka.h"

typedef struct ranked {
    float magnitude;
    uint32_t index;
} ranked;

/* Largest magnitude first; among equals the lower index. */
static int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->magnitude != y->magnitude) return x->magnitude > y->magnitude ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int by_index(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static size_t brute_force(const float *v, size_t n, size_t k, float floor, uint32_t *index)
{
    ranked *all = malloc(n * sizeof *all);
    size_t above = 0;
    for (size_t i = 0; i < n; i++)
        if (fabsf(v[i]) > floor) all[above++] = (ranked){fabsf(v[i]), (uint32_t)i};
    qsort(all, above, sizeof *all, by_rank);
    if (k > above) k = above;
    for (size_t i = 0; i < k; i++) index[i] = all[i].index;
    qsort(index, k, sizeof *index, by_index);
    free(all);
    return k;
}

/* A source that counts how often each element is passed. */
typedef struct plain {
    const float *v;
    unsigned char *passed;
} plain;

static size_t pass(void *context, size_t first, size_t n, float threshold, uint32_t *index, float *value)
{
    plain *self = context;
    for (size_t i = first; i < first + n; i++) self->passed[i]++;
    return tw_kernels_best()->select(self->v + first, n, threshold, (uint32_t)first, index, value);
}

static size_t look(void *context, size_t first, size_t n, float threshold, uint32_t *index, float *value)
{
    const plain *self = context;
    return tw_kernels_best()->select(self->v + first, n, threshold, (uint32_t)first, index, value);
}

static void peek(void *context, size_t first, size_t n, float *dst)
{
    memcpy(dst, ((plain *)context)->v + first, n * sizeof *dst);
}

/* Selects with what `hint` knows, if there is one, and peeks if it is to. */
static void check_above(const float *v, size_t n, size_t k, float floor, tw_select_hint *hint, int peeks)
{
    tw_selector selector = {.hint = hint};
    uint32_t *index = malloc(k * sizeof *index), *expected = malloc(k * sizeof *expected);
    float *value = malloc(k * sizeof *value);
    plain context = {v, calloc(n, 1)};
    tw_select_source source = {&context, pass, peeks ? peek : NULL, look};
    assert_int_equal(tw_selector_create(&selector, n, k), TW_OK); /* leaves the hint alone */
    size_t count = tw_select_above(&selector, &source, n, k, floor, index, value);
    assert_int_equal(count, brute_force(v, n, k, floor, expected));
    assert_memory_equal(index, expected, count * sizeof *index);
    for (size_t i = 0; i < count; i++) assert_true(value[i] == v[index[i]]);
    for (size_t i = 0; i < n; i++) assert_int_equal(context.passed[i], 1);
    tw_selector_destroy(&selector);
    free(index);
    free(expected);
    free(value);
    free(context.passed);
}

static float uniform(uint64_t seed, size_t i)
{
    uint32_t words[4];
    tw_random(seed, 0, i, words);
    return (float)words[0] / 4294967296.0f - 0.5f;
}

typedef float (*shape)(size_t i, size_t n);

static float random_shape(size_t i, size_t n)
{
    return uniform(n, i);
}

/* The worst case for streaming: every element beats all before it. */
static float rising(size_t i, size_t n)
{
    return (float)(i + 1) / (float)n;
}

static float falling(size_t i, size_t n)
{
    return -(float)(n - i);
}

static float equal(size_t i, size_t n)
{
    (void)n;
    return i % 2 ? 1.5f : -1.5f;
}

static float zero(size_t i, size_t n)
{
    (void)n;
    return i % 2 ? 0.0f : -0.0f;
}

static float mostly_zero(size_t i, size_t n)
{
    return i % 97 ? 0 : uniform(n, i);
}

static float few_levels(size_t i, size_t n)
{
    return floorf(uniform(n, i) * 8);
}

/* Everything large stands where the samples are not. */
static float clustered(size_t i, size_t n)
{
    return i >= n - n / 50 ? 1 + uniform(n, i) : 1e-6f * uniform(n, i);
}

static float denormal(size_t i, size_t n)
{
    return uniform(n, i) * 1e-38f * 1e-3f;
}

TEST(test_selection_equals_sorting)
{
    static const shape shapes[] = {random_shape, rising,     falling,   equal,   zero,
                                   mostly_zero,  few_levels, clustered, denormal};
    static const size_t sizes[] = {1, 2, 17, 1000, 8192, 8193, 100003, 300000};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t z = 0; z < sizeof sizes / sizeof *sizes; z++) {
            size_t n = sizes[z], counts[] = {1, (n + 999) / 1000, (n + 9) / 10, n / 2 + 1, n};
            float *v = malloc(n * sizeof *v);
            for (size_t i = 0; i < n; i++) v[i] = shapes[s](i, n);
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) check_above(v, n, counts[c], 0, NULL, 1);
            free(v);
        }
}

/* Growing, as residuals do at first, then shrinking faster than any guess, to nothing and back; whatever was learned,
 * the selection is that of sorting. */
TEST(test_hints_change_no_selection)
{
    static const float scales[] = {1, 2, 3, 4, 0.1f, 1e-3f, 0, 5, 3e38f, 3e38f, 1e-40f, 1, 1};
    static const float floors[] = {0, 0.25f, 3};
    enum { N = 30000, STEPS = sizeof scales / sizeof *scales };
    static float v[N];
    for (size_t f = 0; f < sizeof floors / sizeof *floors; f++)
        for (size_t k = 3; k < N; k *= 10)
            for (int peeks = 0; peeks < 2; peeks++) {
                tw_select_hint hint = {0};
                for (size_t step = 0; step < STEPS; step++) {
                    for (size_t i = 0; i < N; i++) v[i] = 2 * scales[step] * uniform(step, i);
                    check_above(v, N, k, floors[f], &hint, peeks);
                }
            }
}

RUN_TESTS(NULL, NULL)
