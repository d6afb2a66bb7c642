/* Each layer's forward pass against the formula, written out as plain loops. */
#include "fixture.h"

/* ---- convolution ---- */

typedef struct geometry {
    nn_input input;
    nn_convolution_options options;
} geometry;

static const geometry *convolution_case; /* what build_convolution builds */

static tw_status build_convolution(nn_net *net)
{
    return nn_convolution(net, "conv", &convolution_case->options);
}

static double convolve_at(const geometry *g, const float *image, const float *filter, size_t y, size_t x)
{
    const nn_convolution_options *o = &g->options;
    double sum = 0.0;
    for (size_t c = 0; c < g->input.channels; c++) {
        for (size_t i = 0; i < o->kernel; i++) {
            for (size_t j = 0; j < o->kernel; j++) {
                size_t row = y * o->stride + i - o->padding, column = x * o->stride + j - o->padding;
                if (row >= g->input.height || column >= g->input.width) continue; /* size_t: below 0 is huge */
                sum += (double)image[(c * g->input.height + row) * g->input.width + column] *
                       filter[(c * o->kernel + i) * o->kernel + j];
            }
        }
    }
    return sum;
}

static void check_convolution(const geometry *g)
{
    const nn_convolution_options *o = &g->options;
    size_t height = (g->input.height + 2 * o->padding - o->kernel) / o->stride + 1;
    size_t width = (g->input.width + 2 * o->padding - o->kernel) / o->stride + 1;
    size_t image = g->input.channels * g->input.height * g->input.width;
    size_t filter = g->input.channels * o->kernel * o->kernel;
    convolution_case = g;
    fixture f = open_fixture(g->input, build_convolution, o->filters * height * width);
    assert_ok(nn_net_forward(f.net, f.images, 1));
    const float *y = nn_net_output(f.net), *weight = parameter(&f, "conv.weight");
    const float *bias = o->bias ? parameter(&f, "conv.bias") : NULL;
    for (size_t i = 0; i < f.outputs; i++) {
        size_t column = i % width, row = i / width % height, k = i / (width * height) % o->filters;
        size_t n = i / (width * height * o->filters);
        double expected = convolve_at(g, f.images + n * image, weight + k * filter, row, column);
        if (bias) expected += bias[k];
        if (o->relu && expected < 0.0) expected = 0.0;
        assert_near(y[i], expected, 1e-4);
    }
    close_fixture(&f);
}

TEST(convolution_equals_the_direct_loops)
{
    static const geometry cases[] = {
        {{2, 1, 28, 28}, {.filters = 16, .kernel = 3, .stride = 1, .padding = 1, .bias = 1}},
        {{3, 3, 32, 32}, {.filters = 16, .kernel = 3, .stride = 1, .padding = 1}},
        {{2, 16, 14, 14}, {.filters = 32, .kernel = 3, .stride = 2, .padding = 1}},
        {{2, 16, 9, 7}, {.filters = 16, .kernel = 5, .stride = 1, .padding = 2, .bias = 1, .relu = 1}},
        {{1, 5, 8, 8}, {.filters = 7, .kernel = 3, .stride = 1, .padding = 0, .bias = 1}}, /* no multiple of 8 or 16 */
        {{2, 16, 6, 6}, {.filters = 24, .kernel = 1, .stride = 1, .padding = 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_convolution(&cases[i]);
}

/* ---- pooling ---- */

static tw_status build_max_pool(nn_net *net)
{
    return nn_max_pool(net, &(nn_window){2, 2, 0});
}

TEST(max_pool_takes_the_largest_of_each_window)
{
    nn_input input = {2, 3, 7, 6}; /* the odd row is dropped */
    fixture f = open_fixture(input, build_max_pool, 3 * 3 * 3);
    assert_ok(nn_net_forward(f.net, f.images, 1));
    const float *y = nn_net_output(f.net);
    for (size_t i = 0; i < f.outputs; i++) {
        const float *corner = f.images + (i / 9) * 42 + i / 3 % 3 * 2 * 6 + i % 3 * 2;
        float expected = fmaxf(fmaxf(corner[0], corner[1]), fmaxf(corner[6], corner[7]));
        assert_near(y[i], expected, 0.0);
    }
    close_fixture(&f);
}

TEST(average_pool_takes_the_mean_of_each_plane)
{
    nn_input input = {2, 16, 7, 8};
    fixture f = open_fixture(input, nn_global_average_pool, 16);
    assert_ok(nn_net_forward(f.net, f.images, 1));
    for (size_t i = 0; i < f.outputs; i++) {
        double sum = 0.0;
        for (size_t j = 0; j < 56; j++) sum += f.images[i * 56 + j];
        assert_near(nn_net_output(f.net)[i], sum / 56.0, 1e-6);
    }
    close_fixture(&f);
}

/* ---- linear ---- */

static tw_status build_linear(nn_net *net)
{
    return nn_linear(net, "fc", 5, NN_INITIAL_HE);
}

TEST(linear_is_the_matrix_product)
{
    nn_input input = {3, 2, 3, 3};
    fixture f = open_fixture(input, build_linear, 5);
    assert_ok(nn_net_forward(f.net, f.images, 1));
    for (size_t i = 0; i < f.outputs; i++) {
        double sum = parameter(&f, "fc.bias")[i % 5];
        for (size_t j = 0; j < 18; j++)
            sum += (double)f.images[i / 5 * 18 + j] * parameter(&f, "fc.weight")[i % 5 * 18 + j];
        assert_near(nn_net_output(f.net)[i], sum, 1e-5);
    }
    close_fixture(&f);
}

/* ---- batch norm ---- */

static tw_status build_batch_norm(nn_net *net)
{
    TW_TRY(identity_convolution(net, 16));
    return nn_batch_norm(net, "bn", 0);
}

static tw_status build_batch_norm_relu(nn_net *net)
{
    TW_TRY(identity_convolution(net, 16));
    return nn_batch_norm(net, "bn", 1);
}

enum { NORM_IMAGES = 3, NORM_PIXELS = 20 };

static const nn_input norm_input = {NORM_IMAGES, 16, 4, 5};

static float norm_value(const fixture *f, size_t channel, size_t i)
{
    return f->images[(i / NORM_PIXELS * 16 + channel) * NORM_PIXELS + i % NORM_PIXELS];
}

static void statistics(const fixture *f, size_t channel, double *mean, double *variance)
{
    const size_t count = NORM_IMAGES * NORM_PIXELS;
    *mean = *variance = 0.0;
    for (size_t i = 0; i < count; i++) *mean += norm_value(f, channel, i) / (double)count;
    for (size_t i = 0; i < count; i++) *variance += pow(norm_value(f, channel, i) - *mean, 2) / (double)count;
}

static void assert_normalised(const fixture *f, size_t channel, double mean, double variance, int relu)
{
    double scale = parameter(f, "bn.weight")[channel] / sqrt(variance + 1e-5), shift = parameter(f, "bn.bias")[channel];
    for (size_t i = 0; i < NORM_IMAGES * NORM_PIXELS; i++) {
        double expected = (norm_value(f, channel, i) - mean) * scale + shift;
        size_t at = (i / NORM_PIXELS * 16 + channel) * NORM_PIXELS + i % NORM_PIXELS;
        if (relu && expected < 0.0) expected = 0.0;
        assert_near(nn_net_output(f->net)[at], expected, 1e-5);
    }
}

static void check_batch_norm(build_function build, int relu)
{
    fixture f = open_fixture(norm_input, build, 16 * NORM_PIXELS);
    set_identity(&f);
    assert_ok(nn_net_forward(f.net, f.images, 1));
    for (size_t c = 0; c < 16; c++) {
        double mean, variance;
        statistics(&f, c, &mean, &variance);
        assert_normalised(&f, c, mean, variance, relu);
    }
    for (size_t c = 0; c < 16; c++) {
        buffer(&f, "bn.running_mean")[c] = 0.1f * (float)c;
        buffer(&f, "bn.running_var")[c] = 1.0f + (float)c;
    }
    assert_ok(nn_net_forward(f.net, f.images, 0));
    for (size_t c = 0; c < 16; c++) assert_normalised(&f, c, 0.1f * (float)c, 1.0 + (double)c, relu);
    close_fixture(&f);
}

TEST(batch_norm_normalises_by_the_batch_or_by_the_running_statistics)
{
    check_batch_norm(build_batch_norm, 0);
    check_batch_norm(build_batch_norm_relu, 1);
}

TEST(batch_norm_tracks_mean_and_unbiased_variance)
{
    const double unbiased = NORM_IMAGES * NORM_PIXELS / (NORM_IMAGES * NORM_PIXELS - 1.0);
    fixture f = open_fixture(norm_input, build_batch_norm, 16 * NORM_PIXELS);
    set_identity(&f);
    for (size_t c = 0; c < 16; c++) buffer(&f, "bn.running_var")[c] = 1.0f;
    assert_ok(nn_net_forward(f.net, f.images, 1));
    assert_ok(nn_net_forward(f.net, f.images, 1));
    assert_ok(nn_net_forward(f.net, f.images, 0)); /* must leave them alone */
    for (size_t c = 0; c < 16; c++) {
        double mean, variance;
        statistics(&f, c, &mean, &variance);
        assert_near(buffer(&f, "bn.running_mean")[c], (1.0 - 0.9 * 0.9) * mean, 1e-6);
        assert_near(buffer(&f, "bn.running_var")[c], 0.81 + 0.19 * unbiased * variance, 1e-5);
    }
    close_fixture(&f);
}

/* ---- residual branches ---- */

static size_t branch_filters, branch_stride;

static tw_status build_branch(nn_net *net)
{
    nn_convolution_options branch = {.filters = branch_filters, .kernel = 3, .stride = branch_stride, .padding = 1};
    TW_TRY(identity_convolution(net, 16));
    TW_TRY(nn_fork(net));
    TW_TRY(nn_convolution(net, "branch", &branch));
    return nn_join(net);
}

/* A branch of zeros leaves the shortcut, and its ReLU. */
static void check_shortcut(nn_input input, size_t filters, size_t stride)
{
    size_t height = (input.height + stride - 1) / stride, width = (input.width + stride - 1) / stride;
    branch_filters = filters;
    branch_stride = stride;
    fixture f = open_fixture(input, build_branch, filters * height * width);
    set_identity(&f);
    memset(parameter(&f, "branch.weight"), 0, filters * 16 * 9 * sizeof(float));
    assert_ok(nn_net_forward(f.net, f.images, 1));
    for (size_t i = 0; i < f.outputs; i++) {
        size_t x = i % width * stride, y = i / width % height * stride, c = i / (width * height) % filters;
        size_t n = i / (width * height * filters);
        float carried = c < 16 ? f.images[((n * 16 + c) * input.height + y) * input.width + x] : 0.0f;
        assert_near(nn_net_output(f.net)[i], fmaxf(0.0f, carried), 0.0);
    }
    close_fixture(&f);
}

TEST(shortcut_carries_every_second_pixel_and_pads_channels)
{
    check_shortcut((nn_input){2, 16, 8, 6}, 16, 1);
    check_shortcut((nn_input){2, 16, 8, 6}, 32, 2);
    check_shortcut((nn_input){3, 16, 7, 7}, 32, 2);
    check_shortcut((nn_input){2, 16, 5, 5}, 20, 1);
}

/* ---- what cannot be built ---- */

static tw_status build_shrinking_branch(nn_net *net)
{
    branch_filters = 8; /* of 16 */
    branch_stride = 1;
    return build_branch(net);
}

static tw_status build_unjoined(nn_net *net)
{
    TW_TRY(nn_fork(net));
    return nn_net_finish(net);
}

TEST(impossible_nets_are_refused)
{
    static const nn_convolution_options convolutions[] = {{.filters = 8, .kernel = 5, .stride = 1}, /* too large */
                                                          {.filters = 8, .kernel = 3, .padding = 1},
                                                          {.kernel = 3, .stride = 1, .padding = 1},
                                                          {.filters = 8, .stride = 1, .padding = 1}};
    static const nn_window windows[] = {{5, 5, 0}, {.size = 2}, {.stride = 2}, {2, 2, 2}};
    nn_net *net;
    assert_ok(nn_net_create(&(nn_input){1, 4, 4, 4}, NN_FP32, &net));
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(nn_convolution(net, "conv", &convolutions[i]), TW_ERROR_ARGUMENT);
        assert_int_equal(nn_max_pool(net, &windows[i]), TW_ERROR_ARGUMENT);
    }
    assert_int_equal(nn_linear(net, "fc", 0, NN_INITIAL_SMALL), TW_ERROR_ARGUMENT);
    assert_int_equal(nn_batch_norm(net, "bn", 0), TW_ERROR_ORDER); /* nothing is before it */
    assert_int_equal(nn_join(net), TW_ERROR_ORDER);
    assert_int_equal(build_unjoined(net), TW_ERROR_ORDER);
    nn_net_destroy(net);
    assert_ok(nn_net_create(&(nn_input){1, 4, 4, 4}, NN_FP32, &net));
    assert_int_equal(build_shrinking_branch(net), TW_ERROR_ARGUMENT);
    nn_net_destroy(net);
}

RUN_TESTS(NULL, NULL)
