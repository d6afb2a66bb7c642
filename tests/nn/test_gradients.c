/* Backward passes against central differences. The loss is a random linear function of the outputs, so its gradient
 * with respect to them is known exactly. A leading convolution turns the gradient with respect to a layer's source
 * into gradients of parameters, where it can be probed. */
#include "fixture.h"

enum { PROBES = 24 };

static double loss(const fixture *f, const float *direction)
{
    double sum = 0.0;
    assert_ok(nn_net_forward(f->net, f->images, 1));
    for (size_t i = 0; i < f->outputs; i++) sum += (double)direction[i] * nn_net_output(f->net)[i];
    return sum;
}

static double difference(const fixture *f, const float *direction, float *value, float step)
{
    float old = *value;
    *value = old + step;
    double above = loss(f, direction);
    *value = old - step;
    double below = loss(f, direction);
    double distance = (double)(old + step) - (double)(old - step);
    *value = old;
    return (above - below) / distance;
}

static double root_mean_square(const float *values, size_t count)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) sum += (double)values[i] * values[i];
    return sqrt(sum / (double)count);
}

/* A difference whose step crosses the kink of a ReLU is spoiled, and so is one whose step is lost in float rounding:
 * several steps are tried. A wrong gradient agrees with none. */
static int agrees(const fixture *f, const float *direction, float *value, double gradient, double scale)
{
    static const float steps[] = {1e-1f, 3e-2f, 1e-2f, 3e-3f, 1e-3f, 3e-4f};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        double expected = difference(f, direction, value, steps[i]);
        if (fabs(gradient - expected) <= 2e-2 * fmax(scale, fabs(expected))) return 1;
    }
    return 0;
}

/* Probes random coordinates of a tensor, relative to its typical gradient. */
static void probe(const fixture *f, const float *direction, size_t tensor)
{
    const nn_table *table = nn_net_parameters(f->net);
    size_t begin = table->offsets[tensor];
    size_t end = tensor + 1 < table->count ? table->offsets[tensor + 1] : table->elements;
    const float *gradient = f->arrays.gradients + begin;
    double scale = root_mean_square(gradient, end - begin);
    assert_true(scale > 0.0);
    for (size_t i = 0; i < PROBES; i++) {
        uint32_t words[4];
        tw_random(7, tensor, i, words);
        size_t at = words[0] % (end - begin);
        if (!agrees(f, direction, f->arrays.parameters + begin + at, gradient[at], scale))
            fail_msg("%s[%zu]: %.6g, by differences %.6g", table->tensors[tensor].name, at, gradient[at],
                     difference(f, direction, f->arrays.parameters + begin + at, 1e-2f));
    }
}

static float *run_backward(const fixture *f)
{
    float *direction = random_floats(4, f->outputs);
    loss(f, direction);
    memcpy(nn_net_output_gradient(f->net), direction, f->outputs * sizeof *direction);
    assert_ok(nn_net_backward(f->net, NULL, NULL));
    return direction;
}

/* Large biases of both signs beside small weights: hardly any value is near the kink of a ReLU. */
static void keep_off_kinks(const fixture *f)
{
    const nn_table *table = nn_net_parameters(f->net);
    for (size_t t = 0; t < table->count; t++) {
        size_t end = t + 1 < table->count ? table->offsets[t + 1] : table->elements;
        float *values = f->arrays.parameters;
        for (size_t i = table->offsets[t]; i < end; i++)
            values[i] = table->tensors[t].dims > 1 ? 0.2f * values[i] : (i - table->offsets[t]) % 2 ? 3.0f : -3.0f;
    }
}

static void check(nn_input input, build_function build, size_t outputs, int has_kinks)
{
    fixture f = open_fixture(input, build, outputs);
    if (has_kinks) keep_off_kinks(&f);
    float *direction = run_backward(&f);
    for (size_t t = 0; t < nn_net_parameters(f.net)->count; t++) probe(&f, direction, t);
    free(direction);
    close_fixture(&f);
}

static tw_status convolution(nn_net *net, const char *name, size_t filters, size_t stride, int relu)
{
    nn_convolution_options options = {
        .filters = filters, .kernel = 3, .stride = stride, .padding = 1, .bias = 1, .relu = relu};
    return nn_convolution(net, name, &options);
}

static tw_status build_convolutions(nn_net *net)
{
    TW_TRY(convolution(net, "first", 16, 1, 0));
    TW_TRY(convolution(net, "second", 32, 2, 0));
    return convolution(net, "odd", 5, 1, 0);
}

static tw_status build_linears(nn_net *net)
{
    TW_TRY(convolution(net, "first", 6, 1, 0));
    TW_TRY(nn_linear(net, "fc1", 20, NN_INITIAL_HE));
    return nn_linear(net, "fc2", 4, NN_INITIAL_HE);
}

static tw_status build_average(nn_net *net)
{
    TW_TRY(convolution(net, "first", 16, 1, 0));
    return nn_global_average_pool(net);
}

TEST(smooth_layers)
{
    check((nn_input){2, 1, 9, 8}, build_convolutions, 5 * 5 * 4, 0);
    check((nn_input){2, 3, 8, 8}, build_convolutions, 5 * 4 * 4, 0);
    check((nn_input){3, 3, 5, 5}, build_linears, 4, 0);
    check((nn_input){2, 3, 7, 7}, build_average, 16, 0);
}

static tw_status build_norm(nn_net *net)
{
    TW_TRY(convolution(net, "first", 16, 1, 0));
    TW_TRY(nn_batch_norm(net, "bn", 0));
    return convolution(net, "last", 4, 1, 0);
}

/* The first bias shifts what the norm takes out again: its gradient is 0 but for rounding, so it is not probed. */
TEST(batch_norm)
{
    fixture f = open_fixture((nn_input){4, 3, 6, 6}, build_norm, 4 * 36);
    float *direction = run_backward(&f);
    for (size_t t = 0; t < nn_net_parameters(f.net)->count; t++)
        if (t != 1) probe(&f, direction, t);
    const float *shifted = named(nn_net_parameters(f.net), f.arrays.gradients, "first.bias");
    for (size_t i = 0; i < 16; i++) assert_near(shifted[i], 0.0, 1e-3);
    free(direction);
    close_fixture(&f);
}

static tw_status build_relu(nn_net *net)
{
    TW_TRY(convolution(net, "first", 16, 1, 1));
    TW_TRY(convolution(net, "second", 16, 1, 0));
    return nn_relu(net);
}

static tw_status build_pool(nn_net *net)
{
    TW_TRY(convolution(net, "first", 16, 1, 0));
    TW_TRY(nn_max_pool(net, &(nn_window){2, 2, 0}));
    TW_TRY(nn_relu(net));
    return convolution(net, "last", 4, 1, 0);
}

TEST(layers_with_kinks)
{
    check((nn_input){4, 3, 8, 8}, build_relu, 16 * 64, 1);
    check((nn_input){4, 3, 9, 8}, build_pool, 4 * 4 * 4, 1);
}

/* ---- the same two, exactly: an identity convolution before them makes its weights' gradient the sum over pixels of
 * what arrives at channel k times image channel c ---- */

enum { CHANNELS = 8, SIDE = 6, PIXELS = SIDE * SIDE };

static const nn_input square_input = {2, CHANNELS, SIDE, SIDE};

static tw_status build_identity_relu(nn_net *net)
{
    TW_TRY(identity_convolution(net, CHANNELS));
    return nn_relu(net);
}

/* `arrived` is laid out as the images. */
static void assert_weight_gradient(const fixture *f, const float *arrived)
{
    for (size_t k = 0; k < CHANNELS; k++) {
        for (size_t c = 0; c < CHANNELS; c++) {
            double sum = 0.0;
            for (size_t i = 0; i < 2 * PIXELS; i++) {
                size_t image = i / PIXELS * CHANNELS * PIXELS, pixel = i % PIXELS;
                sum += (double)arrived[image + k * PIXELS + pixel] * f->images[image + c * PIXELS + pixel];
            }
            assert_near(f->arrays.gradients[k * CHANNELS + c], sum, 1e-4);
        }
    }
}

TEST(relu_passes_what_was_positive)
{
    float arrived[2 * CHANNELS * PIXELS];
    fixture f = open_fixture(square_input, build_identity_relu, CHANNELS * PIXELS);
    set_identity(&f);
    float *direction = run_backward(&f);
    for (size_t i = 0; i < f.outputs; i++) {
        assert_float_equal(nn_net_output(f.net)[i], fmaxf(0.0f, f.images[i]), 0);
        arrived[i] = f.images[i] > 0.0f ? direction[i] : 0.0f;
    }
    assert_weight_gradient(&f, arrived);
    free(direction);
    close_fixture(&f);
}

static nn_window window; /* what build_identity_pool builds */

static tw_status build_identity_pool(nn_net *net)
{
    TW_TRY(identity_convolution(net, CHANNELS));
    return nn_max_pool(net, &window);
}

/* Of the part of a window that is inside. */
static size_t largest_of(const float *images, size_t index)
{
    const size_t half = SIDE / 2, plane = index / (half * half) * PIXELS;
    const size_t top = index / half % half * 2, left = index % half * 2;
    size_t best = plane + top * SIDE + left;
    for (size_t i = 0; i < window.size * window.size; i++) {
        size_t row = top + i / window.size - window.padding, column = left + i % window.size - window.padding;
        if (row >= SIDE || column >= SIDE) continue; /* size_t: below 0 is huge */
        size_t at = plane + row * SIDE + column;
        if (images[at] > images[best]) best = at;
    }
    return best;
}

/* Windows beside one another; and such that overlap and reach outside, whose gradients add up. */
TEST(max_pool_passes_to_the_largest)
{
    static const nn_window windows[] = {{2, 2, 0}, {.size = 3, .stride = 2, .padding = 1}};
    for (size_t k = 0; k < 2; k++) {
        float arrived[2 * CHANNELS * PIXELS] = {0};
        window = windows[k];
        fixture f = open_fixture(square_input, build_identity_pool, CHANNELS * PIXELS / 4);
        set_identity(&f);
        float *direction = run_backward(&f);
        for (size_t i = 0; i < f.outputs; i++) {
            size_t best = largest_of(f.images, i);
            assert_float_equal(nn_net_output(f.net)[i], f.images[best], 0);
            arrived[best] += direction[i];
        }
        assert_weight_gradient(&f, arrived);
        free(direction);
        close_fixture(&f);
    }
}

static tw_status block(nn_net *net, const char *first, const char *second, size_t filters, size_t stride)
{
    TW_TRY(nn_fork(net));
    TW_TRY(convolution(net, first, filters, stride, 1));
    TW_TRY(convolution(net, second, filters, 1, 0));
    return nn_join(net);
}

static tw_status build_residual(nn_net *net)
{
    TW_TRY(convolution(net, "first", 16, 1, 0));
    TW_TRY(block(net, "a1", "a2", 16, 1));
    TW_TRY(block(net, "b1", "b2", 32, 2));
    return block(net, "c1", "c2", 32, 1);
}

TEST(residual_branches)
{
    check((nn_input){3, 3, 7, 7}, build_residual, 32 * 16, 1);
    check((nn_input){2, 1, 8, 8}, build_residual, 32 * 16, 1);
}

/* ---- shortcuts with layers ---- */

static tw_status projected(nn_net *net, const char *const names[3], size_t filters, size_t stride)
{
    nn_convolution_options shortcut = {.filters = filters, .kernel = 1, .stride = stride, .bias = 1};
    TW_TRY(nn_fork(net));
    TW_TRY(convolution(net, names[0], filters, stride, 1));
    TW_TRY(convolution(net, names[1], filters, 1, 0));
    TW_TRY(nn_shortcut(net));
    TW_TRY(nn_convolution(net, names[2], &shortcut));
    return nn_join(net);
}

static tw_status build_projections(nn_net *net)
{
    TW_TRY(convolution(net, "first", 16, 1, 0));
    TW_TRY(projected(net, (const char *const[]){"a1", "a2", "a3"}, 32, 1));
    TW_TRY(block(net, "b1", "b2", 32, 1));
    return projected(net, (const char *const[]){"c1", "c2", "c3"}, 20, 2);
}

TEST(shortcuts_with_layers)
{
    check((nn_input){3, 3, 7, 7}, build_projections, 20 * 16, 1);
    check((nn_input){2, 1, 8, 8}, build_projections, 20 * 16, 1);
}

static tw_status build_without(nn_net *net)
{
    TW_TRY(convolution(net, "first", CHANNELS, 1, 0));
    return block(net, "a1", "a2", CHANNELS, 1);
}

static tw_status build_with(nn_net *net)
{
    TW_TRY(convolution(net, "first", CHANNELS, 1, 0));
    return projected(net, (const char *const[]){"a1", "a2", "a3"}, CHANNELS, 1);
}

/* A shortcut whose layer changes nothing is as one without a layer. */
TEST(a_shortcut_is_added_to_its_branch)
{
    fixture without = open_fixture(square_input, build_without, CHANNELS * PIXELS);
    fixture with = open_fixture(square_input, build_with, CHANNELS * PIXELS);
    float *identity = with.arrays.parameters + without.parameters;
    memcpy(with.arrays.parameters, without.arrays.parameters, without.parameters * sizeof *identity);
    for (size_t i = 0; i < CHANNELS * CHANNELS + CHANNELS; i++)
        identity[i] = i < CHANNELS * CHANNELS && i % (CHANNELS + 1) == 0;
    float *direction = run_backward(&without), *same = run_backward(&with);
    for (size_t i = 0; i < with.outputs; i++)
        assert_near(nn_net_output(with.net)[i], nn_net_output(without.net)[i], 1e-5);
    for (size_t i = 0; i < without.parameters; i++)
        assert_near(with.arrays.gradients[i], without.arrays.gradients[i], 1e-3);
    free(direction);
    free(same);
    close_fixture(&without);
    close_fixture(&with);
}

TEST(a_shortcut_ends_as_its_branch_does)
{
    nn_net *net;
    nn_convolution_options narrow = {.filters = 4, .kernel = 1, .stride = 1};
    assert_ok(nn_net_create(&square_input, NN_FP32, &net));
    assert_int_equal(nn_shortcut(net), TW_ERROR_ORDER);
    assert_ok(nn_fork(net));
    assert_fails(nn_shortcut(net), TW_ERROR_ORDER, "needs a layer");
    assert_ok(convolution(net, "a", CHANNELS, 1, 0));
    assert_ok(nn_shortcut(net));
    assert_int_equal(nn_shortcut(net), TW_ERROR_ORDER);
    assert_fails(nn_join(net), TW_ERROR_ORDER, "needs a layer");
    assert_ok(nn_convolution(net, "b", &narrow));
    assert_fails(nn_join(net), TW_ERROR_ARGUMENT, "shape of its branch");
    nn_net_destroy(net);
}

RUN_TESTS(NULL, NULL)
