/* The layers over packed rows, each against a second implementation, slow and in double, and its gradients against
 * differences of that. Lengths of 1, 2 and 17 are in every batch. */
#include "activation.h"
#include "attention.h"
#include "depthwise.h"
#include "grouped_attention.h"
#include "layer_norm.h"
#include "rms_norm.h"
#include "rotary.h"
#include "subsampling.h"

#include "support/assert.h"
#include "support/random.h"

enum { WIDTH = 12, HEADS = 3, KERNEL = 5, BINS = 5, INPUTS = 2, CHANNELS = 3 };

static const size_t firsts[] = {0, 1, 3, 20};
static const nn_rows rows = {3, firsts};
enum { ROWS = 20, LONGEST = 17 };

/* ---- a layer, and what it should compute ---- */

typedef struct subject subject;

struct subject {
    nn_table table;
    size_t inputs, outputs; /* of all rows */
    void (*expect)(const subject *s, const double *values, const double *x, double *y);
    void (*forward)(subject *s, const float *values, const float *x, float *y);
    void (*backward)(subject *s, const float *values, const float *x, const float *dy, float *gradients, float *dx);
    nn_rows rows;
    int relative, swish;
    nn_engine *engine;
    nn_layer_norm norm;
    nn_rms_norm rms_norm;
    nn_grouped_attention grouped;
    nn_turned turned;
    size_t steps, batch;
    nn_depthwise depthwise;
    nn_attention attention;
    nn_subsampling subsampling;
    float moments[2 * ROWS];
    size_t halved[4];
    float *y;
};

static double *as_double(const float *values, size_t count)
{
    double *copy = malloc((count + 1) * sizeof *copy);
    assert_non_null(copy);
    for (size_t i = 0; i < count; i++) copy[i] = values[i];
    return copy;
}

static double weighted(const subject *s, const double *values, const double *x, const double *weights)
{
    double *y = calloc(s->outputs, sizeof *y), sum = 0.0;
    s->expect(s, values, x, y);
    for (size_t i = 0; i < s->outputs; i++) sum += weights[i] * y[i];
    free(y);
    return sum;
}

/* One coordinate after the other of `moved`, which is values or x. */
static void check_differences(const subject *s, const double *values, const double *x, double *moved, size_t count,
                              const double *weights, const float *gradient, const char *what)
{
    const double step = 1e-5;
    double largest = 0.0;
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)gradient[i]));
    for (size_t i = 0; i < count; i++) {
        const double old = moved[i];
        moved[i] = old + step;
        const double above = weighted(s, values, x, weights);
        moved[i] = old - step;
        const double expected = (above - weighted(s, values, x, weights)) / (2.0 * step);
        moved[i] = old;
        if (!(fabs(gradient[i] - expected) <= 2e-5 * fmax(1.0, largest)))
            fail_msg("gradient of %s %zu: %.9g, by differences %.9g", what, i, (double)gradient[i], expected);
    }
}

static void check_forward(subject *s, const float *values, const float *x, float *y)
{
    double *wide_values = as_double(values, s->table.elements), *wide_x = as_double(x, s->inputs);
    double *expected = calloc(s->outputs, sizeof *expected);
    s->forward(s, values, x, y);
    s->expect(s, wide_values, wide_x, expected);
    for (size_t i = 0; i < s->outputs; i++) assert_near((double)y[i], expected[i], 1e-5 * (1.0 + fabs(expected[i])));
    free(wide_values);
    free(wide_x);
    free(expected);
}

static void check(subject *s)
{
    float *values = random_floats(1, s->table.elements), *x = random_floats(2, s->inputs);
    float *weights = random_floats(3, s->outputs), *dy = random_floats(3, s->outputs);
    float *gradients = random_floats(4, s->table.elements), *dx = calloc(s->inputs, sizeof *dx);
    double *wide_values = as_double(values, s->table.elements), *wide_x = as_double(x, s->inputs);
    double *wide_weights = as_double(weights, s->outputs);
    s->y = calloc(s->outputs, sizeof *s->y);
    check_forward(s, values, x, s->y);
    s->backward(s, values, x, dy, gradients, dx);
    check_differences(s, wide_values, wide_x, wide_values, s->table.elements, wide_weights, gradients, "parameter");
    check_differences(s, wide_values, wide_x, wide_x, s->inputs, wide_weights, dx, "input");
    void *const all[] = {values, x, weights, dy, gradients, dx, wide_values, wide_x, wide_weights, s->y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    nn_table_free(&s->table);
}

#define COMPUTES(name) .expect = name##_expect, .forward = name##_forward, .backward = name##_backward

/* ---- layer norm ---- */

static void norm_expect(const subject *s, const double *values, const double *x, double *y)
{
    for (size_t r = 0; r < ROWS; r++, x += WIDTH, y += WIDTH) {
        double mean = 0.0, variance = 0.0;
        for (size_t i = 0; i < WIDTH; i++) mean += x[i] / WIDTH;
        for (size_t i = 0; i < WIDTH; i++) variance += (x[i] - mean) * (x[i] - mean) / WIDTH;
        for (size_t i = 0; i < WIDTH; i++)
            y[i] = (x[i] - mean) / sqrt(variance + 1e-5) * values[s->norm.weight + i] + values[s->norm.bias + i];
    }
}

static void norm_forward(subject *s, const float *values, const float *x, float *y)
{
    nn_layer_norm_forward(&s->norm, values, ROWS, x, y, s->moments);
}

/* A branch begins with a norm, so its gradient joins what has come along the other. */
static void norm_backward(subject *s, const float *values, const float *x, const float *dy, float *gradients, float *dx)
{
    for (size_t i = 0; i < s->inputs; i++) dx[i] = 8.0f;
    nn_layer_norm_backward(&s->norm, values, ROWS, x, s->moments, dy, gradients, dx);
    for (size_t i = 0; i < s->inputs; i++) dx[i] -= 8.0f;
}

TEST(test_layer_norm)
{
    subject s = {.inputs = ROWS * WIDTH, .outputs = ROWS * WIDTH, COMPUTES(norm)};
    assert_ok(nn_layer_norm_declare("norm", WIDTH, &s.table, &s.norm));
    check(&s);
}

/* ---- root mean square norm ---- */

static void rms_expect(const subject *s, const double *values, const double *x, double *y)
{
    for (size_t r = 0; r < ROWS; r++, x += WIDTH, y += WIDTH) {
        double square = 1e-5;
        for (size_t i = 0; i < WIDTH; i++) square += x[i] * x[i] / WIDTH;
        for (size_t i = 0; i < WIDTH; i++) y[i] = x[i] / sqrt(square) * values[s->rms_norm.weight + i];
    }
}

static void rms_forward(subject *s, const float *values, const float *x, float *y)
{
    nn_rms_norm_forward(&s->rms_norm, values, ROWS, x, y, s->moments);
}

/* Likewise. */
static void rms_backward(subject *s, const float *values, const float *x, const float *dy, float *gradients, float *dx)
{
    for (size_t i = 0; i < s->inputs; i++) dx[i] = 8.0f;
    nn_rms_norm_backward(&s->rms_norm, values, ROWS, x, s->moments, dy, gradients, dx);
    for (size_t i = 0; i < s->inputs; i++) dx[i] -= 8.0f;
}

TEST(test_rms_norm)
{
    subject s = {.inputs = ROWS * WIDTH, .outputs = ROWS * WIDTH, COMPUTES(rms)};
    assert_ok(nn_rms_norm_declare("norm", WIDTH, NN_RMS_EPSILON, &s.table, &s.rms_norm));
    assert_int_equal(s.table.elements, WIDTH);
    check(&s);
}

/* Heads of a row by themselves, and what stands behind them stays. */
static const nn_rms_heads both_heads = {ROWS, 2, WIDTH};
enum { HEAD = 5 };

static void heads_expect(const subject *s, const double *values, const double *x, double *y)
{
    memcpy(y, x, s->inputs * sizeof *x);
    for (size_t h = 0; h < 2 * ROWS; h++) {
        const size_t at = h / 2 * WIDTH + h % 2 * HEAD;
        double square = 1e-5;
        for (size_t i = 0; i < HEAD; i++) square += x[at + i] * x[at + i] / HEAD;
        for (size_t i = 0; i < HEAD; i++) y[at + i] = x[at + i] / sqrt(square) * values[s->rms_norm.weight + i];
    }
}

static void heads_forward(subject *s, const float *values, const float *x, float *y)
{
    memcpy(y, x, s->inputs * sizeof *x);
    nn_rms_norm_forward_heads(&s->rms_norm, values, &both_heads, x, y, s->moments);
}

static void heads_backward(subject *s, const float *values, const float *x, const float *dy, float *gradients,
                           float *dx)
{
    memcpy(dx, dy, s->inputs * sizeof *dx);
    nn_rms_norm_backward_heads(&s->rms_norm, values, &both_heads, x, s->moments, gradients, dx);
}

TEST(test_rms_norm_of_heads)
{
    subject s = {.inputs = ROWS * WIDTH, .outputs = ROWS * WIDTH, COMPUTES(heads)};
    assert_ok(nn_rms_norm_declare("norm", HEAD, NN_RMS_EPSILON, &s.table, &s.rms_norm));
    check(&s);
}

/* ---- activations ---- */

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static void swish_expect(const subject *s, const double *values, const double *x, double *y)
{
    (void)values;
    for (size_t i = 0; i < s->inputs; i++) y[i] = x[i] * sigmoid(x[i]);
}

static void swish_forward(subject *s, const float *values, const float *x, float *y)
{
    (void)values;
    nn_swish_forward(x, s->inputs, y);
}

static void swish_backward(subject *s, const float *values, const float *x, const float *dy, float *gradients,
                           float *dx)
{
    (void)values, (void)gradients;
    memcpy(dx, dy, s->inputs * sizeof *dx);
    nn_swish_backward(x, s->inputs, dx);
}

TEST(test_swish)
{
    subject s = {.inputs = 67, .outputs = 67, COMPUTES(swish)};
    check(&s);
}

/* Half of a row opens or shuts the other: by its sigmoid, or by itself times that. */
static void gated_expect(const subject *s, const double *values, const double *x, double *y)
{
    (void)values;
    for (size_t r = 0; r < ROWS; r++, x += 2 * WIDTH, y += WIDTH)
        for (size_t i = 0; i < WIDTH; i++)
            y[i] = x[i] * (s->swish ? sigmoid(x[i]) * x[WIDTH + i] : sigmoid(x[WIDTH + i]));
}

static void gated_forward(subject *s, const float *values, const float *x, float *y)
{
    (void)values;
    (s->swish ? nn_swiglu_forward : nn_glu_forward)(x, ROWS, WIDTH, y);
}

static void gated_backward(subject *s, const float *values, const float *x, const float *dy, float *gradients,
                           float *dx)
{
    (void)values, (void)gradients;
    (s->swish ? nn_swiglu_backward : nn_glu_backward)(x, dy, ROWS, WIDTH, dx);
}

TEST(test_glu_and_swiglu)
{
    for (int swish = 0; swish < 2; swish++) {
        subject s = {.inputs = 2 * ROWS * WIDTH, .outputs = ROWS * WIDTH, COMPUTES(gated), .swish = swish};
        check(&s);
    }
}

/* ---- depthwise convolution ---- */

static void depthwise_expect(const subject *s, const double *values, const double *x, double *y)
{
    for (size_t u = 0; u < rows.count; u++)
        for (size_t t = firsts[u]; t < firsts[u + 1]; t++)
            for (size_t c = 0; c < WIDTH; c++) {
                double sum = values[s->depthwise.bias + c];
                for (size_t k = 0; k < KERNEL; k++)
                    if (t + k >= firsts[u] + KERNEL / 2 && t + k < firsts[u + 1] + KERNEL / 2)
                        sum += values[s->depthwise.weight + c * KERNEL + k] * x[(t + k - KERNEL / 2) * WIDTH + c];
                y[t * WIDTH + c] = sum;
            }
}

static void depthwise_forward(subject *s, const float *values, const float *x, float *y)
{
    assert_ok(nn_depthwise_forward(&s->depthwise, values, &rows, x, y));
}

static void depthwise_backward(subject *s, const float *values, const float *x, const float *dy, float *gradients,
                               float *dx)
{
    assert_ok(nn_depthwise_backward(&s->depthwise, values, &rows, x, dy, gradients, dx));
}

TEST(test_depthwise)
{
    subject s = {.inputs = ROWS * WIDTH, .outputs = ROWS * WIDTH, COMPUTES(depthwise)};
    assert_ok(nn_depthwise_declare("conv", WIDTH, KERNEL, &s.table, &s.depthwise));
    check(&s);
    nn_depthwise_free(&s.depthwise);
}

/* ---- attention ---- */

/* r[m][c], by the sum over the sinusoids of m. */
static double position(const subject *s, const double *values, double m, size_t c)
{
    double sum = 0.0;
    for (size_t i = 0; i < WIDTH; i++) {
        const double angle = m * pow(10000.0, -(double)(i / 2 * 2) / WIDTH);
        sum += values[s->attention.position_weight + c * WIDTH + i] * (i % 2 ? cos(angle) : sin(angle));
    }
    return sum;
}

static double score(const subject *s, const double *values, const double *x, const double r[2 * LONGEST][WIDTH],
                    size_t i, size_t j, size_t head)
{
    double sum = 0.0;
    for (size_t c = head * (WIDTH / HEADS); c < (head + 1) * (WIDTH / HEADS); c++) {
        const double q = x[i * 3 * WIDTH + c], k = x[j * 3 * WIDTH + WIDTH + c];
        const double u = s->relative ? values[s->attention.bias_u + c] : 0.0;
        sum += (q + u) * k;
        if (s->relative) sum += (q + values[s->attention.bias_v + c]) * r[LONGEST + i - j][c];
    }
    return sum / sqrt(WIDTH / HEADS);
}

static void attend(const subject *s, const double *values, const double *x, const double r[2 * LONGEST][WIDTH],
                   size_t u, size_t i, size_t head, double *y)
{
    double weights[LONGEST], total = 0.0;
    for (size_t j = firsts[u]; j < firsts[u + 1]; j++)
        total += weights[j - firsts[u]] = exp(score(s, values, x, r, i, j, head));
    for (size_t c = head * (WIDTH / HEADS); c < (head + 1) * (WIDTH / HEADS); c++) {
        y[i * WIDTH + c] = 0.0;
        for (size_t j = firsts[u]; j < firsts[u + 1]; j++)
            y[i * WIDTH + c] += weights[j - firsts[u]] / total * x[j * 3 * WIDTH + 2 * WIDTH + c];
    }
}

static void attention_expect(const subject *s, const double *values, const double *x, double *y)
{
    double r[2 * LONGEST][WIDTH];
    for (size_t m = 0; m < 2 * LONGEST && s->relative; m++)
        for (size_t c = 0; c < WIDTH; c++) r[m][c] = position(s, values, (double)m - LONGEST, c);
    for (size_t u = 0; u < rows.count; u++)
        for (size_t i = firsts[u]; i < firsts[u + 1]; i++)
            for (size_t head = 0; head < HEADS; head++) attend(s, values, x, (const double(*)[WIDTH])r, u, i, head, y);
}

static void attention_forward(subject *s, const float *values, const float *x, float *y)
{
    assert_ok(nn_attention_forward(&s->attention, values, &rows, x, y));
}

static void attention_backward(subject *s, const float *values, const float *x, const float *dy, float *gradients,
                               float *dx)
{
    assert_ok(nn_attention_backward(&s->attention, values, &rows, x, dy, gradients, dx));
}

static void check_attention(int relative)
{
    subject s = {.inputs = 3 * ROWS * WIDTH, .outputs = ROWS * WIDTH, COMPUTES(attention), .relative = relative};
    assert_ok(nn_engine_create(NN_FP32, &s.engine));
    assert_ok(nn_attention_declare("attention", WIDTH, HEADS, relative, s.engine, &s.table, &s.attention));
    assert_int_equal(s.table.elements, relative ? WIDTH * WIDTH + 2 * WIDTH : 0);
    check(&s);
    nn_attention_free(&s.attention);
    nn_engine_destroy(s.engine);
}

TEST(test_attention)
{
    check_attention(0);
}

TEST(test_relative_attention)
{
    check_attention(1);
}

/* ---- grouped attention ---- */

static double grouped_score(const subject *s, const double *x, size_t i, size_t j, size_t sequence, size_t head)
{
    const nn_grouped_attention *a = &s->grouped;
    const size_t row = (a->heads + 2 * a->kv_heads) * a->width, group = a->heads / a->kv_heads;
    const double *q = x + (i * s->batch + sequence) * row + head * a->width;
    const double *k = x + (j * s->batch + sequence) * row + (a->heads + head / group) * a->width;
    double sum = 0.0;
    for (size_t c = 0; c < a->width; c++) sum += q[c] * k[c];
    return exp(sum / sqrt((double)a->width));
}

static void grouped_row(const subject *s, const double *x, size_t i, size_t sequence, size_t head, double *y)
{
    const nn_grouped_attention *a = &s->grouped;
    const size_t row = (a->heads + 2 * a->kv_heads) * a->width, group = a->heads / a->kv_heads;
    double total = 0.0;
    for (size_t c = 0; c < a->width; c++) y[c] = 0.0;
    for (size_t j = 0; j <= i; j++) {
        const double *v = x + (j * s->batch + sequence) * row + (a->heads + a->kv_heads + head / group) * a->width;
        const double score = grouped_score(s, x, i, j, sequence, head);
        total += score;
        for (size_t c = 0; c < a->width; c++) y[c] += score * v[c];
    }
    for (size_t c = 0; c < a->width; c++) y[c] /= total;
}

static void grouped_expect(const subject *s, const double *values, const double *x, double *y)
{
    (void)values;
    for (size_t i = 0; i < s->steps; i++)
        for (size_t sequence = 0; sequence < s->batch; sequence++)
            for (size_t head = 0; head < s->grouped.heads; head++, y += s->grouped.width)
                grouped_row(s, x, i, sequence, head, y);
}

static void grouped_forward(subject *s, const float *values, const float *x, float *y)
{
    (void)values;
    assert_ok(nn_grouped_attention_forward(&s->grouped, s->steps, s->batch, x, y));
}

static void grouped_backward(subject *s, const float *values, const float *x, const float *dy, float *gradients,
                             float *dx)
{
    (void)values, (void)gradients;
    assert_ok(nn_grouped_attention_backward(&s->grouped, s->steps, s->batch, x, dy, dx));
}

static void check_grouped(nn_grouped_attention layer, size_t steps, size_t batch)
{
    subject s = {.inputs = steps * batch * nn_grouped_attention_row(&layer),
                 .outputs = steps * batch * layer.heads * layer.width,
                 COMPUTES(grouped),
                 .grouped = layer,
                 .steps = steps,
                 .batch = batch};
    check(&s);
    nn_grouped_attention_free(&s.grouped);
}

TEST(test_grouped_attention)
{
    check_grouped((nn_grouped_attention){.heads = 4, .kv_heads = 2, .width = 6}, 5, 3);
    check_grouped((nn_grouped_attention){.heads = 3, .kv_heads = 1, .width = 2}, 4, 1);
    check_grouped((nn_grouped_attention){.heads = 2, .kv_heads = 2, .width = 2}, 67, 1); /* a block, and three rows */
}

/* Whatever pieces a sequence is read in, each row sees what it sees in the whole. */
TEST(test_reading_on_is_reading_at_once)
{
    enum { STEPS = 71, PIECES = 5 };
    static const size_t pieces[PIECES] = {1, 3, 1, 65, 1};
    nn_grouped_attention a = {.heads = 4, .kv_heads = 2, .width = 6};
    const size_t row = nn_grouped_attention_row(&a), kept = 2 * a.kv_heads * a.width, outputs = a.heads * a.width;
    float *qkv = random_floats(5, STEPS * row), *whole = calloc(STEPS, outputs * sizeof(float));
    float *part = calloc(STEPS, outputs * sizeof(float));
    nn_heard heard = {.rows = calloc(STEPS, kept * sizeof(float))};
    assert_ok(nn_grouped_attention_forward(&a, STEPS, 1, qkv, whole));
    for (size_t i = 0, at = 0; i < PIECES; at += pieces[i++])
        assert_ok(nn_grouped_attention_read(&a, pieces[i], qkv + at * row, &heard, part + at * outputs));
    assert_int_equal(heard.count, STEPS);
    for (size_t i = 0; i < STEPS * outputs; i++) assert_near((double)part[i], (double)whole[i], 1e-6);
    nn_grouped_attention_free(&a);
    void *const all[] = {qkv, whole, part, heard.rows};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* ---- rotary positions ---- */

static nn_rotary rotary;

/* By wavelengths, as Llama 3.1's code has it, where the layer counts turns. */
static double speed(size_t i)
{
    const nn_rotary_scaling *s = &rotary.scaling;
    const double plain = pow(10000.0, -(double)i / 3.0), wavelength = 6.283185307179586 / plain;
    if (s->factor == 0.0) return plain;
    if (s->original == 0.0 || wavelength > s->original / s->low) return plain / s->factor;
    if (wavelength < s->original / s->high) return plain;
    const double smooth = (s->original / wavelength - s->low) / (s->high - s->low);
    return (1.0 - smooth) * plain / s->factor + smooth * plain;
}

static void rotary_expect(const subject *s, const double *values, const double *x, double *y)
{
    const nn_turned *t = &s->turned;
    (void)values;
    memcpy(y, x, s->inputs * sizeof *x); /* what stands behind the heads stays */
    for (size_t row = 0; row < t->steps * t->batch; row++)
        for (size_t h = 0; h < t->heads; h++)
            for (size_t i = 0; i < 3; i++) {
                const double angle = (double)(t->first + row / t->batch) * speed(i);
                const size_t at = row * t->stride + 6 * h + i;
                y[at] = x[at] * cos(angle) - x[at + 3] * sin(angle);
                y[at + 3] = x[at + 3] * cos(angle) + x[at] * sin(angle);
            }
}

static void rotary_forward(subject *s, const float *values, const float *x, float *y)
{
    (void)values;
    memcpy(y, x, s->inputs * sizeof *x);
    nn_rotary_forward(&rotary, &s->turned, y);
}

static void rotary_backward(subject *s, const float *values, const float *x, const float *dy, float *gradients,
                            float *dx)
{
    (void)values, (void)gradients, (void)x;
    memcpy(dx, dy, s->inputs * sizeof *dx);
    nn_rotary_back(&rotary, &s->turned, dx);
}

static void check_rotary(nn_rotary_scaling scaling)
{
    rotary = (nn_rotary){.width = 6, .base = NN_ROTARY_BASE, .scaling = scaling};
    subject s = {.inputs = 5 * 3 * 15,
                 .outputs = 5 * 3 * 15,
                 COMPUTES(rotary),
                 .turned = {.first = 7, .steps = 5, .batch = 3, .heads = 2, .stride = 15}};
    assert_ok(nn_rotary_prepare(&rotary, 4)); /* and more when more are wanted */
    assert_ok(nn_rotary_prepare(&rotary, 12));
    check(&s);
    nn_rotary_free(&rotary);
}

TEST(test_rotary)
{
    check_rotary((nn_rotary_scaling){0});
    check_rotary((nn_rotary_scaling){4.0, 0.0, 1.0, 0.0});     /* linear */
    check_rotary((nn_rotary_scaling){8.0, 2.0, 32.0, 1024.0}); /* the first keeps its speed, the third is slower */
    check_rotary((nn_rotary_scaling){8.0, 1.0, 4.0, 8.0});     /* what turns once or twice is in between */
}

/* ---- sub-sampling ---- */

enum { HALF_BINS = (BINS + 1) / 2 };

static double tap(const double *x, size_t u, size_t t, size_t f, size_t i)
{
    const size_t length = firsts[u + 1] - firsts[u];
    if (t == 0 || t > length || f == 0 || f > BINS) return 0.0;
    return x[((firsts[u] + t - 1) * BINS + f - 1) * INPUTS + i];
}

static double convolved(const subject *s, const double *values, const double *x, size_t u, size_t t, size_t f, size_t c)
{
    double sum = values[s->subsampling.bias + c];
    for (size_t i = 0; i < INPUTS; i++)
        for (size_t a = 0; a < 3; a++)
            for (size_t b = 0; b < 3; b++)
                sum += values[s->subsampling.weight + ((c * INPUTS + i) * 3 + a) * 3 + b] *
                       tap(x, u, 2 * t + a, 2 * f + b, i);
    return sum;
}

static void subsampling_expect(const subject *s, const double *values, const double *x, double *y)
{
    for (size_t u = 0; u < rows.count; u++)
        for (size_t t = 0; t < s->halved[u + 1] - s->halved[u]; t++)
            for (size_t f = 0; f < HALF_BINS; f++)
                for (size_t c = 0; c < CHANNELS; c++) *y++ = fmax(0.0, convolved(s, values, x, u, t, f, c));
}

static nn_rows halved_of(const subject *s)
{
    return (nn_rows){3, s->halved};
}

static void subsampling_forward(subject *s, const float *values, const float *x, float *y)
{
    const nn_rows halved = halved_of(s);
    assert_ok(nn_subsampling_forward(&s->subsampling, values, &rows, x, &halved, y));
}

static void subsampling_backward(subject *s, const float *values, const float *x, const float *dy, float *gradients,
                                 float *dx)
{
    const nn_rows halved = halved_of(s);
    float *passed = malloc(s->outputs * sizeof *passed);
    memcpy(passed, dy, s->outputs * sizeof *passed);
    assert_ok(nn_subsampling_backward(&s->subsampling, values, &rows, x, &halved, s->y, passed, gradients, dx));
    free(passed);
}

TEST(test_subsampling)
{
    subject s = {.inputs = (size_t)ROWS * BINS * INPUTS,
                 .outputs = (size_t)11 * HALF_BINS * CHANNELS,
                 COMPUTES(subsampling),
                 .halved = {0, 1, 2, 11}};
    assert_ok(nn_engine_create(NN_FP32, &s.engine));
    assert_ok(nn_subsampling_declare("conv", BINS, INPUTS, CHANNELS, s.engine, &s.table, &s.subsampling));
    check(&s);
    nn_subsampling_free(&s.subsampling);
    nn_engine_destroy(s.engine);
}

RUN_TESTS(NULL, NULL)
