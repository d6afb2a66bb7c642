/* Computing in bf16: products against exact sums of rounded operands, whole layers against fp32. Skipped where the
 * processor has no instructions for it. */
#include "fixture.h"

#include "lstm.h"
#include "product.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>

static int no_memory; /* oneDNN has none */

dnnl_status_t dnnl_primitive_attr_create(dnnl_primitive_attr_t *attributes)
{
    dnnl_status_t (*create)(dnnl_primitive_attr_t *);
    *(void **)&create = dlsym(RTLD_NEXT, __func__);
    return no_memory ? dnnl_out_of_memory : create(attributes);
}

static int bf16_is_native(void)
{
    int native;
    char implementation[64];
    assert_ok(nn_find_bf16(&native, implementation, sizeof implementation));
    return native;
}

static nn_engine *open_engine(nn_precision precision)
{
    nn_engine *engine;
    if (precision == NN_BF16 && !bf16_is_native()) {
        assert_int_equal(nn_engine_create(NN_BF16, &engine), TW_ERROR_UNSUPPORTED);
        skip();
    }
    assert_ok(nn_engine_create(precision, &engine));
    return engine;
}

TEST(without_memory_nothing_is_said_of_the_processor)
{
    int native;
    char implementation[64];
    nn_engine *engine;
    no_memory = 1;
    assert_fails(nn_engine_create(NN_BF16, &engine), TW_ERROR_MEMORY, "no memory");
    assert_fails(nn_find_bf16(&native, implementation, sizeof implementation), TW_ERROR_MEMORY, "no memory");
    no_memory = 0;
}

/* ---- one product ---- */

typedef struct problem {
    nn_product product;
    float *a, *b, *c, *before; /* before: what C held */
} problem;

static problem open_problem(nn_product p)
{
    problem made = {p, random_floats(1, p.m * p.k), random_floats(2, p.k * p.n), random_floats(3, p.m * p.n), NULL};
    made.before = random_floats(3, p.m * p.n);
    return made;
}

static void close_problem(problem *p)
{
    float *all[] = {p->a, p->b, p->c, p->before};
    for (size_t i = 0; i < 4; i++) free(all[i]);
}

static void make_integers(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) values[i] = floorf(16.0f * values[i]);
}

/* To 8 bits of precision, ties to even; for finite numbers. */
static float rounded(float x)
{
    int exponent;
    double fraction = frexp((double)x, &exponent);
    return (float)ldexp(nearbyint(ldexp(fraction, 8)), exponent - 8);
}

typedef float (*rounding_function)(float x);

static float as_it_is(float x)
{
    return x;
}

static double exact(const problem *p, size_t row, size_t column, rounding_function round)
{
    const nn_product *q = &p->product;
    double sum = (double)q->beta * p->before[row * q->n + column];
    for (size_t i = 0; i < q->k; i++)
        sum += (double)round(p->a[q->transpose_a ? i * q->m + row : row * q->k + i]) *
               round(p->b[q->transpose_b ? column * q->k + i : i * q->n + column]);
    return sum;
}

static double largest_error(const problem *p, rounding_function round)
{
    double largest = 0.0;
    for (size_t r = 0; r < p->product.m; r++)
        for (size_t c = 0; c < p->product.n; c++)
            largest = fmax(largest, fabs(p->c[r * p->product.n + c] - exact(p, r, c, round)));
    return largest;
}

static const nn_product shapes[] = {{0, 0, 64, 64, 64, 0.0f},  {0, 1, 33, 47, 129, 1.0f}, {1, 0, 100, 50, 37, 0.0f},
                                    {1, 1, 40, 40, 40, 1.0f},  {0, 0, 35, 650, 1, 0.0f},  {0, 1, 700, 33, 65, 0.0f},
                                    {1, 0, 64, 200, 12, 1.0f}, {0, 1, 5, 64, 64, 0.0f},   {0, 0, 1, 1, 1, 1.0f}};
enum { SHAPES = sizeof shapes / sizeof *shapes, NARROW_FROM = 7 };

static void multiply(nn_engine *engine, problem *p, int prepared)
{
    nn_factor factor = {0};
    if (!prepared) {
        assert_ok(nn_multiply(engine, &p->product, p->a, p->b, p->c));
        return;
    }
    assert_ok(nn_factor_prepare(engine, &p->product, p->b, &factor));
    assert_ok(nn_factor_multiply(&factor, p->a, p->c));
    nn_factor_free(&factor);
}

TEST(products_of_small_integers_are_exact)
{
    for (int precision = NN_FP32; precision <= NN_BF16; precision++) {
        nn_engine *engine = open_engine((nn_precision)precision);
        for (size_t i = 0; i < 2 * SHAPES; i++) {
            problem p = open_problem(shapes[i / 2]);
            make_integers(p.a, p.product.m * p.product.k);
            make_integers(p.b, p.product.k * p.product.n);
            make_integers(p.c, p.product.m * p.product.n);
            make_integers(p.before, p.product.m * p.product.n);
            multiply(engine, &p, i % 2);
            assert_true(largest_error(&p, as_it_is) == 0.0);
            close_problem(&p);
        }
        nn_engine_destroy(engine);
    }
}

/* Some product of rounded operands is off the fp32 one by far more than sums in fp32 are. */
TEST(operands_are_rounded_and_sums_are_not)
{
    nn_engine *engine = open_engine(NN_BF16);
    for (size_t i = 0; i < 2 * SHAPES; i++) {
        int is_rounded = i % 2 || i / 2 < NARROW_FROM;
        problem p = open_problem(shapes[i / 2]);
        double tolerance = 1e-6 * (double)(p.product.k + 1);
        multiply(engine, &p, i % 2);
        assert_true(largest_error(&p, is_rounded ? rounded : as_it_is) <= tolerance);
        assert_true(largest_error(&p, is_rounded ? as_it_is : rounded) > 1e-4);
        close_problem(&p);
    }
    nn_engine_destroy(engine);
}

/* More shapes than are kept, twice, with a factor that was prepared before all of them. */
TEST(shapes_that_were_forgotten_come_back)
{
    nn_engine *engine = open_engine(NN_BF16);
    problem first = open_problem(shapes[0]);
    nn_factor factor = {0};
    assert_ok(nn_factor_prepare(engine, &first.product, first.b, &factor));
    for (size_t i = 0; i < 600; i++) {
        problem p = open_problem((nn_product){.m = 32 + i % 300, .n = 32, .k = 2});
        multiply(engine, &p, 0);
        assert_true(largest_error(&p, rounded) <= 1e-5);
        close_problem(&p);
    }
    assert_ok(nn_factor_multiply(&factor, first.a, first.c));
    assert_true(largest_error(&first, rounded) <= 1e-4);
    nn_factor_free(&factor);
    close_problem(&first);
    nn_engine_destroy(engine);
}

TEST(what_is_not_a_number_stays_so)
{
    nn_engine *engine = open_engine(NN_BF16);
    for (int prepared = 0; prepared < 2; prepared++) {
        problem p = open_problem(shapes[0]);
        p.a[3 * 64 + 5] = NAN;
        p.b[7 * 64 + 9] = NAN;
        multiply(engine, &p, prepared);
        for (size_t i = 0; i < 64 * 64; i++) assert_int_equal(isnan(p.c[i]) != 0, i / 64 == 3 || i % 64 == 9);
        close_problem(&p);
    }
    nn_engine_destroy(engine);
}

/* ---- layers ---- */

/* Near, and yet not what fp32 gives: the rounded operands are 2^-9 off at most. */
static void assert_rounded(const float *actual, const float *expected, size_t count)
{
    double error = 0.0, norm = 0.0;
    for (size_t i = 0; i < count; i++) {
        error += ((double)actual[i] - expected[i]) * ((double)actual[i] - expected[i]);
        norm += (double)expected[i] * expected[i];
    }
    if (!(error > 0.0 && sqrt(error / norm) < 0.02)) fail_msg("an error of %g of %g", sqrt(error), sqrt(norm));
}

enum { STEPS = 9, BATCH = 5, INPUTS = 24, HIDDEN = 40, ROWS = STEPS * BATCH };

typedef struct lstm_results {
    nn_table table;
    float *y, *gradients, *x_gradient;
} lstm_results;

static lstm_results run_lstm(nn_precision precision, int bidirectional)
{
    const size_t width = bidirectional ? 2 * HIDDEN : HIDDEN;
    nn_engine *engine = open_engine(precision);
    const nn_lstm_options options = {
        .name = "rnn", .shape = {INPUTS, HIDDEN, bidirectional}, .range = 0.2f, .engine = engine};
    lstm_results r = {0};
    nn_lstm *lstm;
    assert_ok(nn_lstm_create(&options, &r.table, &lstm));
    r.y = random_floats(1, ROWS * width);
    r.gradients = random_floats(2, r.table.elements);
    r.x_gradient = random_floats(3, ROWS * INPUTS);
    float *values = random_floats(4, r.table.elements), *x = random_floats(5, ROWS * INPUTS);
    float *y_gradient = random_floats(6, ROWS * width);
    nn_table_initialise(&r.table, 7, values);
    assert_ok(nn_lstm_forward(lstm, values, &(nn_lstm_batch){.steps = STEPS, .batch = BATCH, .x = x, .y = r.y}));
    assert_ok(nn_lstm_backward(lstm, values, y_gradient, r.gradients, r.x_gradient));
    nn_lstm_destroy(lstm);
    nn_engine_destroy(engine);
    free(values);
    free(x);
    free(y_gradient);
    return r;
}

static void close_lstm(lstm_results *r)
{
    nn_table_free(&r->table);
    free(r->y);
    free(r->gradients);
    free(r->x_gradient);
}

TEST(an_lstm_is_near_fp32)
{
    for (int bidirectional = 0; bidirectional < 2; bidirectional++) {
        lstm_results bf16 = run_lstm(NN_BF16, bidirectional), fp32 = run_lstm(NN_FP32, bidirectional);
        assert_rounded(bf16.y, fp32.y, ROWS * HIDDEN);
        assert_rounded(bf16.x_gradient, fp32.x_gradient, ROWS * INPUTS);
        for (size_t t = 0; t < fp32.table.count; t++)
            assert_rounded(bf16.gradients + fp32.table.offsets[t], fp32.gradients + fp32.table.offsets[t],
                           nn_table_elements(&fp32.table, t));
        close_lstm(&bf16);
        close_lstm(&fp32);
    }
}

/* Without a ReLU: where it cuts off another 1 % of the values, gradients differ by a tenth. */
static tw_status build_convolutions(nn_net *net)
{
    nn_convolution_options options = {.filters = 16, .kernel = 3, .stride = 1, .padding = 1, .bias = 1};
    TW_TRY(nn_convolution(net, "conv1", &options));
    options.filters = 32;
    options.stride = 2;
    TW_TRY(nn_convolution(net, "conv2", &options));
    TW_TRY(nn_batch_norm(net, "norm", 0));
    options.kernel = 1;
    options.padding = 0;
    options.bias = 0;
    TW_TRY(nn_convolution(net, "conv3", &options));
    return nn_linear(net, "fc", 40, NN_INITIAL_HE);
}

static fixture run_convolutions(nn_precision precision)
{
    nn_engine_destroy(open_engine(precision)); /* or skip */
    fixture f = open_fixture_in(precision, (nn_input){32, 3, 12, 12}, build_convolutions, 40);
    assert_ok(nn_net_forward(f.net, f.images, 1));
    for (size_t i = 0; i < f.outputs; i++) nn_net_output_gradient(f.net)[i] = uniform(9, i);
    assert_ok(nn_net_backward(f.net, NULL, NULL));
    return f;
}

TEST(convolutions_are_near_fp32)
{
    fixture bf16 = run_convolutions(NN_BF16), fp32 = run_convolutions(NN_FP32);
    const nn_table *table = nn_net_parameters(fp32.net);
    assert_rounded(nn_net_output(bf16.net), nn_net_output(fp32.net), fp32.outputs);
    for (size_t t = 0; t < table->count; t++)
        if (table->tensors[t].dims > 1)
            assert_rounded(bf16.arrays.gradients + table->offsets[t], fp32.arrays.gradients + table->offsets[t],
                           nn_table_elements(table, t));
    close_fixture(&bf16);
    close_fixture(&fp32);
}

RUN_TESTS(NULL, NULL)
