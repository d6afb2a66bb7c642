/* model.c - model.h on nets. A net is built for one number of images; a model keeps one for the full batch and a few
 * for smaller calls (the tails of an epoch and of an evaluation). They take turns on the same arrays. */
#include "model.h"

#include "cross_entropy.h"
#include "definition.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SMALLER_NETS = 3 };

struct model {
    const model_definition *definition;
    model_shape shape;
    nn_net *full;
    struct {
        nn_net *net;
        size_t images;
    } smaller[SMALLER_NETS];
    size_t oldest; /* of the smaller ones: the next to be replaced */
    nn_arrays arrays;
    size_t arena_bytes;
};

const char *model_name(size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (!model_definitions[i].name) return NULL;
    return model_definitions[index].name;
}

const char *model_summary(size_t index)
{
    return model_name(index) ? model_definitions[index].summary : NULL;
}

/* ---- making ---- */

static tw_status unknown(const char *name)
{
    char names[256] = "";
    for (const model_definition *d = model_definitions; d->name; d++) {
        if (*names) strncat(names, ", ", sizeof names - strlen(names) - 1);
        strncat(names, d->name, sizeof names - strlen(names) - 1);
    }
    return tw_fail(TW_ERROR_ARGUMENT, "there is no model \"%s\"; there are %s", name, names);
}

static const model_definition *find(const char *name)
{
    const model_definition *d = model_definitions;
    while (d->name && strcmp(d->name, name) != 0) d++;
    return d->name ? d : NULL;
}

const char *model_schedule(const char *name)
{
    const model_definition *d = find(name);
    return d ? d->schedule : NULL;
}

static tw_status build(const model *m, size_t images, nn_net **net)
{
    nn_input input = {images, m->shape.channels, m->shape.height, m->shape.width};
    TW_TRY(nn_net_create(&input, net));
    TW_TRY(m->definition->build(*net, m->definition->depth, m->shape.classes));
    return nn_net_finish(*net);
}

static void *allocate(size_t bytes)
{
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static float *allocate_floats(size_t count)
{
    float *values = allocate((count ? count : 1) * sizeof *values);
    if (values) memset(values, 0, count * sizeof *values);
    return values;
}

/* Makes the arena large enough; what was in it does not matter. Large pages spare the processor a table walk for
 * nearly every row of an image. */
static tw_status fit_arena(model *m, size_t bytes)
{
    const size_t page = (size_t)2 << 20;
    if (bytes <= m->arena_bytes) return TW_OK;
    free(m->arrays.arena);
    m->arena_bytes = (bytes + page - 1) / page * page;
    m->arrays.arena = aligned_alloc(page, m->arena_bytes);
    if (!m->arrays.arena) {
        m->arena_bytes = 0;
        return tw_fail(TW_ERROR_MEMORY, "no memory for the activations of %s: %zu MB", m->definition->name,
                       bytes >> 20);
    }
    madvise(m->arrays.arena, m->arena_bytes, MADV_HUGEPAGE);
    return TW_OK;
}

static tw_status fill(model *m)
{
    TW_TRY(build(m, m->shape.batch, &m->full));
    size_t parameters = nn_net_parameters(m->full)->elements;
    m->arrays.parameters = allocate_floats(parameters);
    m->arrays.gradients = allocate_floats(parameters);
    m->arrays.buffers = allocate_floats(nn_net_buffers(m->full)->elements);
    if (!m->arrays.parameters || !m->arrays.gradients || !m->arrays.buffers)
        return tw_fail(TW_ERROR_MEMORY, "no memory for the parameters of %s", m->definition->name);
    return fit_arena(m, nn_net_arena_bytes(m->full));
}

tw_status model_create(const char *name, const model_shape *shape, model **out)
{
    const model_definition *definition = find(name);
    if (!definition) return unknown(name);
    if (shape->batch == 0 || shape->classes < 2)
        return tw_fail(TW_ERROR_ARGUMENT, "a model needs a batch of 1 or more and 2 classes or more, not %zu and %zu",
                       shape->batch, shape->classes);
    model *m = calloc(1, sizeof *m);
    if (!m) return tw_fail(TW_ERROR_MEMORY, "no memory for a model");
    m->definition = definition;
    m->shape = *shape;
    tw_status status = fill(m);
    if (status == TW_OK)
        *out = m;
    else
        model_destroy(m);
    return status;
}

void model_destroy(model *m)
{
    if (!m) return;
    nn_net_destroy(m->full);
    for (size_t i = 0; i < SMALLER_NETS; i++) nn_net_destroy(m->smaller[i].net);
    free(m->arrays.parameters);
    free(m->arrays.gradients);
    free(m->arrays.buffers);
    free(m->arrays.arena);
    free(m);
}

/* ---- tables ---- */

const tw_tensor *model_tensors(const model *m, size_t *count)
{
    *count = nn_net_parameters(m->full)->count;
    return nn_net_parameters(m->full)->tensors;
}

float *model_parameters(model *m)
{
    return m->arrays.parameters;
}

float *model_gradients(model *m)
{
    return m->arrays.gradients;
}

size_t model_offset(const model *m, size_t index)
{
    return nn_net_parameters(m->full)->offsets[index];
}

size_t model_parameter_count(const model *m)
{
    return nn_net_parameters(m->full)->elements;
}

const tw_tensor *model_buffer_tensors(const model *m, size_t *count)
{
    *count = nn_net_buffers(m->full)->count;
    return nn_net_buffers(m->full)->tensors;
}

float *model_buffers(model *m)
{
    return m->arrays.buffers;
}

size_t model_buffer_count(const model *m)
{
    return nn_net_buffers(m->full)->elements;
}

/* ---- initial values ---- */

static size_t elements_of(const nn_table *table, size_t index)
{
    size_t end = index + 1 < table->count ? table->offsets[index + 1] : table->elements;
    return end - table->offsets[index];
}

static void fill_with(float *values, size_t count, float value)
{
    for (size_t i = 0; i < count; i++) values[i] = value;
}

/* Two normal numbers from two uniform words (Box and Muller, 1958). */
static void normal_pair(const uint32_t words[2], double pair[2])
{
    const double two_pi = 6.283185307179586;
    double radius = sqrt(-2.0 * log((words[0] + 1.0) * 0x1p-32)), angle = two_pi * words[1] * 0x1p-32;
    pair[0] = radius * cos(angle);
    pair[1] = radius * sin(angle);
}

static void fill_normal(float *values, size_t count, double deviation, uint64_t seed, uint64_t stream)
{
    for (size_t i = 0; i < count; i += 4) {
        uint32_t words[4];
        double normal[4];
        tw_random(seed, stream, i / 4, words);
        normal_pair(words, normal);
        normal_pair(words + 2, normal + 2);
        for (size_t j = 0; j < 4 && i + j < count; j++) values[i + j] = (float)(deviation * normal[j]);
    }
}

static void initialise(const nn_table *table, size_t index, uint64_t seed, float *values)
{
    size_t count = elements_of(table, index), fan_in = count / table->tensors[index].shape[0];
    switch (table->initials[index]) {
    case NN_INITIAL_ZERO:
        fill_with(values, count, 0.0f);
        break;
    case NN_INITIAL_ONE:
        fill_with(values, count, 1.0f);
        break;
    case NN_INITIAL_HE:
        fill_normal(values, count, sqrt(2.0 / (double)fan_in), seed, index);
        break;
    case NN_INITIAL_TIMID:
        fill_normal(values, count, 0.2 * sqrt(2.0 / (double)fan_in), seed, index);
        break;
    }
}

static void initialise_all(const nn_table *table, uint64_t seed, float *values)
{
    for (size_t i = 0; i < table->count; i++) initialise(table, i, seed, values + table->offsets[i]);
}

void model_initialise(model *m, uint64_t seed)
{
    initialise_all(nn_net_parameters(m->full), seed, m->arrays.parameters);
    initialise_all(nn_net_buffers(m->full), seed, m->arrays.buffers);
}

/* ---- running ---- */

static tw_status smaller_net(model *m, size_t images, nn_net **net)
{
    for (size_t i = 0; i < SMALLER_NETS; i++) {
        if (m->smaller[i].net && m->smaller[i].images == images) {
            *net = m->smaller[i].net;
            return TW_OK;
        }
    }
    size_t place = m->oldest;
    m->oldest = (place + 1) % SMALLER_NETS;
    nn_net_destroy(m->smaller[place].net);
    m->smaller[place].net = NULL;
    m->smaller[place].images = 0;
    TW_TRY(build(m, images, &m->smaller[place].net));
    m->smaller[place].images = images;
    *net = m->smaller[place].net;
    return TW_OK;
}

/* The net for a call of `images`, on the model's arrays. */
static tw_status take_net(model *m, size_t images, nn_net **net)
{
    if (images == 0 || images > m->shape.batch)
        return tw_fail(TW_ERROR_ARGUMENT, "the model was made for 1 to %zu images a call, not %zu", m->shape.batch,
                       images);
    *net = m->full;
    if (images < m->shape.batch) TW_TRY(smaller_net(m, images, net));
    TW_TRY(fit_arena(m, nn_net_arena_bytes(*net)));
    return nn_net_bind(*net, &m->arrays);
}

static tw_status check_labels(const model *m, const uint8_t *labels, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (labels[i] >= m->shape.classes)
            return tw_fail(TW_ERROR_ARGUMENT, "image %zu has label %u; the model has %zu classes", i, labels[i],
                           m->shape.classes);
    return TW_OK;
}

static tw_status run(model *m, const float *images, const uint8_t *labels, size_t count, int training, nn_net **net,
                     model_result *result)
{
    TW_TRY(take_net(m, count, net));
    TW_TRY(check_labels(m, labels, count));
    TW_TRY(nn_net_forward(*net, images, training));
    float *gradient = training ? nn_net_output_gradient(*net) : NULL;
    nn_loss loss = nn_cross_entropy(nn_net_output(*net), labels, count, m->shape.classes, gradient);
    *result = (model_result){loss.sum, loss.correct, count};
    return TW_OK;
}

tw_status model_step(model *m, const float *images, const uint8_t *labels, size_t count, model_gradient_ready ready,
                     void *context, model_result *result)
{
    nn_net *net = NULL;
    TW_TRY(run(m, images, labels, count, 1, &net, result));
    return nn_net_backward(net, ready, context);
}

tw_status model_evaluate(model *m, const float *images, const uint8_t *labels, size_t count, model_result *result)
{
    nn_net *net = NULL;
    return run(m, images, labels, count, 0, &net, result);
}
