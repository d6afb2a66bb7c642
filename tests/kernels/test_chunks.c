/* The rows of chunks.h: the reference against loops that share nothing with it, every level against the reference. */
#include "support.h"

#include <string.h>

enum { MOST = 300, SHIFTS = 16 };

static const size_t chunks[] = {1, 2, 3, 15, 16, 17, 31, 32, 33, 50, 63, 64, 65, 100, 129, 500};
enum { CHUNKS = sizeof chunks / sizeof *chunks };

/* What a call is given and what it leaves behind. */
typedef struct scene {
    float v[MOST + SHIFTS + 1], g[MOST + SHIFTS + 1], value[MOST + SHIFTS + 1];
    uint32_t index[MOST + SHIFTS + 1];
    double number;
} scene;

typedef void (*row)(const tw_kernels *kernels, const problem *p, size_t chunk, size_t shift, scene *s);

static void accumulate_top(const tw_kernels *kernels, const problem *p, size_t chunk, size_t shift, scene *s)
{
    s->number =
        (double)kernels->chunks->accumulate_top(s->v + shift, s->g + shift, p->n, p->a, p->m, chunk, s->index + shift);
}

static void accumulate_rising(const tw_kernels *kernels, const problem *p, size_t chunk, size_t shift, scene *s)
{
    s->number = 0.25;
    size_t count = kernels->chunks->accumulate_rising(s->v + shift, s->g + shift, p->n, p->a, chunk, FIRST,
                                                      s->index + shift, s->value + shift, &s->number);
    assert_true(count <= p->n);
    memset(s->index + shift + count, 0, (p->n - count) * sizeof *s->index); /* that room is the row's to use */
    memset(s->value + shift + count, 0, (p->n - count) * sizeof *s->value);
    s->index[MOST + SHIFTS] = (uint32_t)count;
}

/* An element of each chunk. */
static size_t choose(size_t begin, size_t n, size_t chunk, uint32_t *index)
{
    size_t count = 0;
    for (size_t first = 0; first < n; first += chunk) {
        size_t length = n - first < chunk ? n - first : chunk;
        index[count++] = (uint32_t)(begin + first + (first * 7 + 3) % length);
    }
    return count;
}

static void spread(const tw_kernels *kernels, const problem *p, size_t chunk, size_t shift, scene *s)
{
    uint32_t index[MOST];
    size_t count = choose(shift, p->n, chunk, index);
    kernels->chunks->spread(s->v, shift, shift + p->n, index, s->g, count);
}

static void fill(scene *s, content kind, size_t n)
{
    memset(s, 0, sizeof *s);
    for (size_t i = 0; i < MOST + SHIFTS + 1; i++) {
        s->v[i] = tw_bits_float(pattern(kind, i + n));
        s->g[i] = tw_bits_float(pattern(kind, i + n + 100000));
        s->value[i] = (float)i;
        s->index[i] = (uint32_t)i;
    }
}

static void assert_alike(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (!alike(tw_float_bits(a[i]), tw_float_bits(b[i]), 1)) fail_msg("%s: element %zu", what, i);
}

static void assert_same_scene(const scene *expected, const scene *actual, const char *what)
{
    assert_same_number(expected->number, actual->number, what);
    assert_alike(expected->v, actual->v, MOST + SHIFTS + 1, what);
    assert_alike(expected->g, actual->g, MOST + SHIFTS + 1, what);
    assert_alike(expected->value, actual->value, MOST + SHIFTS + 1, what);
    if (memcmp(expected->index, actual->index, sizeof expected->index) != 0) fail_msg("%s: indices differ", what);
}

static void check_levels(row run, const problem *p, size_t chunk, size_t shift, const scene *before)
{
    scene expected = *before, actual;
    run(tw_kernels_at(TW_ISA_SCALAR), p, chunk, shift, &expected);
    for (int level = TW_ISA_SCALAR + 1; level < TW_ISA_LEVELS; level++) {
        char what[96];
        const tw_kernels *kernels = tw_kernels_at((tw_isa_level)level);
        if (!kernels) continue;
        snprintf(what, sizeof what, "%s, n = %zu, chunk = %zu, shift = %zu", tw_isa_name((tw_isa_level)level), p->n,
                 chunk, shift);
        actual = *before;
        run(kernels, p, chunk, shift, &actual);
        assert_same_scene(&expected, &actual, what);
    }
}

TEST(levels_agree)
{
    static const row rows[] = {accumulate_top, accumulate_rising, spread};
    scene before;
    for (size_t n = 0; n <= MOST; n += stride())
        for (int kind = 0; kind < CONTENTS; kind++) {
            fill(&before, (content)kind, n);
            for (size_t c = 0; c < CHUNKS; c++) {
                problem p = problems[(n + c) % PROBLEMS];
                p.n = n;
                for (int r = 0; r < 3; r++) check_levels(rows[r], &p, chunks[c], (n * 7 + c) % SHIFTS, &before);
            }
        }
}

/* ---- the reference, by the definitions --------------------------------------------------------------------------- */

static double largest_of(const scene *s, size_t first, size_t end, float b)
{
    double largest = 0;
    for (size_t i = first; i < end; i++) largest = fmax(largest, fabs((double)(s->v[i] + b * s->g[i])));
    return largest;
}

static void check_top(const problem *p, size_t chunk, const scene *before)
{
    scene after = *before, wanted = *before;
    accumulate_top(tw_kernels_at(TW_ISA_SCALAR), p, chunk, 0, &after);
    for (size_t i = 0; i < p->n; i++) wanted.v[i] = before->v[i] + p->a * before->g[i];
    assert_memory_equal(after.v, wanted.v, sizeof after.v);
    for (size_t first = 0, c = 0; first < p->n; first += chunk, c++) {
        size_t end = first + chunk < p->n ? first + chunk : p->n, at = first;
        double largest = largest_of(&wanted, first, end, p->m);
        while (fabs((double)(wanted.v[at] + p->m * before->g[at])) < largest) at++;
        assert_int_equal(after.index[c], at - first);
    }
    assert_true(after.number == largest_of(&wanted, 0, p->n, p->m));
}

static void check_rising(const problem *p, size_t chunk, const scene *before)
{
    scene after = *before, wanted = *before;
    size_t count = 0;
    double sum = 0.25;
    accumulate_rising(tw_kernels_at(TW_ISA_SCALAR), p, chunk, 0, &after);
    for (size_t i = 0; i < p->n; i++) wanted.v[i] = before->v[i] + p->a * before->g[i];
    assert_memory_equal(after.v, wanted.v, sizeof after.v);
    assert_memory_equal(after.g, wanted.g, sizeof after.g);
    for (size_t i = 0; i < p->n; i++) {
        size_t first = i / chunk * chunk, end = first + chunk < p->n ? first + chunk : p->n;
        double largest = largest_of(&wanted, first, end, 0);
        if (i == first) sum += largest;
        if (fabs((double)(wanted.v[i] + p->a * before->g[i])) < largest || wanted.v[i] == 0) continue;
        assert_int_equal(after.index[count], FIRST + i);
        assert_true(after.value[count++] == wanted.v[i]);
    }
    assert_int_equal(after.index[MOST + SHIFTS], count);
    assert_true(after.number == sum);
}

static void check_spread(const problem *p, size_t chunk, const scene *before)
{
    enum { BEGIN = 5 };
    scene after = *before;
    uint32_t index[MOST];
    size_t count = choose(BEGIN, p->n, chunk, index);
    spread(tw_kernels_at(TW_ISA_SCALAR), p, chunk, BEGIN, &after);
    for (size_t i = 0, j = 0; i < MOST + SHIFTS + 1; i++) {
        int is_inside = i >= BEGIN && i < BEGIN + p->n, is_value = j < count && index[j] == i;
        assert_true(after.v[i] == (is_value ? before->g[j] : is_inside ? 0 : before->v[i]));
        j += (size_t)is_value;
    }
}

/* Every third element is one of a few numbers, so that there are ties and zeros. */
TEST(reference_is_what_the_header_says)
{
    scene before;
    for (size_t n = 1; n <= MOST; n += 7) {
        fill(&before, ORDINARY, n);
        for (size_t i = 0; i < n; i += 3) {
            before.v[i] = (float)(i % 5) - 2;
            before.g[i] = i % 2 ? 0.5F : 0;
        }
        for (size_t c = 0; c < CHUNKS; c++) {
            problem p = {.n = n, .a = 0.5F, .m = c % 2 ? 0 : 1.5F};
            check_top(&p, chunks[c], &before);
            check_rising(&p, chunks[c], &before);
            check_spread(&p, chunks[c], &before);
        }
    }
}

static void at_every_level(void (*check)(const tw_kernels *kernels))
{
    for (int level = 0; level < TW_ISA_LEVELS; level++)
        if (tw_kernels_at((tw_isa_level)level)) check(tw_kernels_at((tw_isa_level)level));
}

/* Longer than what a level puts together at a time. */
static void check_long_spread(const tw_kernels *kernels)
{
    enum { N = 20000, BEGIN = 3, END = N - 5 };
    static float dst[N], value[N];
    static uint32_t index[N];
    for (size_t gap = 1; gap < N; gap = 3 * gap + 1) {
        size_t count = 0;
        for (size_t i = BEGIN + gap / 2; i < END; i += 1 + (i * 7 + gap) % (2 * gap)) {
            index[count] = (uint32_t)i;
            value[count++] = (float)(i + 1);
        }
        for (size_t i = 0; i < N; i++) dst[i] = -1;
        kernels->chunks->spread(dst, BEGIN, END, index, value, count);
        for (size_t i = 0, j = 0; i < N; i++) {
            int is_value = j < count && index[j] == i;
            assert_true(dst[i] == (is_value ? (float)(i + 1) : i < BEGIN || i >= END ? -1 : 0));
            j += (size_t)is_value;
        }
    }
}

TEST(long_arrays_are_spread)
{
    at_every_level(check_long_spread);
}

/* ---- corners ----------------------------------------------------------------------------------------------------- */

static void check_zeros(const tw_kernels *kernels)
{
    float v[250] = {0}, g[250] = {0}, value[250];
    uint32_t position[3] = {9, 9, 9}, index[250];
    double largest = 0;
    v[7] = -0.0F;
    assert_true(kernels->chunks->accumulate_top(v, g, 250, 1, 1, 100, position) == 0);
    for (int c = 0; c < 3; c++) assert_int_equal(position[c], 0);
    assert_int_equal(kernels->chunks->accumulate_rising(v, g, 250, 1, 100, 0, index, value, &largest), 0);
    /* the residual that the gradient has just cancelled: v is 0 and v + g is not */
    v[130] = -2;
    g[130] = 2;
    assert_int_equal(kernels->chunks->accumulate_rising(v, g, 250, 1, 100, 0, index, value, &largest), 0);
    assert_true(largest == 0);
}

TEST(zeros_are_never_listed)
{
    at_every_level(check_zeros);
}

/* In the longest chunk, too, each element that is as large as the largest is listed, wherever it stands. */
static void check_longest(const tw_kernels *kernels)
{
    enum { N = TW_RISING_MOST };
    static float v[N], g[N], value[N];
    static uint32_t index[N];
    for (size_t at = 0; at < N; at += 1 + at % 97) {
        double largest = 0;
        size_t other = (at * 5 + 64) % N;
        memset(v, 0, sizeof v);
        for (size_t i = 0; i < N; i++) g[i] = i == at || i == other ? -1.0F : 0.25F;
        size_t count = kernels->chunks->accumulate_rising(v, g, N, 1, N, 0, index, value, &largest);
        assert_int_equal(count, at == other ? 1 : 2);
        assert_int_equal(index[0], at < other ? at : other);
        assert_int_equal(index[count - 1], at < other ? other : at);
        assert_true(largest == 1 && value[0] == -1 && value[count - 1] == -1);
    }
}

TEST(the_longest_chunk_lists_all_that_rises)
{
    at_every_level(check_longest);
}

static void check_ties(const tw_kernels *kernels)
{
    float v[100] = {0}, g[100] = {0};
    for (size_t first = 0; first < 100; first++) {
        uint32_t position;
        for (size_t i = 0; i < 100; i++) v[i] = i < first ? 0.5F : (i % 2 ? -1.0F : 1.0F);
        assert_true(kernels->chunks->accumulate_top(v, g, 100, 1, 0, 100, &position) == 1);
        assert_int_equal(position, first);
    }
}

TEST(the_first_of_equals_wins)
{
    at_every_level(check_ties);
}

static float *edge_v, *edge_g, *edge_value;
static uint32_t *edge_index;

/* Each chunk's last element is its largest, and no other is listed. */
static void check_few(const tw_kernels *kernels, size_t n, size_t chunk)
{
    size_t skip = MOST - n, parts = (n + chunk - 1) / chunk;
    double largest = 0;
    for (size_t i = skip; i < MOST; i++) edge_v[i] = (float)(i + 1);
    assert_int_equal(kernels->chunks->accumulate_rising(edge_v + skip, edge_g + skip, n, 0, chunk, 0, edge_index + skip,
                                                        edge_value + skip, &largest),
                     parts);
}

/* All elements alike and rising: all of them are listed, the lists fill their room. */
static void check_edges(const tw_kernels *kernels)
{
    for (size_t n = 0; n <= MOST; n++)
        for (size_t c = 0; c < CHUNKS; c++) {
            size_t skip = MOST - n, parts = (n + chunks[c] - 1) / chunks[c];
            double largest = 0;
            kernels->chunks->accumulate_top(edge_v + skip, edge_g + skip, n, 0, 1, chunks[c],
                                            edge_index + MOST - parts);
            assert_int_equal(kernels->chunks->accumulate_rising(edge_v + skip, edge_g + skip, n, 0, chunks[c], 0,
                                                                edge_index + skip, edge_value + skip, &largest),
                             n);
            size_t count = choose(0, n, chunks[c], edge_index);
            kernels->chunks->spread(edge_v + skip, 0, n, edge_index, edge_g, count);
            check_few(kernels, n, chunks[c]);
            for (size_t i = skip; i < MOST; i++) edge_v[i] = 1;
        }
}

TEST(rows_stay_within_the_arrays)
{
    edge_v = before_the_edge(MOST, 4);
    edge_g = before_the_edge(MOST, 4);
    edge_value = before_the_edge(MOST, 4);
    edge_index = before_the_edge(MOST, 4);
    for (size_t i = 0; i < MOST; i++) edge_v[i] = 1;
    at_every_level(check_edges);
}

RUN_TESTS(NULL, NULL)
