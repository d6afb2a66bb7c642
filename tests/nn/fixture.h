/* fixture.h - a net with arrays of its own, random parameters and random images. */
#ifndef TEST_NN_FIXTURE_H
#define TEST_NN_FIXTURE_H

#include "net.h"
#include "support/assert.h"
#include "support/random.h"

typedef tw_status (*build_function)(nn_net *net);

typedef struct fixture {
    nn_net *net;
    nn_arrays arrays;
    nn_input input;
    float *images;
    size_t parameters, outputs; /* outputs: floats of all images */
} fixture;

/* Scaled so that values neither grow nor shrink from layer to layer. */
static inline float *random_parameters(const nn_table *table)
{
    float *values = random_floats(2, table->elements);
    for (size_t t = 0; t < table->count; t++) {
        const tw_tensor *tensor = &table->tensors[t];
        size_t end = t + 1 < table->count ? table->offsets[t + 1] : table->elements;
        float fan_in = (float)(end - table->offsets[t]) / (float)tensor->shape[0];
        for (size_t i = table->offsets[t]; tensor->dims > 1 && i < end; i++) values[i] *= sqrtf(6.0f / fan_in);
    }
    return values;
}

static inline fixture open_fixture_in(nn_precision precision, nn_input input, build_function build, size_t outputs)
{
    fixture f = {.input = input, .outputs = input.images * outputs};
    assert_ok(nn_net_create(&input, precision, &f.net));
    assert_ok(build(f.net));
    assert_ok(nn_net_finish(f.net));
    f.parameters = nn_net_parameters(f.net)->elements;
    f.images = random_floats(1, input.images * input.channels * input.height * input.width);
    f.arrays.parameters = random_parameters(nn_net_parameters(f.net));
    f.arrays.gradients = random_floats(3, f.parameters); /* old values must not matter */
    f.arrays.buffers = calloc(nn_net_buffers(f.net)->elements + 1, sizeof(float));
    f.arrays.arena = aligned_alloc(64, nn_net_arena_bytes(f.net));
    assert_ok(nn_net_bind(f.net, &f.arrays));
    memset(f.arrays.arena, 0x7f, nn_net_arena_bytes(f.net)); /* nor may the arena's, which nets share */
    return f;
}

static inline fixture open_fixture(nn_input input, build_function build, size_t outputs)
{
    return open_fixture_in(NN_FP32, input, build, outputs);
}

static inline void close_fixture(fixture *f)
{
    nn_net_destroy(f->net);
    free(f->images);
    free(f->arrays.parameters);
    free(f->arrays.gradients);
    free(f->arrays.buffers);
    free(f->arrays.arena);
}

/* The values of a parameter or a buffer by name. */
static inline float *named(const nn_table *table, float *values, const char *name)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->tensors[i].name, name) == 0) return values + table->offsets[i];
    fail_msg("no tensor is named %s", name);
    return NULL;
}

static inline float *parameter(const fixture *f, const char *name)
{
    return named(nn_net_parameters(f->net), f->arrays.parameters, name);
}

static inline float *buffer(const fixture *f, const char *name)
{
    return named(nn_net_buffers(f->net), f->arrays.buffers, name);
}

/* A 1x1 convolution with the identity as weights hands the images on to the layer under test. */
static inline tw_status identity_convolution(nn_net *net, size_t channels)
{
    return nn_convolution(net, "id", &(nn_convolution_options){.filters = channels, .kernel = 1, .stride = 1});
}

static inline void set_identity(const fixture *f)
{
    size_t channels = f->input.channels;
    float *weight = parameter(f, "id.weight");
    for (size_t i = 0; i < channels * channels; i++) weight[i] = i % (channels + 1) == 0 ? 1.0f : 0.0f;
}

#endif
