/* ResNets against themselves written out as plain loops over doubles, from the tensors' names: what they say of images,
 * and, by differences, how their loss changes with each kind of tensor. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka.h"
#include "support/parts.h"

#include <thinwire/thinwire_plugin.h>

#include "model.h"

enum { SIDE_MOST = 33, CLASSES = 10, IMAGES = 2, LARGEST = IMAGES * 256 * 9 * 9 };

/* A batch: (images, channels, side, side). */
typedef struct volume {
    size_t channels, side;
    double values[LARGEST];
} volume;

/* A network, its parameters as doubles, and how it normalises. */
typedef struct reference {
    model *net;
    double *parameters;
    int training; /* batch norm takes the batch's statistics */
} reference;

static size_t plane_of(const volume *v)
{
    return v->side * v->side;
}

/* ---- tensors by name ---- */

static size_t elements_of(const tw_tensor *tensor)
{
    size_t elements = 1;
    for (size_t d = 0; d < tensor->dims; d++) elements *= tensor->shape[d];
    return elements;
}

/* Where the tensor begins, and how many elements it has. */
static size_t find(const tw_tensor *tensors, size_t count, const char *prefix, const char *suffix, size_t *elements)
{
    char name[128];
    size_t at = 0;
    snprintf(name, sizeof name, "%s%s", prefix, suffix);
    *elements = 0;
    for (size_t i = 0; i < count; i++, at += *elements) {
        *elements = elements_of(&tensors[i]);
        if (strcmp(tensors[i].name, name) == 0) return at;
    }
    fail_msg("no tensor is named %s", name);
    return 0;
}

static const double *parameter(const reference *r, const char *prefix, const char *suffix)
{
    size_t count, elements;
    const tw_tensor *tensors = model_tensors(r->net, &count);
    return r->parameters + find(tensors, count, prefix, suffix, &elements);
}

static const float *running(const reference *r, const char *prefix, const char *suffix)
{
    size_t count, elements;
    const tw_tensor *tensors = model_buffer_tensors(r->net, &count);
    return model_buffers(r->net) + find(tensors, count, prefix, suffix, &elements);
}

/* ---- layers ---- */

/* One value of a filter, (top, left) of its middle: what it adds to a plane. What lies outside of `src` is 0. Outside
 * is also what is below 0: a size_t is huge there. */
static void add_plane(const double *src, size_t src_side, double weight, size_t top, size_t left, size_t stride,
                      double *dst, size_t side)
{
    for (size_t y = 0; y < side; y++) {
        if (y * stride + top >= src_side) continue;
        const double *row = src + (y * stride + top) * src_side;
        for (size_t x = 0; x < side; x++)
            if (x * stride + left < src_side) dst[y * side + x] += weight * row[x * stride + left];
    }
}

static void convolve(const reference *r, const char *prefix, const volume *src, size_t filters, size_t kernel,
                     size_t stride, volume *dst)
{
    const double *weight = parameter(r, prefix, ".weight");
    size_t window = kernel * kernel, middle = kernel / 2;
    dst->channels = filters;
    dst->side = (src->side + stride - 1) / stride;
    memset(dst->values, 0, IMAGES * filters * plane_of(dst) * sizeof *dst->values);
    for (size_t i = 0; i < IMAGES * filters * src->channels; i++) {
        size_t c = i % src->channels, k = i / src->channels % filters, image = i / src->channels / filters;
        const double *plane = src->values + (image * src->channels + c) * plane_of(src);
        for (size_t at = 0; at < window; at++)
            add_plane(plane, src->side, weight[(k * src->channels + c) * window + at], at / kernel - middle,
                      at % kernel - middle, stride, dst->values + (image * filters + k) * plane_of(dst), dst->side);
    }
}

typedef struct moments {
    double mean, variance;
} moments;

static moments measure(const volume *v, size_t channel)
{
    double sum = 0, squares = 0, count = (double)(IMAGES * plane_of(v));
    for (int pass = 0; pass < 2; pass++)
        for (size_t image = 0; image < IMAGES; image++)
            for (size_t i = 0; i < plane_of(v); i++) {
                double value = v->values[(image * v->channels + channel) * plane_of(v) + i];
                if (pass == 0)
                    sum += value;
                else
                    squares += pow(value - sum / count, 2);
            }
    return (moments){sum / count, squares / count};
}

static void normalise(const reference *r, const char *prefix, volume *v)
{
    const double *scale = parameter(r, prefix, ".weight"), *shift = parameter(r, prefix, ".bias");
    const float *mean = running(r, prefix, ".running_mean"), *variance = running(r, prefix, ".running_var");
    for (size_t c = 0; c < v->channels; c++) {
        moments m = r->training ? measure(v, c) : (moments){(double)mean[c], (double)variance[c]};
        for (size_t image = 0; image < IMAGES; image++) {
            double *values = v->values + (image * v->channels + c) * plane_of(v);
            for (size_t i = 0; i < plane_of(v); i++)
                values[i] = (values[i] - m.mean) / sqrt(m.variance + 1e-5) * scale[c] + shift[c];
        }
    }
}

static void rectify(volume *v)
{
    for (size_t i = 0; i < IMAGES * v->channels * plane_of(v); i++) v->values[i] = fmax(0.0, v->values[i]);
}

/* A convolution and its norm, called by the two names. */
static void step(const reference *r, const char *prefix, const char *const names[2], const volume *src, size_t filters,
                 size_t kernel, size_t stride, volume *dst)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", prefix, names[0]);
    convolve(r, name, src, filters, kernel, stride, dst);
    snprintf(name, sizeof name, "%s%s", prefix, names[1]);
    normalise(r, name, dst);
}

static const char *const first[2] = {"conv1", "bn1"}, *const second[2] = {"conv2", "bn2"},
                         *const third[2] = {"conv3", "bn3"}, *const projection[2] = {"downsample.0", "downsample.1"};

/* Windows of 3 x 3, two pixels apart, with one pixel around; all values are 0 or more. */
static void pool(const volume *src, volume *dst)
{
    dst->channels = src->channels;
    dst->side = (src->side + 1) / 2;
    for (size_t i = 0; i < IMAGES * dst->channels * plane_of(dst); i++) {
        size_t left = i % dst->side * 2 - 1, top = i / dst->side % dst->side * 2 - 1, plane = i / plane_of(dst);
        dst->values[i] = 0;
        for (size_t k = 0; k < 9; k++) {
            size_t row = top + k / 3, column = left + k % 3;
            if (row < src->side && column < src->side)
                dst->values[i] = fmax(dst->values[i], src->values[plane * plane_of(src) + row * src->side + column]);
        }
    }
}

static void add_all(const volume *src, volume *dst)
{
    for (size_t i = 0; i < IMAGES * dst->channels * plane_of(dst); i++) dst->values[i] += src->values[i];
}

/* Every second pixel; channels that are new have no shortcut. */
static void add_pixels(const volume *src, size_t stride, volume *dst)
{
    for (size_t i = 0; i < IMAGES * dst->channels * plane_of(dst); i++) {
        size_t x = i % dst->side * stride, y = i / dst->side % dst->side * stride,
               c = i / plane_of(dst) % dst->channels;
        size_t image = i / plane_of(dst) / dst->channels;
        if (c < src->channels)
            dst->values[i] += src->values[(image * src->channels + c) * plane_of(src) + y * src->side + x];
    }
}

/* ---- networks ---- */

/* What the three families of ResNets have of their own. */
typedef struct family {
    const char *name;
    size_t side;
    size_t stages, blocks[4], filters; /* of the first stage */
    int large;                         /* a stem, and shortcuts with a convolution */
    size_t widens;                     /* 1: blocks of two convolutions; else of three, and so many times wider */
} family;

static const family resnet20 = {"resnet20", 12, 3, {3, 3, 3}, 16, 0, 1};
static const family resnet18 = {"resnet18", 33, 4, {2, 2, 2, 2}, 64, 1, 1};
static const family resnet50 = {"resnet50", 33, 4, {3, 4, 6, 3}, 64, 1, 4};

/* As large networks have them: option B of the paper; as those of CIFAR have them: option A. */
static void add_shortcut(const reference *r, const family *f, const char *prefix, int changes, const volume *src,
                         size_t filters, size_t stride, volume *dst)
{
    static volume projected;
    if (!changes) add_all(src, dst);
    if (changes && !f->large) add_pixels(src, stride, dst);
    if (!changes || !f->large) return;
    step(r, prefix, projection, src, filters, 1, stride, &projected);
    add_all(&projected, dst);
}

static void block(const reference *r, const family *f, size_t stage, size_t index, volume *v)
{
    static volume a, b, c;
    char prefix[32];
    size_t filters = f->filters << stage, stride = stage > 0 && index == 0 ? 2 : 1, wide = f->widens * filters;
    snprintf(prefix, sizeof prefix, "layer%zu.%zu.", stage + 1, index);
    step(r, prefix, first, v, filters, f->widens > 1 ? 1 : 3, f->widens > 1 ? 1 : stride, &a);
    rectify(&a);
    step(r, prefix, second, &a, filters, 3, f->widens > 1 ? stride : 1, &b);
    if (f->widens > 1) {
        rectify(&b);
        step(r, prefix, third, &b, wide, 1, 1, &c);
    }
    volume *end = f->widens > 1 ? &c : &b;
    add_shortcut(r, f, prefix, stride > 1 || v->channels != wide, v, wide, stride, end);
    rectify(end);
    *v = *end;
}

static void stem(const reference *r, const family *f, volume *v)
{
    static volume a;
    step(r, "", first, v, f->filters, f->large ? 7 : 3, f->large ? 2 : 1, &a);
    rectify(&a);
    if (f->large)
        pool(&a, v);
    else
        *v = a;
}

static double logit(const reference *r, const volume *v, size_t image, size_t label)
{
    const double *weight = parameter(r, "fc", ".weight") + label * v->channels;
    double sum = parameter(r, "fc", ".bias")[label];
    for (size_t i = 0; i < v->channels * plane_of(v); i++)
        sum += v->values[image * v->channels * plane_of(v) + i] / (double)plane_of(v) * weight[i / plane_of(v)];
    return sum;
}

static double lose(const reference *r, const volume *v, const uint16_t *labels)
{
    double loss = 0;
    for (size_t image = 0; image < IMAGES; image++) {
        double sum = 0;
        for (size_t label = 0; label < CLASSES; label++) sum += exp(logit(r, v, image, label));
        loss += log(sum) - logit(r, v, image, labels[image]);
    }
    return loss;
}

enum { BLOCKS_MOST = 16 };

/* The loss, computed from block `from` on: what comes to it stands in entries[from], where an earlier call left it. 0
 * begins with the images. */
static double loss_from(const reference *r, const family *f, size_t from, const float *images, const uint16_t *labels)
{
    static volume entries[BLOCKS_MOST + 1], v;
    size_t number = 0;
    v.channels = 3;
    v.side = f->side;
    for (size_t i = 0; i < IMAGES * 3 * plane_of(&v); i++) v.values[i] = (double)images[i];
    if (from == 0) stem(r, f, &v);
    for (size_t stage = 0; stage < f->stages; stage++)
        for (size_t i = 0; i < f->blocks[stage]; i++, number++) {
            if (number < from) continue;
            if (number > 0 && number == from)
                v = entries[number];
            else
                entries[number] = v;
            block(r, f, stage, i, &v);
        }
    return lose(r, &v, labels);
}

/* The number of the block that a tensor stands in. */
static size_t block_of(const family *f, const char *name)
{
    unsigned stage, index;
    size_t number = 0;
    if (sscanf(name, "layer%u.%u.", &stage, &index) != 2) return 0;
    for (size_t i = 0; i + 1 < stage; i++) number += f->blocks[i];
    return number + index;
}

/* ---- tests ---- */

static double draw(uint64_t stream, size_t i)
{
    uint32_t words[4];
    tw_random(9, stream, i, words);
    return (double)words[0] * 0x1p-32;
}

static void randomise(float *values, size_t count, uint64_t stream, float low, float high)
{
    for (size_t i = 0; i < count; i++) values[i] = low + (high - low) * (float)draw(stream, i);
}

static const uint16_t labels[IMAGES] = {2, 9};

/* A network with norms that are not those it begins with, as a trained one has. */
static reference make(const family *f, float images[])
{
    model_shape shape = {3, f->side, f->side, CLASSES, IMAGES};
    reference r = {0};
    assert_int_equal(model_create(f->name, &shape, &r.net), TW_OK);
    model_initialise(r.net, 3);
    for (size_t t = 0, count; t < (model_tensors(r.net, &count), count); t++) {
        const tw_tensor *tensor = &model_tensors(r.net, &count)[t];
        if (tensor->dims == 1)
            randomise(model_parameters(r.net) + model_offset(r.net, t), tensor->shape[0], t, 0.2f, 0.8f);
    }
    randomise(model_buffers(r.net), model_buffer_count(r.net), 100, 0.5f, 1.5f);
    randomise(images, IMAGES * 3 * f->side * f->side, 101, -1.0f, 1.0f);
    size_t count = model_parameter_count(r.net);
    r.parameters = malloc(count * sizeof *r.parameters);
    assert_non_null(r.parameters);
    for (size_t i = 0; i < count; i++) r.parameters[i] = (double)model_parameters(r.net)[i];
    return r;
}

static void release(reference *r)
{
    free(r->parameters);
    model_destroy(r->net);
}

/* The mean loss's slope along a random direction of one tensor: by central differences, and by the gradient. */
static void check_slope(const family *f, reference *r, const float *images, const char *name)
{
    enum { STREAM = 200 };
    const double reach = 1e-7; /* a larger one comes across kinks of ReLU */
    size_t count, elements;
    const tw_tensor *tensors = model_tensors(r->net, &count);
    size_t at = find(tensors, count, name, "", &elements);
    double slope = 0, length = 0, losses[2];
    for (size_t i = 0; i < elements; i++) {
        slope += (draw(STREAM, i) - 0.5) * (double)model_gradients(r->net)[at + i];
        length += pow((double)model_gradients(r->net)[at + i], 2);
    }
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < elements; i++)
            r->parameters[at + i] =
                (double)model_parameters(r->net)[at + i] + (side ? reach : -reach) * (draw(STREAM, i) - 0.5);
        losses[side] = loss_from(r, f, block_of(f, name), images, labels) / IMAGES;
    }
    for (size_t i = 0; i < elements; i++) r->parameters[at + i] = (double)model_parameters(r->net)[at + i];
    double expected = (losses[1] - losses[0]) / (2 * reach);
    if (!(fabs(slope - expected) < 3e-5 * sqrt(length) + 1e-6))
        fail_msg("%s, %s: a slope of %.6g, expected %.6g", f->name, name, slope, expected);
}

static void check_loss(const family *f, double loss, const reference *r, const float *images)
{
    double expected = loss_from(r, f, 0, images, labels);
    if (!(fabs(loss - expected) < 1e-4 * expected))
        fail_msg("%s, training %d: %.9g, expected %.9g", f->name, r->training, loss, expected);
}

/* Evaluated with running statistics; and a step with the batch's, with the slopes of some tensors. */
static void check_family(const family *f, const char *const tensors[])
{
    static float images[IMAGES * 3 * SIDE_MOST * SIDE_MOST];
    model_result result = {0};
    reference r = make(f, images);
    assert_int_equal(model_evaluate(r.net, images, labels, IMAGES, &result), TW_OK);
    check_loss(f, result.loss, &r, images);
    r.training = 1;
    assert_int_equal(model_step(r.net, images, labels, IMAGES, NULL, NULL, &result), TW_OK);
    check_loss(f, result.loss, &r, images);
    for (; *tensors; tensors++) check_slope(f, &r, images, *tensors);
    release(&r);
}

TEST(resnet20_is_the_plain_loops)
{
    static const char *const tensors[] = {"conv1.weight", "layer2.0.conv1.weight", "layer3.2.bn2.bias", NULL};
    check_family(&resnet20, tensors);
}

TEST(resnet18_is_the_plain_loops)
{
    static const char *const tensors[] = {"layer2.0.downsample.0.weight", "layer3.0.downsample.1.weight",
                                          "layer4.1.bn2.bias", NULL};
    if (!in_part(0, 1)) skip();
    check_family(&resnet18, tensors);
}

TEST(resnet50_is_the_plain_loops)
{
    static const char *const tensors[] = {"layer3.0.conv2.weight", "layer4.0.downsample.0.weight",
                                          "layer4.2.bn3.weight", NULL};
    check_family(&resnet50, tensors);
}

RUN_TESTS(NULL, NULL)
