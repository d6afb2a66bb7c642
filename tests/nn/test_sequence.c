/* The parts of sequence models beside the LSTM: functions of one number, rows, embedding, dropout. */
#include "support/assert.h"
#include "support/random.h"

#include "affine.h"
#include "dropout.h"
#include "embedding.h"
#include "wide.h"

/* ---- functions of one number ---- */

TEST(functions_are_those_of_the_library)
{
    for (double point = -86.0; point < 86.0; point += 0.0037) {
        float x = (float)point;
        assert_near(nn_exp(x) / exp(x), 1.0, 2e-7);
        assert_near(nn_sigmoid(x) * (1.0 + exp(-(double)x)), 1.0, 4e-7);
        if (x != 0.0f) assert_near(nn_tanh(x) / tanh(x), 1.0, 4e-7);
    }
    for (float x = 1e-30f; x < 1.0f; x *= 1.1f) {
        assert_near(nn_tanh(x) / tanh(x), 1.0, 4e-7);
        assert_true(nn_tanh(-x) == -nn_tanh(x) || fabsf(nn_tanh(-x) / nn_tanh(x) + 1.0f) < 4e-7f);
    }
    assert_true(nn_tanh(0.0f) == 0.0f);
    assert_true(nn_sigmoid(0.0f) == 0.5f);
    assert_true(nn_exp(0.0f) == 1.0f);
}

TEST(functions_end_well)
{
    assert_true(nn_tanh(1e30f) == 1.0f && nn_tanh(-INFINITY) == -1.0f);
    assert_true(nn_sigmoid(INFINITY) == 1.0f && nn_sigmoid(-1e30f) < 1e-37f);
    assert_true(nn_exp(-INFINITY) < 2e-38f && isfinite(nn_exp(INFINITY)));
    assert_true(isnan(nn_tanh(NAN)) && isnan(nn_sigmoid(NAN)) && isnan(nn_exp(NAN)));
}

/* ---- rows ---- */

TEST(affine_and_its_gradients_are_their_definitions)
{
    enum { ROWS = 5, INPUTS = 7, OUTPUTS = 3 };
    enum { BEFORE = 11, WEIGHTS = OUTPUTS * INPUTS, ALL = BEFORE + WEIGHTS + OUTPUTS };
    float *values = random_floats(1, ALL), *gradients = random_floats(2, ALL), *x = random_floats(3, ROWS * INPUTS),
          *dy = random_floats(4, ROWS * OUTPUTS), *y = random_floats(5, ROWS * OUTPUTS),
          *dx = random_floats(6, ROWS * INPUTS), *untouched = random_floats(2, ALL);
    const float *w = values + BEFORE, *b = w + WEIGHTS, *dw = gradients + BEFORE, *db = dw + WEIGHTS;
    nn_table table = {0};
    nn_engine *engine;
    nn_affine affine;
    assert_ok(nn_engine_create(NN_FP32, &engine));
    const nn_affine_options options = {.name = "fc", .inputs = INPUTS, .outputs = OUTPUTS, .engine = engine};
    assert_ok(nn_table_declare(&table, &(nn_declaration){"first", "weight", 1, {BEFORE}, NN_INITIAL_ZERO, 0.0f}));
    assert_ok(nn_affine_declare(&options, &table, &affine));
    assert_true(table.elements == ALL && affine.parameters.first == 1 && affine.parameters.end == 3);
    assert_string_equal(table.tensors[1].name, "fc.weight");
    assert_string_equal(table.tensors[2].name, "fc.bias");
    assert_ok(nn_affine_forward(&affine, values, ROWS, x, y));
    assert_ok(nn_affine_backward_parameters(&affine, ROWS, x, dy, gradients));
    assert_ok(nn_affine_backward_source(&affine, values, ROWS, dy, dx));
    assert_memory_equal(gradients, untouched, BEFORE * sizeof *gradients);
    for (size_t o = 0; o < OUTPUTS; o++) {
        double sum = 0.0;
        for (size_t r = 0; r < ROWS; r++) {
            double value = b[o];
            for (size_t i = 0; i < INPUTS; i++) value += (double)w[o * INPUTS + i] * x[r * INPUTS + i];
            assert_near(y[r * OUTPUTS + o], value, 1e-6);
            sum += dy[r * OUTPUTS + o];
        }
        assert_near(db[o], sum, 1e-6);
    }
    for (size_t i = 0; i < INPUTS; i++) {
        for (size_t o = 0; o < OUTPUTS; o++) {
            double sum = 0.0;
            for (size_t r = 0; r < ROWS; r++) sum += (double)dy[r * OUTPUTS + o] * x[r * INPUTS + i];
            assert_near(dw[o * INPUTS + i], sum, 1e-6);
        }
        for (size_t r = 0; r < ROWS; r++) {
            double sum = 0.0;
            for (size_t o = 0; o < OUTPUTS; o++) sum += (double)dy[r * OUTPUTS + o] * w[o * INPUTS + i];
            assert_near(dx[r * INPUTS + i], sum, 1e-6);
        }
    }
    nn_table_free(&table);
    nn_engine_destroy(engine);
    float *all[] = {values, gradients, x, dy, y, dx, untouched};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* A plain one is one with a bias of zero, and touches nothing behind its weight. */
TEST(a_plain_affine_has_no_bias)
{
    enum { ROWS = 4, INPUTS = 5, OUTPUTS = 3, WEIGHTS = INPUTS * OUTPUTS, ALL = WEIGHTS + OUTPUTS };
    float *values = random_floats(1, ALL), *x = random_floats(2, ROWS * INPUTS), *dy = random_floats(3, ROWS * OUTPUTS);
    float y[2][ROWS * OUTPUTS], gradients[2][ALL] = {{0}};
    nn_table table = {0};
    nn_engine *engine;
    assert_ok(nn_engine_create(NN_FP32, &engine));
    const nn_affine_options options = {.name = "fc", .inputs = INPUTS, .outputs = OUTPUTS, .engine = engine};
    nn_affine affine[2];
    memset(values + WEIGHTS, 0, OUTPUTS * sizeof *values);
    for (size_t i = 0; i < 2; i++) {
        assert_ok(i ? nn_affine_declare(&options, &table, &affine[i])
                    : nn_affine_declare_plain(&options, &table, &affine[i]));
        assert_int_equal(table.elements, i ? ALL : WEIGHTS);
        assert_int_equal(affine[i].parameters.end, table.count);
        assert_ok(nn_affine_forward(&affine[i], values, ROWS, x, y[i]));
        assert_ok(nn_affine_backward_parameters(&affine[i], ROWS, x, dy, gradients[i]));
        nn_table_free(&table);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_memory_equal(gradients[0], gradients[1], WEIGHTS * sizeof **gradients);
    for (size_t o = 0; o < OUTPUTS; o++) assert_true(gradients[0][WEIGHTS + o] == 0);
    nn_engine_destroy(engine);
    free(values);
    free(x);
    free(dy);
}

TEST(embedding_gathers_and_adds)
{
    const float matrix[4 * 2] = {0, 1, 10, 11, 20, 21, 30, 31}, gradient[3 * 2] = {1, 2, 4, 8, 16, 32};
    const int32_t tokens[] = {2, 0, 2};
    float dst[6], sums[4 * 2] = {100, 0, 100, 0, 100, 0, 100, 0};
    nn_embedding_forward(matrix, 2, tokens, 3, dst);
    assert_memory_equal(dst, ((float[]){20, 21, 0, 1, 20, 21}), sizeof dst);
    nn_embedding_backward(gradient, 2, tokens, 3, sums);
    assert_memory_equal(sums, ((float[]){104, 8, 100, 0, 117, 34, 100, 0}), sizeof sums);
}

/* ---- dropout ---- */

enum { VALUES = 100000 };

static float *mask(nn_noise noise, size_t place, float keep)
{
    float *values = malloc(VALUES * sizeof *values);
    for (size_t i = 0; i < VALUES; i++) values[i] = 1.0f;
    nn_dropout(&noise, place, keep, values, VALUES);
    return values;
}

/* Counts are binomial: 5 standard deviations away is far beyond chance, and the seed is fixed. */
static void assert_count(size_t count, size_t of, double probability)
{
    assert_near((double)count, (double)of * probability, 5.0 * sqrt((double)of * probability * (1.0 - probability)));
}

TEST(dropout_keeps_the_share_it_should)
{
    static const float keeps[] = {0.01f, 0.35f, 0.5f, 0.9f, 0.999f};
    for (size_t k = 0; k < sizeof keeps / sizeof *keeps; k++) {
        float *values = mask((nn_noise){1, k}, 0, keeps[k]);
        size_t kept = 0, neighbours = 0, far = 0;
        for (size_t i = 0; i < VALUES; i++) {
            assert_true(values[i] == 0.0f || values[i] == 1.0f / keeps[k]);
            kept += values[i] > 0.0f;
            if (i > 0) neighbours += values[i] > 0.0f && values[i - 1] > 0.0f;
            if (i >= 650) far += values[i] > 0.0f && values[i - 650] > 0.0f;
        }
        assert_count(kept, VALUES, keeps[k]);
        assert_count(neighbours, VALUES - 1, keeps[k] * keeps[k]); /* one value's fate says nothing of another's */
        assert_count(far, VALUES - 650, keeps[k] * keeps[k]);
        free(values);
    }
}

TEST(masks_differ_by_seed_step_and_place)
{
    static const struct {
        nn_noise noise;
        size_t place;
    } keys[] = {{{1, 1}, 0}, {{2, 1}, 0}, {{1, 2}, 0}, {{1, 1}, 1}, {{1, 0}, 1}, {{1, 256}, 0}};
    enum { KEYS = sizeof keys / sizeof *keys };
    float *masks[KEYS];
    for (size_t a = 0; a < KEYS; a++) {
        masks[a] = mask(keys[a].noise, keys[a].place, 0.5f);
        for (size_t b = 0; b < a; b++) {
            size_t both = 0;
            for (size_t i = 0; i < VALUES; i++) both += masks[a][i] > 0.0f && masks[b][i] > 0.0f;
            assert_count(both, VALUES, 0.25);
        }
    }
    for (size_t a = 0; a < KEYS; a++) free(masks[a]);
}

/* Backward multiplies by what forward multiplied by; a part of an array is dropped as the beginning of the whole. */
TEST(the_same_values_go_every_time)
{
    const nn_noise noise = {3, 4};
    float *ones = mask(noise, 2, 0.7f), *values = random_floats(1, VALUES), *dropped = random_floats(1, VALUES);
    nn_dropout(&noise, 2, 0.7f, dropped, VALUES);
    for (size_t i = 0; i < VALUES; i++) assert_true(dropped[i] == values[i] * ones[i]);
    float *part = random_floats(1, 77);
    nn_dropout(&noise, 2, 0.7f, part, 77);
    assert_memory_equal(part, dropped, 77 * sizeof *part);
    nn_dropout(&noise, 2, 1.0f, values, VALUES);
    float *again = random_floats(1, VALUES);
    assert_memory_equal(values, again, VALUES * sizeof *values); /* keep = 1 is identity */
    float *all[] = {ones, values, dropped, part, again};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

RUN_TESTS(NULL, NULL)
