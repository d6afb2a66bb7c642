/* The optimiser against its recursions worked out in double. SGD's numbers are dyadic, so that both are exact. */
#include "optimiser.h"
#include "muon.h"
#include "support.h"
#include <math.h>

#define STEPS 5

/* A decayed weight and a bias that is not. */
static const tw_tensor tensors[] = {{"weight", 2, {1, 1}}, {"bias", 1, {1}}};
static const float gradients[STEPS][2] = {{1, 2}, {-2, 0.5f}, {0.25f, -1}, {0, 0}, {4, -0.5f}};

/* PyTorch's SGD, one scalar. Directed, the gradient steps plainly, and decay runs through a buffer of its own. */
static double expected_sgd(const optimiser_settings *s, double decay, double rate, int element)
{
    double w = 1, buffer = 0;
    for (int t = 0; t < STEPS; t++) {
        const double plain = s->directed ? gradients[t][element] : 0;
        const double force = gradients[t][element] - plain + decay * w;
        buffer = s->momentum * buffer + force;
        w -= rate * (plain + (s->nesterov ? force + s->momentum * buffer : buffer));
    }
    return w;
}

static void check(optimiser_settings settings)
{
    float w[2] = {1, 1};
    optimiser *o;
    assert_ok(optimiser_create(&settings, tensors, 2, &o));
    for (int t = 0; t < STEPS; t++) optimiser_step(o, 0.5f, gradients[t], w);
    assert_true(w[0] == expected_sgd(&settings, settings.weight_decay, 0.5, 0));
    assert_true(w[1] == expected_sgd(&settings, 0, 0.5, 1));
    optimiser_destroy(o);
}

TEST(every_form_follows_its_recursion)
{
    for (int directed = 0; directed < 2; directed++)
        for (int nesterov = 0; nesterov < 2; nesterov++)
            for (int decayed = 0; decayed < 2; decayed++)
                for (int moved = 0; moved < 2; moved++)
                    check((optimiser_settings){moved ? 0.5f : 0, nesterov, decayed ? 0.5f : 0, directed});
}

/* Each kind with all it can have at once. */
static const optimiser_settings kinds[] = {
    {.momentum = 0.5f, .nesterov = 1, .weight_decay = 0.125f},
    {.momentum = 0.5f, .weight_decay = 0.125f, .directed = 1},
    {.momentum = 0.9f, .weight_decay = 0.1f},
    {.momentum = 0.9f, .weight_decay = 0.1f, .kind = OPTIMISER_ADAM, .beta2 = 0.999f},
    {.momentum = 0.8f, .weight_decay = 0.1f, .kind = OPTIMISER_ADAMW, .beta2 = 0.95f},
    {.momentum = 0.8f, .weight_decay = 0.1f, .kind = OPTIMISER_MUON, .beta2 = 0.95f},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void assert_same_memory(optimiser *a, optimiser *b)
{
    optimiser_buffer one[OPTIMISER_BUFFERS], other[OPTIMISER_BUFFERS];
    size_t count = optimiser_buffers(a, one);
    assert_int_equal(optimiser_buffers(b, other), count);
    for (size_t i = 0; i < count; i++)
        assert_memory_equal(one[i].values, other[i].values, one[i].count * sizeof(float));
}

static void move_memory(optimiser *from, optimiser *to)
{
    optimiser_buffer src[OPTIMISER_BUFFERS], dst[OPTIMISER_BUFFERS];
    size_t count = optimiser_buffers(from, src);
    assert_int_equal(optimiser_buffers(to, dst), count);
    for (size_t i = 0; i < count; i++) memcpy(dst[i].values, src[i].values, dst[i].count * sizeof(float));
}

static void check_memory(optimiser_settings settings)
{
    float through[2] = {1, 1}, moved[2] = {1, 1};
    optimiser *a, *b, *c;
    assert_ok(optimiser_create(&settings, tensors, 2, &a));
    assert_ok(optimiser_create(&settings, tensors, 2, &b));
    assert_ok(optimiser_create(&settings, tensors, 2, &c));
    for (int t = 0; t < STEPS; t++) optimiser_step(a, 0.25f, gradients[t], through);
    for (int t = 0; t < 2; t++) optimiser_step(b, 0.25f, gradients[t], moved);
    move_memory(b, c);
    for (int t = 2; t < STEPS; t++) optimiser_step(c, 0.25f, gradients[t], moved);
    assert_memory_equal(through, moved, sizeof moved);
    assert_same_memory(a, c);
    optimiser_destroy(a);
    optimiser_destroy(b);
    optimiser_destroy(c);
}

TEST(buffers_are_all_it_remembers)
{
    for (size_t i = 0; i < KINDS; i++) check_memory(kinds[i]);
}

TEST(buffers_are_tables_of_tensors)
{
    for (size_t i = 0; i < KINDS; i++) {
        optimiser *o;
        optimiser_buffer buffers[OPTIMISER_BUFFERS];
        assert_ok(optimiser_create(&kinds[i], tensors, 2, &o));
        size_t count = optimiser_buffers(o, buffers);
        assert_int_equal(count, kinds[i].kind == OPTIMISER_SGD ? 1 : 3);
        for (size_t b = 0; b < count; b++) {
            size_t values = 0;
            for (size_t t = 0; t < buffers[b].tensor_count; t++) values += tw_tensor_count(&buffers[b].tensors[t]);
            assert_int_equal(buffers[b].count, values);
        }
        optimiser_destroy(o);
    }
}

/* The gradient that leaves the moments as they are: the same each time for Adam, whose corrected moments are then it
 * and its square; and for SGD what its buffer loses. */
static void steady_gradient(optimiser *o, const optimiser_settings *s, float gradient[2])
{
    optimiser_buffer buffers[OPTIMISER_BUFFERS];
    optimiser_buffers(o, buffers);
    for (size_t i = 0; i < 2; i++)
        gradient[i] = s->kind == OPTIMISER_SGD ? (1 - s->momentum) * buffers[0].values[i] : gradients[0][i];
}

static void check_foresight(optimiser_settings settings, size_t steps)
{
    float w[2] = {1, 1}, later[2], again, gradient[2] = {0};
    optimiser *o;
    assert_ok(optimiser_create(&settings, tensors, 2, &o));
    optimiser_foresee(o, 0.25f, steps, 0, 2, w, later);
    assert_memory_equal(later, w, sizeof w); /* nothing is known yet */
    for (int t = 0; t < 3; t++) optimiser_step(o, 0.25f, gradients[0], w);
    optimiser_foresee(o, 0.25f, 0, 0, 2, w, later);
    assert_memory_equal(later, w, sizeof w);
    optimiser_foresee(o, 0.25f, steps, 0, 2, w, later);
    optimiser_foresee(o, 0.25f, steps, 1, 2, w, &again);
    assert_true(again == later[1]);
    for (size_t t = 0; t < steps; t++) {
        steady_gradient(o, &settings, gradient);
        optimiser_step(o, 0.25f, gradient, w);
    }
    for (size_t i = 0; i < 2; i++) assert_near((double)later[i], (double)w[i], 1e-6);
    optimiser_destroy(o);
}

TEST(what_is_foreseen_comes_with_steady_gradients)
{
    check_foresight((optimiser_settings){.momentum = 0.75f}, 3);
    check_foresight((optimiser_settings){.momentum = 0.9f, .kind = OPTIMISER_ADAM, .beta2 = 0.999f}, 3);
    check_foresight((optimiser_settings){.momentum = 0.8f, .kind = OPTIMISER_ADAMW, .beta2 = 0.95f}, 4);
    /* One step more also decays as the next one does. */
    check_foresight(
        (optimiser_settings){.momentum = 0.8f, .weight_decay = 0.1f, .kind = OPTIMISER_ADAMW, .beta2 = 0.95f}, 1);
}

TEST(without_momentum_nothing_is_foreseen)
{
    float w[2] = {1, 1}, later[2];
    optimiser *o;
    assert_ok(optimiser_create(&(optimiser_settings){0}, tensors, 2, &o));
    optimiser_step(o, 0.25f, gradients[0], w);
    optimiser_foresee(o, 0.25f, 3, 0, 2, w, later);
    assert_memory_equal(later, w, sizeof w);
    optimiser_destroy(o);
}

/* Those of an image network are a filter and what the classes are read from. */
TEST(muon_needs_a_matrix)
{
    const tw_tensor none[] = {{"fc.weight", 2, {4, 4}}, {"conv.weight", 4, {2, 2, 3, 3}}};
    const optimiser_settings settings = {.momentum = 0.95F, .kind = OPTIMISER_MUON};
    optimiser *o;
    assert_int_equal(optimiser_create(&settings, none, 2, &o), TW_ERROR_ARGUMENT);
    assert_non_null(strstr(tw_last_error(), "--optimizer adamw"));
}

/* On a twin, with the step added by hand: the same parameters and the same memory. */
static void check_proposal(optimiser_settings settings)
{
    float taken[2] = {1, 1}, added[2] = {1, 1}, step[2];
    optimiser *a, *b;
    assert_ok(optimiser_create(&settings, tensors, 2, &a));
    assert_ok(optimiser_create(&settings, tensors, 2, &b));
    for (int t = 0; t < STEPS; t++) {
        optimiser_step(a, 0.3f, gradients[t], taken);
        memcpy(step, gradients[t], sizeof step);
        optimiser_propose(b, 0.3f, added, step);
        for (int i = 0; i < 2; i++) added[i] += step[i];
        assert_memory_equal(taken, added, sizeof taken);
        assert_same_memory(a, b);
    }
    optimiser_destroy(a);
    optimiser_destroy(b);
}

TEST(a_proposal_is_the_step_not_taken)
{
    for (int directed = 0; directed < 2; directed++)
        for (int nesterov = 0; nesterov < 2; nesterov++)
            check_proposal((optimiser_settings){0.7f, nesterov, 0.1f, directed});
    for (size_t i = 0; i < KINDS; i++) check_proposal(kinds[i]);
}

/* The papers' algorithms, of one scalar. */
static double expected_adam(const optimiser_settings *s, double decay, double rate, int element)
{
    double w = 1, m = 0, v = 0, beta1 = s->momentum, beta2 = s->beta2;
    for (int t = 1; t <= STEPS; t++) {
        double gradient = gradients[t - 1][element] + (s->kind == OPTIMISER_ADAM ? decay * w : 0);
        m = beta1 * m + (1 - beta1) * gradient;
        v = beta2 * v + (1 - beta2) * gradient * gradient;
        double step =
            m / (1 - pow(beta1, t)) / (sqrt(v / (1 - pow(beta2, t))) + (s->epsilon > 0 ? (double)s->epsilon : 1e-8));
        w -= rate * (step + (s->kind == OPTIMISER_ADAMW ? decay * w : 0));
    }
    return w;
}

TEST(adam_follows_the_papers)
{
    for (optimiser_kind kind = OPTIMISER_ADAM; kind <= OPTIMISER_ADAMW; kind++)
        for (int decayed = 0; decayed < 2; decayed++)
            for (int slow = 0; slow < 2; slow++) {
                optimiser_settings settings = {.momentum = 0.9f,
                                               .weight_decay = decayed ? 0.3f : 0,
                                               .kind = kind,
                                               .beta2 = slow ? 0.999f : 0.5f,
                                               .epsilon = slow ? 0 : 0.25f};
                float w[2] = {1, 1};
                optimiser *o;
                assert_ok(optimiser_create(&settings, tensors, 2, &o));
                for (int t = 0; t < STEPS; t++) optimiser_step(o, 0.125f, gradients[t], w);
                assert_float_equal(w[0], expected_adam(&settings, settings.weight_decay, 0.125, 0), 1e-6);
                assert_float_equal(w[1], expected_adam(&settings, 0, 0.125, 1), 1e-6);
                optimiser_destroy(o);
            }
}

/* It shows beside gradients as small as it is. */
TEST(epsilon_is_the_published_one)
{
    const float w[2] = {1, 1};
    float steps[2] = {0, -3e-8f}; /* the first decays, too */
    optimiser *o;
    assert_ok(optimiser_create(&kinds[3], tensors, 2, &o));
    optimiser_propose(o, 1, w, steps);
    assert_float_equal(steps[1], 0.75, 1e-4);
    optimiser_destroy(o);
}

/* ---- Muon -------------------------------------------------------------------------------------------------------- */

/* What five rounds make of a singular value. */
static double polished(double x)
{
    for (int round = 0; round < 5; round++) x = 3.4445 * x - 4.775 * pow(x, 3) + 2.0315 * pow(x, 5);
    return x;
}

/* Column `column` of a reflection, I - 2 u u', of a unit vector that is different for each size and number. */
static double reflection(size_t size, int number, size_t row, size_t column)
{
    double squares = 0;
    for (size_t i = 0; i < size; i++) squares += pow((double)((i * 7 + (size_t)number) % 11) - 4.5, 2);
    const double u = (double)((row * 7 + (size_t)number) % 11) - 4.5,
                 v = (double)((column * 7 + (size_t)number) % 11) - 4.5;
    return (row == column) - 2 * u * v / squares;
}

/* Singular vectors by hand, and values from 1 down to 0. */
static void check_orthogonal(size_t rows, size_t columns)
{
    const size_t side = rows < columns ? rows : columns;
    const tw_tensor table = {"layers.0.weight", 2, {rows, columns}};
    double norm = 0;
    muon m;
    assert_ok(muon_create(&table, 1, &m));
    for (size_t s = 0; s < side; s++) norm += pow(1 - (double)s / (double)side, 2);
    double *expected = calloc(rows * columns, sizeof *expected);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) {
            double sum = 0;
            for (size_t s = 0; s < side; s++) {
                const double value = 1 - (double)s / (double)side;
                const double vectors = reflection(rows, 3, i, s) * reflection(columns, 5, j, s);
                sum += 37 * value * vectors;
                expected[i * columns + j] += polished(value / sqrt(norm)) * vectors;
            }
            m.matrix[i * columns + j] = (float)sum;
        }
    assert_ok(muon_orthogonalise(&m, rows, columns));
    for (size_t i = 0; i < rows * columns; i++)
        assert_true(fabs((double)m.matrix[i] - expected[i]) < 2e-5); /* rounding, which the rounds enlarge */
    assert_true(polished(1 / sqrt(norm)) > 0.6 && polished(1 / sqrt(norm)) < 1.3);
    free(expected);
    muon_free(&m);
}

TEST(muon_makes_singular_values_one)
{
    check_orthogonal(8, 8);
    check_orthogonal(5, 19);
    check_orthogonal(19, 5);
    check_orthogonal(1, 7);
    check_orthogonal(1, 1);
}

/* A step of a matrix has the length that is published, whatever the gradient's; other tensors have AdamW's. */
TEST(muon_takes_matrices_between_layers)
{
    static const tw_tensor table[] = {{"model.embed_tokens.weight", 2, {2, 1}},
                                      {"model.layers.0.weight", 2, {1, 4}},
                                      {"model.norm.weight", 1, {2}},
                                      {"conv.weight", 4, {1, 1, 1, 2}},
                                      {"lm_head.weight", 2, {2, 1}}};
    const optimiser_settings settings = {.momentum = 0.9f, .kind = OPTIMISER_MUON, .beta2 = 0.99f};
    const double one = 0.2 * sqrt(4) * polished(1) / 2; /* of four alike */
    float w[12] = {0}, first[12];
    optimiser *o;
    for (int i = 0; i < 12; i++) first[i] = 1e3f;
    assert_ok(optimiser_create(&settings, table, 5, &o));
    assert_ok(optimiser_step(o, 0.5f, first, w));
    for (int i = 0; i < 12; i++) assert_float_equal(w[i], -0.5 * (i >= 2 && i < 6 ? one : 1), 1e-5);
    optimiser_destroy(o);
}

/* Twice the gradient is the same matrix, and zeros are none. */
TEST(muon_follows_its_recursion)
{
    static const float steps[][2] = {{1, 0}, {0, 2}, {0, 0}, {-3, 1}};
    const optimiser_settings settings = {
        .momentum = 0.5f, .weight_decay = 0.25f, .kind = OPTIMISER_MUON, .beta2 = 0.99f};
    static const tw_tensor table = {"layers.0.weight", 2, {1, 2}};
    float w[2] = {1, -2};
    double expected[2] = {1, -2}, mean[2] = {0, 0};
    optimiser *o;
    assert_ok(optimiser_create(&settings, &table, 1, &o));
    for (size_t t = 0; t < sizeof steps / sizeof *steps; t++) {
        double x[2];
        for (int i = 0; i < 2; i++) {
            mean[i] = 0.5 * mean[i] + 0.5 * (double)steps[t][i];
            x[i] = 0.5 * (double)steps[t][i] + 0.5 * mean[i];
        }
        const double length = 0.2 * sqrt(2) * polished(1) / hypot(x[0], x[1]);
        for (int i = 0; i < 2; i++) expected[i] -= 0.125 * (length * x[i] + 0.25 * expected[i]);
        assert_ok(optimiser_step(o, 0.125f, steps[t], w));
        for (int i = 0; i < 2; i++) assert_float_equal(w[i], expected[i], 1e-6);
    }
    const float none[2] = {0, 0};
    optimiser *fresh;
    float still[2] = {0, 0};
    assert_ok(optimiser_create(&settings, &table, 1, &fresh));
    assert_ok(optimiser_step(fresh, 0.125f, none, still));
    assert_true(still[0] == 0 && still[1] == 0);
    optimiser_destroy(fresh);
    optimiser_destroy(o);
}

TEST(what_does_not_go_together_is_refused)
{
    static const optimiser_settings adam = {.momentum = 0.9f, .kind = OPTIMISER_ADAM, .beta2 = 0.999f};
    optimiser_settings s = adam;
    assert_ok(optimiser_check(&s, "topk:density=0.01"));
    s.directed = 1;
    assert_fails(optimiser_check(&s, "dgc:density=0.01"), TW_ERROR_ARGUMENT, "--optimizer adam: scheme dgc ");
    assert_fails(optimiser_check(&s, "sdagc"), TW_ERROR_ARGUMENT, "beside adam, --sync powersgd:rank=16, qsgd or fp8");
    s.adapted = 1;
    assert_fails(optimiser_check(&s, "dgc-adam"), TW_ERROR_ARGUMENT, "--optimizer adam: scheme dgc-adam ");
    s.kind = OPTIMISER_ADAMW;
    assert_ok(optimiser_check(&s, "dgc-adam"));
    s.adapted = 0;
    s.kind = OPTIMISER_SGD;
    s.nesterov = 1;
    assert_ok(optimiser_check(&s, "dgc"));
    s = adam;
    s.kind = OPTIMISER_ADAMW;
    s.nesterov = 1;
    assert_fails(optimiser_check(&s, "allreduce"), TW_ERROR_ARGUMENT, "--optimizer adamw");
    s.kind = OPTIMISER_MUON;
    assert_fails(optimiser_check(&s, "allreduce"), TW_ERROR_ARGUMENT, "--optimizer muon");
    s.nesterov = 0;
    s.directed = s.adapted = 1;
    assert_fails(optimiser_check(&s, "dgc-adam"), TW_ERROR_ARGUMENT, "--optimizer muon: scheme dgc-adam ");
}

RUN_TESTS(NULL, NULL)
