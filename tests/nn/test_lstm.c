/* The LSTM layer against a second implementation, slow and in double, and its gradients against differences of that. */
#include "support/assert.h"
#include "support/random.h"

#include "lstm.h"

enum { PROBES = 20 };

/* ---- the second implementation: one sequence at a time, one number at a time ---- */

typedef struct problem {
    nn_lstm_shape shape;
    size_t steps, batch;
    const size_t *lengths;
    double *parameters; /* as the layer's table lays them out */
    double *x, *y;
    double *state; /* NULL, or h and c of the beginning */
} problem;

static size_t directions_of(const problem *p)
{
    return p->shape.bidirectional ? 2 : 1;
}

static size_t direction_parameters(const problem *p)
{
    return 4 * p->shape.hidden * (p->shape.inputs + p->shape.hidden + 1);
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double gate_sum(const problem *p, const double *w, size_t row, const double *x, const double *h)
{
    const size_t inputs = p->shape.inputs, hidden = p->shape.hidden;
    const double *u = w + 4 * hidden * inputs, *b = u + 4 * hidden * hidden;
    double sum = b[row];
    for (size_t k = 0; k < inputs; k++) sum += w[row * inputs + k] * x[k];
    for (size_t k = 0; k < hidden; k++) sum += u[row * hidden + k] * h[k];
    return sum;
}

static void reference_step(const problem *p, const double *w, const double *x, double *h, double *c)
{
    const size_t hidden = p->shape.hidden;
    double old[64];
    memcpy(old, h, hidden * sizeof *h);
    for (size_t k = 0; k < hidden; k++) {
        double i = sigmoid(gate_sum(p, w, k, x, old)), f = sigmoid(gate_sum(p, w, hidden + k, x, old));
        double g = tanh(gate_sum(p, w, 2 * hidden + k, x, old)), o = sigmoid(gate_sum(p, w, 3 * hidden + k, x, old));
        c[k] = f * c[k] + i * g;
        h[k] = o * tanh(c[k]);
    }
}

static void reference_sequence(const problem *p, size_t direction, size_t sequence)
{
    const size_t hidden = p->shape.hidden, length = p->lengths ? p->lengths[sequence] : p->steps;
    double h[64] = {0}, c[64] = {0};
    if (p->state) memcpy(h, p->state + sequence * hidden, hidden * sizeof *h);
    if (p->state) memcpy(c, p->state + (p->batch + sequence) * hidden, hidden * sizeof *c);
    for (size_t i = 0; i < length; i++) {
        size_t row = (direction ? length - 1 - i : i) * p->batch + sequence;
        reference_step(p, p->parameters + direction * direction_parameters(p), p->x + row * p->shape.inputs, h, c);
        memcpy(p->y + (row * directions_of(p) + direction) * hidden, h, hidden * sizeof *h);
    }
}

static void reference(const problem *p)
{
    memset(p->y, 0, p->steps * p->batch * directions_of(p) * p->shape.hidden * sizeof *p->y);
    for (size_t d = 0; d < directions_of(p); d++)
        for (size_t s = 0; s < p->batch; s++) reference_sequence(p, d, s);
}

/* ---- both, side by side ---- */

typedef struct fixture {
    problem p;
    nn_table table;
    nn_engine *engine;
    nn_lstm *lstm;
    nn_lstm_batch batch;
    float *values, *gradients, *x, *y, *x_gradient;
    size_t rows, x_count, y_count;
} fixture;

static double *doubles_of(const float *values, size_t count)
{
    double *copy = malloc(count * sizeof *copy);
    for (size_t i = 0; i < count; i++) copy[i] = values[i];
    return copy;
}

static fixture open_fixture(nn_lstm_shape shape, size_t steps, size_t batch, const size_t *lengths)
{
    fixture f = {.p = {.shape = shape, .steps = steps, .batch = batch, .lengths = lengths}, .rows = steps * batch};
    assert_ok(nn_engine_create(NN_FP32, &f.engine));
    nn_lstm_options options = {.name = "rnn", .shape = shape, .range = 0.1f, .engine = f.engine};
    assert_ok(nn_lstm_create(&options, &f.table, &f.lstm));
    f.x_count = f.rows * shape.inputs;
    f.y_count = f.rows * shape.hidden * directions_of(&f.p);
    f.values = random_floats(1, f.table.elements);
    f.gradients = random_floats(2, f.table.elements); /* old values must not matter */
    f.x = random_floats(3, f.x_count);
    f.y = random_floats(4, f.y_count);
    f.x_gradient = random_floats(5, f.x_count);
    f.p.parameters = doubles_of(f.values, f.table.elements);
    f.p.x = doubles_of(f.x, f.x_count);
    f.p.y = doubles_of(f.y, f.y_count);
    f.batch = (nn_lstm_batch){.steps = steps, .batch = batch, .lengths = lengths, .x = f.x, .y = f.y};
    return f;
}

static void close_fixture(fixture *f)
{
    nn_lstm_destroy(f->lstm);
    nn_engine_destroy(f->engine);
    nn_table_free(&f->table);
    free(f->values);
    free(f->gradients);
    free(f->x);
    free(f->y);
    free(f->x_gradient);
    free(f->p.parameters);
    free(f->p.x);
    free(f->p.y);
}

static double loss(const problem *p, const float *direction, size_t count)
{
    double sum = 0.0;
    reference(p);
    for (size_t i = 0; i < count; i++) sum += direction[i] * p->y[i];
    return sum;
}

static void probe(const fixture *f, const float *direction, double *values, const float *gradient, size_t count,
                  const char *name)
{
    const double distance = 1e-5;
    for (size_t i = 0; i < PROBES; i++) {
        uint32_t words[4];
        tw_random(7, count, i, words);
        double *value = &values[words[0] % count], old = *value;
        *value = old + distance;
        double above = loss(&f->p, direction, f->y_count);
        *value = old - distance;
        double expected = (above - loss(&f->p, direction, f->y_count)) / (2 * distance);
        *value = old;
        double actual = gradient[words[0] % count];
        if (!(fabs(actual - expected) <= 1e-5 * (1.0 + fabs(expected))))
            fail_msg("%s[%zu]: %.9g, by differences %.9g", name, words[0] % count, actual, expected);
    }
}

static void check(nn_lstm_shape shape, size_t steps, size_t batch, const size_t *lengths)
{
    fixture f = open_fixture(shape, steps, batch, lengths);
    float *direction = random_floats(6, f.y_count);
    assert_ok(nn_lstm_forward(f.lstm, f.values, &f.batch));
    reference(&f.p);
    for (size_t i = 0; i < f.y_count; i++) assert_near(f.y[i], f.p.y[i], 3e-6);
    assert_ok(nn_lstm_backward(f.lstm, f.values, direction, f.gradients, f.x_gradient));
    for (size_t t = 0; t < f.table.count; t++)
        probe(&f, direction, f.p.parameters + f.table.offsets[t], f.gradients + f.table.offsets[t],
              nn_table_elements(&f.table, t), f.table.tensors[t].name);
    probe(&f, direction, f.p.x, f.x_gradient, f.x_count, "x");
    free(direction);
    close_fixture(&f);
}

TEST(values_and_gradients_of_one_direction)
{
    check((nn_lstm_shape){5, 7, 0}, 6, 3, NULL);
    check((nn_lstm_shape){1, 1, 0}, 1, 1, NULL);
    check((nn_lstm_shape){8, 33, 0}, 9, 2, NULL);
    check((nn_lstm_shape){3, 4, 0}, 5, 4, (size_t[]){5, 1, 0, 3});
}

TEST(values_and_gradients_of_both_directions)
{
    check((nn_lstm_shape){5, 7, 1}, 6, 3, NULL);
    check((nn_lstm_shape){5, 7, 1}, 6, 3, (size_t[]){6, 2, 4});
    check((nn_lstm_shape){2, 40, 1}, 7, 4, (size_t[]){0, 1, 7, 3});
}

TEST(tensors_are_pytorchs)
{
    static const char *const names[] = {"rnn.weight_ih_l3",         "rnn.weight_hh_l3",
                                        "rnn.bias_ih_l3",           "rnn.weight_ih_l3_reverse",
                                        "rnn.weight_hh_l3_reverse", "rnn.bias_ih_l3_reverse"};
    static const size_t columns[] = {5, 7};
    nn_lstm_options options = {"rnn", 3, {5, 7, 1}, 0.1f, 1.0f};
    nn_table table = {0};
    nn_lstm *lstm;
    assert_ok(nn_lstm_create(&options, &table, &lstm));
    assert_int_equal(table.count, 6);
    for (size_t i = 0; i < table.count; i++) {
        assert_string_equal(table.tensors[i].name, names[i]);
        assert_int_equal(table.tensors[i].dims, i % 3 < 2 ? 2 : 1);
        assert_int_equal(table.tensors[i].shape[0], 28);
        if (i % 3 < 2) assert_int_equal(table.tensors[i].shape[1], columns[i % 3]);
    }
    assert_int_equal(nn_lstm_parameters(lstm).first, 0);
    assert_int_equal(nn_lstm_parameters(lstm).end, 6);
    nn_lstm_destroy(lstm);
    nn_table_free(&table);
}

TEST(initial_values_follow_the_options)
{
    enum { HIDDEN = 50 };
    nn_lstm_options options = {"rnn", 0, {30, HIDDEN, 0}, 0.1f, 1.0f};
    nn_table table = {0};
    nn_lstm *lstm;
    double sum = 0.0, squares = 0.0;
    assert_ok(nn_lstm_create(&options, &table, &lstm));
    float *values = random_floats(1, table.elements);
    nn_table_initialise(&table, 5, values);
    size_t weights = table.offsets[2];
    for (size_t i = 0; i < weights; i++) {
        assert_true(fabsf(values[i]) <= 0.1f);
        sum += values[i];
        squares += (double)values[i] * values[i];
    }
    assert_near(sum / (double)weights, 0.0, 3e-3);
    assert_near(squares / (double)weights, 0.01 / 3, 1e-4);
    for (size_t i = 0; i < 4 * HIDDEN; i++)
        assert_true(values[weights + i] == (i >= HIDDEN && i < 2 * HIDDEN ? 1.0f : 0.0f));
    free(values);
    nn_lstm_destroy(lstm);
    nn_table_free(&table);
}

/* ---- lengths ---- */

/* What stands beyond an end, of the sequence itself or of another, changes no bit. */
TEST(padding_is_not_seen)
{
    const size_t lengths[] = {3, 6, 1, 5};
    fixture f = open_fixture((nn_lstm_shape){4, 9, 1}, 6, 4, lengths);
    float *direction = random_floats(6, f.y_count);
    assert_ok(nn_lstm_forward(f.lstm, f.values, &f.batch));
    assert_ok(nn_lstm_backward(f.lstm, f.values, direction, f.gradients, f.x_gradient));
    float *y = malloc(f.y_count * sizeof *y), *gradients = malloc(f.table.elements * sizeof *gradients);
    memcpy(y, f.y, f.y_count * sizeof *y);
    memcpy(gradients, f.gradients, f.table.elements * sizeof *gradients);
    for (size_t t = 0; t < 6; t++) {
        for (size_t s = 0; s < 4; s++) {
            if (t < lengths[s]) continue;
            for (size_t k = 0; k < 4; k++) {
                assert_true(f.x_gradient[(t * 4 + s) * 4 + k] == 0.0f);
                f.x[(t * 4 + s) * 4 + k] += 10.0f;
            }
            for (size_t k = 0; k < 18; k++) {
                assert_true(f.y[(t * 4 + s) * 18 + k] == 0.0f);
                direction[(t * 4 + s) * 18 + k] += 10.0f;
            }
        }
    }
    assert_ok(nn_lstm_forward(f.lstm, f.values, &f.batch));
    assert_ok(nn_lstm_backward(f.lstm, f.values, direction, f.gradients, f.x_gradient));
    assert_memory_equal(f.y, y, f.y_count * sizeof *y);
    assert_memory_equal(f.gradients, gradients, f.table.elements * sizeof *gradients);
    free(y);
    free(gradients);
    free(direction);
    close_fixture(&f);
}

/* ---- carried state ---- */

TEST(two_halves_carry_over_to_the_whole)
{
    enum { STEPS = 8, BATCH = 3, INPUTS = 5, HIDDEN = 11 };
    fixture f = open_fixture((nn_lstm_shape){INPUTS, HIDDEN, 0}, STEPS, BATCH, NULL);
    float *whole = random_floats(8, 2 * BATCH * HIDDEN), *halves = random_floats(8, 2 * BATCH * HIDDEN),
          *y = malloc(f.y_count * sizeof *y);
    f.p.state = doubles_of(whole, 2 * BATCH * HIDDEN);
    f.batch.state = whole;
    assert_ok(nn_lstm_forward(f.lstm, f.values, &f.batch));
    reference(&f.p);
    for (size_t i = 0; i < f.y_count; i++) assert_near(f.y[i], f.p.y[i], 3e-6);
    for (size_t half = 0; half < 2; half++) {
        nn_lstm_batch batch = {.steps = STEPS / 2,
                               .batch = BATCH,
                               .x = f.x + half * f.x_count / 2,
                               .y = y + half * f.y_count / 2,
                               .state = halves};
        assert_ok(nn_lstm_forward(f.lstm, f.values, &batch));
    }
    for (size_t i = 0; i < f.y_count; i++) assert_near(y[i], f.y[i], 1e-6);
    for (size_t i = 0; i < 2 * BATCH * HIDDEN; i++) assert_near(halves[i], whole[i], 1e-6);
    assert_memory_equal(whole, f.y + (STEPS - 1) * BATCH * HIDDEN, BATCH * HIDDEN * sizeof *whole);
    free(f.p.state);
    free(whole);
    free(halves);
    free(y);
    close_fixture(&f);
}

TEST(impossible_batches_are_refused)
{
    const size_t lengths[] = {3, 7};
    float carried[2 * 2 * 3] = {0};
    fixture f = open_fixture((nn_lstm_shape){4, 3, 0}, 6, 2, lengths);
    assert_int_equal(nn_lstm_forward(f.lstm, f.values, &f.batch), TW_ERROR_ARGUMENT);
    assert_non_null(strstr(tw_last_error(), "sequence 1 has length 7"));
    f.batch.lengths = (size_t[]){3, 6};
    f.batch.state = carried;
    assert_int_equal(nn_lstm_forward(f.lstm, f.values, &f.batch), TW_ERROR_ARGUMENT);
    f.batch.steps = 0;
    assert_int_equal(nn_lstm_forward(f.lstm, f.values, &f.batch), TW_ERROR_ARGUMENT);
    close_fixture(&f);
}

RUN_TESTS(NULL, NULL)
