/* PowerSGD against its identities, against matrices whose singular vectors are known, and against a second
 * implementation in double. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

#include "gradients.h"
#include "memory.h"
#include "scheme.h"
#include "support/cmocka.h"

/* Factors from the first step on. */
#define LOW "powersgd:warmup_steps=0"

enum { TENSORS = 3, RANKS = 8, MOST = 4096 /* elements of the largest tensor here */ };

/* A matrix, a bias, and a convolution: 12 x 35. */
static const tw_tensor table[TENSORS] = {
    {"a.weight", 2, {40, 23}}, {"a.bias", 1, {17}}, {"b.weight", 4, {12, 5, 7, 1}}};

/* One group of ranks and their gradients. */
typedef struct world {
    loopback group;
    gradients g;
    int skipped;
} world;

static world create_of(const char *spec, const tw_tensor *tensors, size_t count, int size)
{
    world w;
    group_create(&w.group, &w.g, spec, tensors, count, size);
    return w;
}

static world create(const char *spec, int size)
{
    return create_of(spec, table, TENSORS, size);
}

static void destroy(world *w)
{
    group_destroy(&w->group, &w->g);
}

static void step(world *w)
{
    w->skipped = group_step(&w->group, &w->g);
}

/* A different number in (-1, 1) for every step, rank, tensor and element. */
static float draw(int at_step, int rank, size_t tensor, size_t i)
{
    uint32_t words[4];
    tw_random(3, (uint64_t)(at_step * 64 + rank), tensor << 32 | i, words);
    return (float)((int32_t)words[0] * 0x1p-31);
}

static void fill(world *w, int at_step)
{
    for (int r = 0; r < w->g.ranks; r++)
        for (size_t t = 0; t < w->g.tensors; t++)
            for (size_t i = 0; i < tw_tensor_count(&w->g.table[t]); i++) w->g.rank[r][t][i] = draw(at_step, r, t, i);
}

static void run(world *w, int first, int end)
{
    for (int s = first; s < end; s++) {
        fill(w, s);
        step(w);
    }
}

/* ---- matrices whose singular vectors are known: the cosine transform's ---- */

static double cosine(size_t k, size_t i, size_t n)
{
    return sqrt((k ? 2.0 : 1.0) / (double)n) * cos(acos(-1.0) * (double)k * ((double)i + 0.5) / (double)n);
}

/* The sum over k < terms of 2^-k * u_k * v_k'. */
static void fill_terms(float *matrix, size_t rows, size_t columns, size_t terms)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) {
            double sum = 0;
            for (size_t k = 0; k < terms; k++) sum += ldexp(1, -(int)k) * cosine(k, i, rows) * cosine(k, j, columns);
            matrix[i * columns + j] = (float)sum;
        }
}

/* The Frobenius norm of the difference. */
static double distance(const float *x, const float *y, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    return sqrt(sum);
}

static const tw_tensor one_matrix[] = {{"m", 2, {48, 36}}};
enum { ROWS = 48, COLUMNS = 36, ELEMENTS = ROWS * COLUMNS };

TEST(a_matrix_of_that_rank_is_reproduced)
{
    float expected[ELEMENTS], residual[ELEMENTS];
    world w = create_of(LOW ",rank=3,values=fp32", one_matrix, 1, 2);
    fill_terms(expected, ROWS, COLUMNS, 3);
    for (int r = 0; r < 2; r++) memcpy(w.g.rank[r][0], expected, sizeof expected);
    step(&w);
    assert_true(distance(w.g.rank[0][0], expected, ELEMENTS) < 1e-6);
    assert_true(remembered(w.group.scheme[1], "residual", "m", residual));
    for (size_t i = 0; i < ELEMENTS; i++) assert_true(fabsf(residual[i]) < 1e-6F);
    destroy(&w);
}

/* The full rank's factors outweigh the matrix: it is sent as it is. */
TEST(full_rank_and_thin_shapes_are_exact)
{
    static const tw_tensor tensors[] = {{"square", 2, {16, 16}}, {"row", 2, {1, 300}}, {"column", 2, {300, 1}}};
    world w = create_of(LOW ",rank=200,leftovers=fp32,min_elements=1", tensors, 3, 1);
    fill(&w, 0);
    step(&w);
    for (size_t t = 0; t < 3; t++) {
        assert_int_equal(w.group.scheme[0]->tensors[t].compressed, 0);
        assert_non_null(strstr(w.group.scheme[0]->tensors[t].plan, "dense"));
        for (size_t i = 0; i < tw_tensor_count(&tensors[t]); i++) assert_true(w.g.rank[0][t][i] == draw(0, 0, t, i));
    }
    destroy(&w);
}

/* How far from the best approximation the mean of a constant gradient is after some steps. */
static double distance_from_best(const char *spec, int steps)
{
    float best[ELEMENTS];
    world w = create_of(spec, one_matrix, 1, 2);
    fill_terms(best, ROWS, COLUMNS, 2);
    for (int s = 0; s < steps; s++) {
        for (int r = 0; r < 2; r++) fill_terms(w.g.rank[r][0], ROWS, COLUMNS, 8);
        step(&w);
    }
    double result = distance(w.g.rank[0][0], best, ELEMENTS);
    destroy(&w);
    return result;
}

/* The third singular value is half of the second: each step divides the error by four. */
TEST(a_warm_start_converges_to_the_best_approximation)
{
    double after_three = distance_from_best(LOW ",rank=2,values=fp32,feedback=off", 3);
    double after_six = distance_from_best(LOW ",rank=2,values=fp32,feedback=off", 6);
    assert_true(after_six < after_three / 50);
    assert_true(distance_from_best(LOW ",rank=2,values=fp32,feedback=off", 14) < 2e-6);
}

TEST(without_a_warm_start_it_does_not)
{
    for (int steps = 12; steps < 16; steps++)
        assert_true(distance_from_best(LOW ",rank=2,values=fp32,feedback=off,warm_start=off", steps) > 0.05);
}

/* ---- identities ---- */

/* And of a count of ranks for each matrix. */
TEST(bytes_are_those_of_the_factors)
{
    static const struct {
        const char *spec;
        uint64_t values, bytes;
    } rows[] = {
        {LOW ",rank=3,values=fp32", 3 * (40 + 23) + 3 * (12 + 35), 4 * (3 * (40 + 23) + 3 * (12 + 35) + 2)},
        {LOW ",rank=1,values=bf16", 40 + 23 + 12 + 35, 2 * (40 + 23 + 12 + 35 + 2)},
        {LOW ",rank=9,values=fp32", 9 * (40 + 23), 4 * (9 * (40 + 23) + 1)}, /* 9 * (12 + 35) > 12 * 35 */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        world w = create(rows[i].spec, 2);
        run(&w, 0, 1);
        tw_cost cost = cost_of(w.group.scheme[1]);
        assert_int_equal(cost.elements_sent, rows[i].values);
        assert_int_equal(cost.packet_bytes, rows[i].bytes);
        assert_int_equal(cost.index_bytes, 0);
        destroy(&w);
    }
}

/* Two to some power times the gradient gives as much of the mean: no factor is of the gradient's square. */
TEST(any_magnitude_will_do)
{
    static const int exponents[] = {-100, 100};
    for (size_t e = 0; e < 2; e++) {
        world plain = create(LOW ",values=fp32", 2), scaled = create(LOW ",values=fp32", 2);
        for (int s = 0; s < 4; s++) {
            fill(&plain, s);
            fill(&scaled, s);
            for (int r = 0; r < 2; r++)
                for (size_t i = 0; i < tw_tensor_count(&table[0]); i++)
                    scaled.g.rank[r][0][i] = ldexpf(scaled.g.rank[r][0][i], exponents[e]);
            step(&plain);
            step(&scaled);
            assert_false(scaled.skipped);
            for (size_t i = 0; i < tw_tensor_count(&table[0]); i++)
                assert_true(scaled.g.rank[0][0][i] == ldexpf(plain.g.rank[0][0][i], exponents[e]));
        }
        destroy(&plain);
        destroy(&scaled);
    }
}

TEST(a_zero_gradient_is_zero_and_the_next_is_not)
{
    float expected[ELEMENTS];
    world w = create_of(LOW ",rank=3,values=fp32", one_matrix, 1, 2);
    for (int s = 0; s < 3; s++) {
        for (int r = 0; r < 2; r++) memset(w.g.rank[r][0], 0, sizeof expected);
        step(&w);
        assert_false(w.skipped);
        for (size_t i = 0; i < ELEMENTS; i++) assert_true(w.g.rank[0][0][i] == 0);
    }
    fill_terms(expected, ROWS, COLUMNS, 3);
    for (int r = 0; r < 2; r++) memcpy(w.g.rank[r][0], expected, sizeof expected);
    step(&w);
    assert_true(distance(w.g.rank[0][0], expected, ELEMENTS) < 1e-6);
    destroy(&w);
}

/* ---- a second implementation, in double: M = e + g; P = M*Q; Q = M'*P ---- */

typedef struct naive {
    size_t rows, columns, rank;
    int size;
    double residual[RANKS][MOST], p[MOST], q[MOST];
} naive;

static void naive_orthonormalise(double *x, size_t count, size_t n)
{
    for (size_t k = 0; k < count; k++) {
        double norm = 0;
        for (size_t l = 0; l < k; l++) {
            double common = 0;
            for (size_t i = 0; i < n; i++) common += x[k * n + i] * x[l * n + i];
            for (size_t i = 0; i < n; i++) x[k * n + i] -= common * x[l * n + i];
        }
        for (size_t i = 0; i < n; i++) norm += x[k * n + i] * x[k * n + i];
        for (size_t i = 0; i < n; i++) x[k * n + i] /= sqrt(norm);
    }
}

/* Tensor 2 of the table, with the start that the scheme under test drew. */
static void naive_create(naive *m, const world *w, size_t rank)
{
    float start[MOST];
    *m = (naive){.rows = 12, .columns = 35, .rank = rank, .size = w->group.size};
    assert_true(remembered(w->group.scheme[0], "start", "b.weight", start));
    for (size_t i = 0; i < rank * m->columns; i++) m->q[i] = start[i];
}

static void naive_products(naive *m)
{
    memset(m->p, 0, sizeof m->p);
    for (int r = 0; r < m->size; r++)
        for (size_t k = 0; k < m->rank; k++)
            for (size_t i = 0; i < m->rows; i++)
                for (size_t j = 0; j < m->columns; j++)
                    m->p[k * m->rows + i] += m->residual[r][i * m->columns + j] * m->q[k * m->columns + j];
    naive_orthonormalise(m->p, m->rank, m->rows);
    memset(m->q, 0, sizeof m->q);
    for (int r = 0; r < m->size; r++)
        for (size_t k = 0; k < m->rank; k++)
            for (size_t i = 0; i < m->rows; i++)
                for (size_t j = 0; j < m->columns; j++)
                    m->q[k * m->columns + j] += m->residual[r][i * m->columns + j] * m->p[k * m->rows + i];
}

static void naive_step(naive *m, int at_step, double *mean)
{
    size_t n = m->rows * m->columns;
    for (int r = 0; r < m->size; r++)
        for (size_t i = 0; i < n; i++) m->residual[r][i] += (double)draw(at_step, r, 2, i) / m->size;
    naive_products(m);
    for (size_t i = 0; i < n; i++) {
        mean[i] = 0;
        for (size_t k = 0; k < m->rank; k++)
            mean[i] += m->p[k * m->rows + i / m->columns] * m->q[k * m->columns + i % m->columns];
        for (int r = 0; r < m->size; r++) m->residual[r][i] -= mean[i] / m->size;
    }
}

TEST(a_second_implementation_agrees)
{
    static naive second;
    float residual[12 * 35];
    double mean[12 * 35];
    world w = create(LOW ",rank=3,values=fp32", 3);
    naive_create(&second, &w, 3);
    for (int s = 0; s < 8; s++) {
        run(&w, s, s + 1);
        naive_step(&second, s, mean);
        for (size_t i = 0; i < 12 * 35; i++) assert_true(fabs(w.g.rank[0][2][i] - mean[i]) < 1e-5);
        if (s % 3 != 2) continue; /* else the residual is left to settle by itself */
        for (int r = 0; r < 3; r++) {
            assert_true(remembered(w.group.scheme[r], "residual", "b.weight", residual));
            for (size_t i = 0; i < 12 * 35; i++) assert_true(fabs(residual[i] - second.residual[r][i]) < 1e-5);
        }
    }
    destroy(&w);
}

/* ---- skipped steps and saved state ---- */

/* The next step begins where this one did. */
TEST(a_step_taken_back_leaves_where_to_start)
{
    static float before[MOST], after[MOST];
    world w = create(LOW, 2);
    run(&w, 0, 3);
    assert_true(remembered(w.group.scheme[0], "start", "b.weight", before));
    run(&w, 3, 4);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(tw_scheme_revert(w.group.scheme[r]), TW_OK);
        assert_true(remembered(w.group.scheme[r], "start", "b.weight", after));
        assert_memory_equal(after, before, sizeof after);
    }
    destroy(&w);
}

/* No other round of the message would tell. */
TEST(matrices_alone_are_skipped_too)
{
    world w = create_of(LOW, one_matrix, 1, 2);
    w.g.rank[1][0][7] = NAN;
    step(&w);
    assert_true(w.skipped);
    destroy(&w);
}

/* The ranks' gradients are within bounds, but the sum of what they kept back is not. */
TEST(a_sum_that_overflows_is_skipped)
{
    world w = create_of(LOW ",rank=1,values=fp32", one_matrix, 1, 1);
    w.group.scheme[0]->step = 1;
    float *residual = find(w.group.scheme[0], "residual", "m").data;
    for (size_t i = 0; i < ELEMENTS; i++) residual[i] = 0x1p127F * (i % 2 ? 1 : -1);
    fill(&w, 0);
    step(&w);
    assert_true(w.skipped);
    for (size_t i = 0; i < ELEMENTS; i++) assert_true(isfinite(residual[i]));
    destroy(&w);
}

/* ---- the beginning, in which every element goes out ---- */

enum { BEGINNING = 5, SKIPPED = 1, PARTLY_ABSENT = 2, TAKEN_BACK = 3 };

/* A step of the beginning: of these, one has a NaN, one lacks a tensor on a rank, and one is taken back. */
static void step_of_beginning(world *w, int at_step)
{
    static const unsigned char absent[TENSORS] = {1, 0, 0};
    fill(w, at_step);
    if (at_step == SKIPPED) w->g.rank[1][2][7] = NAN;
    w->group.absent[0] = at_step == PARTLY_ABSENT ? absent : NULL;
    step(w);
    assert_int_equal(w->skipped, at_step == SKIPPED);
    for (int r = 0; at_step == TAKEN_BACK && r < w->g.ranks; r++)
        assert_int_equal(tw_scheme_revert(w->group.scheme[r]), TW_OK);
}

/* Of the matrices: what is not compressed of a skipped step is dropped, as ever. */
static void assert_same_means(const world *w, const world *other)
{
    for (size_t t = 0; t < TENSORS; t += 2)
        assert_memory_equal(w->g.rank[0][t], other->g.rank[0][t], tw_tensor_count(&table[t]) * sizeof(float));
}

/* What the ranks of a scheme without error feedback keep back is nothing. */
static void assert_same_kept(const world *w, const world *other)
{
    for (int r = 0; r < w->g.ranks; r++)
        for (size_t t = 0; t < TENSORS; t += 2) {
            static float kept[MOST], expected[MOST];
            memset(expected, 0, sizeof expected);
            remembered(other->group.scheme[r], "rounding", table[t].name, expected);
            if (!remembered(w->group.scheme[r], "residual", table[t].name, kept)) continue;
            assert_memory_equal(kept, expected, tw_tensor_count(&table[t]) * sizeof(float));
        }
}

/* It is what a scheme of its own does, to the bit, and then the low rank begins with what that has kept back. */
static void check_beginning(const char *options, const char *other)
{
    char spec[128];
    snprintf(spec, sizeof spec, LOW ",%s", options);
    world low = create(spec, 3), whole = create(other, 3);
    snprintf(spec, sizeof spec, "powersgd:warmup_steps=%d,%s", BEGINNING, options);
    world w = create(spec, 3);
    for (int s = 0; s < BEGINNING; s++) {
        step_of_beginning(&w, s);
        step_of_beginning(&whole, s);
        if (s != SKIPPED) assert_same_means(&w, &whole);
        if (s != SKIPPED && s != TAKEN_BACK) assert_true(cost_of(w.group.scheme[0]).warmup);
        assert_same_kept(&w, &whole);
    }
    for (int r = 0; r < 3; r++)
        for (size_t t = 0; t < TENSORS; t += 2) {
            finder kept = find(w.group.scheme[r], "residual", table[t].name);
            if (kept.data) memcpy(find(low.group.scheme[r], "residual", table[t].name).data, kept.data, kept.bytes);
        }
    for (int s = BEGINNING; s < BEGINNING + 3; s++) {
        run(&w, s, s + 1);
        run(&low, s, s + 1);
        assert_same_means(&w, &low);
        assert_false(cost_of(w.group.scheme[0]).warmup);
    }
    destroy(&w);
    destroy(&low);
    destroy(&whole);
}

TEST(the_beginning_is_a_dense_scheme)
{
    check_beginning("values=bf16", "bf16:feedback=on");
    check_beginning("values=fp32", "allreduce");
    check_beginning("feedback=off", "bf16");
}

TEST(the_beginning_is_accounted_for)
{
    const uint64_t elements = 40 * 23 + 12 * 35, factors = 40 + 23 + 12 + 35;
    world half = create("powersgd:rank=1,warmup_steps=2", 2), whole = create("powersgd:values=fp32,warmup_steps=2", 2);
    for (int s = 0; s < 3; s++) {
        run(&half, s, s + 1);
        run(&whole, s, s + 1);
        tw_cost cost = cost_of(half.group.scheme[1]);
        assert_int_equal(cost.warmup, s < 2);
        assert_int_equal(cost.elements_sent, s < 2 ? elements : factors);
        assert_int_equal(cost.packet_bytes, 2 * (s < 2 ? elements : factors + 2));
        assert_int_equal(cost.exact_bytes, 2 * 17);
        if (s < 2) assert_int_equal(cost_of(whole.group.scheme[0]).packet_bytes, 4 * elements);
    }
    destroy(&half);
    destroy(&whole);
}

/* After it the room for every element is given back, and taken again where the beginning comes back with a state. */
TEST(the_beginning_may_be_loaded_again)
{
    world w = create("powersgd:warmup_steps=3", 2), poor = create("powersgd:warmup_steps=3", 2);
    static float expected[3][MOST];
    tw_state *saved[2];
    int skipped;
    run(&w, 0, 2);
    for (int r = 0; r < 2; r++) {
        saved[r] = loopback_save(w.group.scheme[r], "");
        assert_non_null(saved[r]);
    }
    for (int s = 2; s < 5; s++) {
        run(&w, s, s + 1);
        memcpy(expected[s - 2], w.g.rank[0][2], 12 * 35 * sizeof(float));
    }
    run(&poor, 0, 5);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(tw_scheme_load_state(w.group.scheme[r], "", saved[r]), TW_OK);
        assert_int_equal(tw_scheme_load_state(poor.group.scheme[r], "", saved[r]), TW_OK);
        tw_state_destroy(saved[r]);
    }
    for (int s = 2; s < 5; s++) {
        run(&w, s, s + 1);
        assert_memory_equal(w.g.rank[0][2], expected[s - 2], 12 * 35 * sizeof(float));
    }
    fill(&poor, 2);
    tw_fail_allocation(1);
    assert_int_equal(loopback_step(&poor.group, poor.g.rank, -1, NULL, &skipped), TW_ERROR_MEMORY);
    tw_fail_allocation(0);
    destroy(&w);
    destroy(&poor);
}

RUN_TESTS(NULL, NULL)
