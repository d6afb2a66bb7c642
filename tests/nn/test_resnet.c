/* ResNet-20 against itself written out as plain loops, from the tensors' names. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka.h"

#include <thinwire/thinwire_plugin.h>

#include "model.h"

enum { SIDE = 12, CLASSES = 10, IMAGES = 3, LARGEST = 64 * SIDE * SIDE };

/* One image: (channels, side, side). */
typedef struct plane_stack {
    size_t channels, side;
    double values[LARGEST];
} plane_stack;

static const float *find(const tw_tensor *tensors, size_t count, const float *values, const char *prefix,
                         const char *suffix)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", prefix, suffix);
    for (size_t i = 0; i < count; i++) {
        size_t elements = 1;
        if (strcmp(tensors[i].name, name) == 0) return values;
        for (size_t d = 0; d < tensors[i].dims; d++) elements *= tensors[i].shape[d];
        values += elements;
    }
    fail_msg("no tensor is named %s", name);
    return NULL;
}

static const float *parameter(model *m, const char *prefix, const char *suffix)
{
    size_t count;
    const tw_tensor *tensors = model_tensors(m, &count);
    return find(tensors, count, model_parameters(m), prefix, suffix);
}

static const float *running(model *m, const char *prefix, const char *suffix)
{
    size_t count;
    const tw_tensor *tensors = model_buffer_tensors(m, &count);
    return find(tensors, count, model_buffers(m), prefix, suffix);
}

static double convolve_at(const plane_stack *src, const float *filter, size_t y, size_t x)
{
    double sum = 0.0;
    for (size_t c = 0; c < src->channels; c++) {
        for (size_t i = 0; i < 9; i++) {
            size_t row = y + i / 3 - 1, column = x + i % 3 - 1;
            if (row >= src->side || column >= src->side) continue; /* size_t: -1 is huge */
            sum += src->values[(c * src->side + row) * src->side + column] * filter[c * 9 + i];
        }
    }
    return sum;
}

static void convolve(model *m, const char *name, const plane_stack *src, size_t filters, size_t stride,
                     plane_stack *dst)
{
    const float *weight = parameter(m, name, "weight");
    dst->channels = filters;
    dst->side = (src->side + stride - 1) / stride;
    for (size_t i = 0; i < filters * dst->side * dst->side; i++) {
        size_t x = i % dst->side, y = i / dst->side % dst->side, k = i / (dst->side * dst->side);
        dst->values[i] = convolve_at(src, weight + k * src->channels * 9, y * stride, x * stride);
    }
}

static void normalise(model *m, const char *name, plane_stack *s)
{
    const float *scale = parameter(m, name, "weight"), *shift = parameter(m, name, "bias");
    const float *mean = running(m, name, "running_mean"), *variance = running(m, name, "running_var");
    for (size_t i = 0; i < s->channels * s->side * s->side; i++) {
        size_t c = i / (s->side * s->side);
        s->values[i] = (s->values[i] - mean[c]) / sqrt(variance[c] + 1e-5) * scale[c] + shift[c];
    }
}

static void rectify(plane_stack *s)
{
    for (size_t i = 0; i < s->channels * s->side * s->side; i++) s->values[i] = fmax(0.0, s->values[i]);
}

static void add_shortcut(const plane_stack *src, size_t stride, plane_stack *dst)
{
    for (size_t i = 0; i < src->channels * dst->side * dst->side; i++) {
        size_t x = i % dst->side * stride, y = i / dst->side % dst->side * stride, c = i / (dst->side * dst->side);
        dst->values[i] += src->values[(c * src->side + y) * src->side + x];
    }
}

static void block(model *m, size_t stage, size_t index, plane_stack *s)
{
    static plane_stack middle, end;
    static const char *const parts[] = {"conv1", "bn1", "conv2", "bn2"};
    size_t filters = (size_t)16 << stage, stride = stage > 0 && index == 0 ? 2 : 1;
    char names[4][32];
    for (int i = 0; i < 4; i++) snprintf(names[i], sizeof names[i], "layer%zu.%zu.%s", stage + 1, index, parts[i]);
    convolve(m, names[0], s, filters, stride, &middle);
    normalise(m, names[1], &middle);
    rectify(&middle);
    convolve(m, names[2], &middle, filters, 1, &end);
    normalise(m, names[3], &end);
    add_shortcut(s, stride, &end);
    rectify(&end);
    *s = end;
}

static double logit(model *m, const plane_stack *s, size_t label)
{
    size_t pixels = s->side * s->side;
    double sum = parameter(m, "fc", "bias")[label];
    for (size_t i = 0; i < 64 * pixels; i++)
        sum += s->values[i] / (double)pixels * parameter(m, "fc", "weight")[label * 64 + i / pixels];
    return sum;
}

static double reference_loss(model *m, const float *image, size_t label)
{
    static plane_stack source, s;
    double sum = 0.0;
    source.channels = 3;
    source.side = SIDE;
    for (size_t i = 0; i < 3 * SIDE * SIDE; i++) source.values[i] = image[i];
    convolve(m, "conv1", &source, 16, 1, &s);
    normalise(m, "bn1", &s);
    rectify(&s);
    for (size_t stage = 0; stage < 3; stage++)
        for (size_t i = 0; i < 3; i++) block(m, stage, i, &s);
    for (size_t c = 0; c < CLASSES; c++) sum += exp(logit(m, &s, c));
    return log(sum) - logit(m, &s, label);
}

static void randomise(float *values, size_t count, uint64_t stream, float low, float high)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t words[4];
        tw_random(9, stream, i, words);
        values[i] = low + (high - low) * (float)words[0] * 0x1p-32f;
    }
}

static void resnet20_evaluates_as_the_plain_loops_do(void **state)
{
    static float images[IMAGES * 3 * SIDE * SIDE];
    const uint8_t labels[IMAGES] = {2, 9, 0};
    model_shape shape = {3, SIDE, SIDE, CLASSES, IMAGES};
    model_result result;
    model *m;
    double expected = 0.0;
    (void)state;
    assert_int_equal(model_create("resnet20", &shape, &m), TW_OK);
    model_initialise(m, 3);
    for (size_t t = 0, count; t < (model_tensors(m, &count), count); t++) {
        const tw_tensor *tensor = &model_tensors(m, &count)[t];
        if (tensor->dims == 1) randomise(model_parameters(m) + model_offset(m, t), tensor->shape[0], t, 0.2f, 0.8f);
    }
    randomise(model_buffers(m), model_buffer_count(m), 100, 0.5f, 1.5f);
    randomise(images, IMAGES * 3 * SIDE * SIDE, 101, -1.0f, 1.0f);
    for (size_t i = 0; i < IMAGES; i++) expected += reference_loss(m, images + i * 3 * SIDE * SIDE, labels[i]);
    assert_int_equal(model_evaluate(m, images, labels, IMAGES, &result), TW_OK);
    if (!(fabs(result.loss - expected) < 1e-4 * expected)) fail_msg("%.9g, expected %.9g", result.loss, expected);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(resnet20_evaluates_as_the_plain_loops_do)};
    return cmocka_run_group_tests_name("resnet", tests, NULL, NULL);
}
