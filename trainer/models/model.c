/* model.c - model.h on nets. A net is built for one number of images; a model keeps one for the full batch and a few
 * for smaller calls (the tails of an epoch and of an evaluation). They take turns on the same arrays. */
#include "model.h"

#include "buffer.h"
#include "cross_entropy.h"
#include "definition.h"
#include "parameters.h"
#include "words.h"

#include <stdlib.h>
#include <string.h>

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
    parameter_set parameters;
    float *buffers;
    int32_t *targets; /* the labels of a call, as the loss takes them */
    nn_buffer arena;
};

const char *model_name(size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (!model_definitions[i]) return NULL;
    return model_definitions[index] ? model_definitions[index]->name : NULL;
}

const char *model_summary(size_t index)
{
    return model_name(index) ? model_definitions[index]->summary : NULL;
}

/* ---- making ---- */

static const model_definition *model_find(const char *name)
{
    const model_definition *const *d = model_definitions;
    while (*d && strcmp((*d)->name, name) != 0) d++;
    return *d;
}

int model_exists(const char *name)
{
    return model_find(name) != NULL;
}

const char *model_schedule(const char *name)
{
    const model_definition *d = model_find(name);
    return d ? d->schedule : NULL;
}

static tw_status model_build(const model *m, size_t images, nn_net **net)
{
    nn_input input = {images, m->shape.channels, m->shape.height, m->shape.width};
    TW_TRY(nn_net_create(&input, m->shape.precision, net));
    TW_TRY(m->definition->build(*net, m->definition->depth, m->shape.classes));
    if (nn_net_outputs(*net) != m->shape.classes)
        return tw_fail(TW_ERROR_ARGUMENT, "model %s needs an output for each of %zu classes; its last layer has %zu",
                       m->definition->name, m->shape.classes, nn_net_outputs(*net));
    TW_TRY(nn_net_finish(*net));
    return nn_net_hold(*net, m->shape.stage);
}

static tw_status model_check_size(const model *m)
{
    size_t count = nn_net_parameters(m->full)->elements;
    if (!m->shape.most_parameters || count <= m->shape.most_parameters) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "it is of a network with %zu weights, but holds %zu", count,
                   m->shape.most_parameters);
}

static tw_status model_fill(model *m)
{
    TW_TRY(model_build(m, m->shape.batch, &m->full));
    TW_TRY(model_check_size(m));
    TW_TRY(parameter_set_allocate(nn_net_parameters(m->full), &m->parameters));
    m->buffers = parameter_array(nn_net_buffers(m->full)->elements);
    m->targets = calloc(m->shape.batch, sizeof *m->targets);
    if (!m->targets) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu labels", m->shape.batch);
    if (!m->buffers) return tw_fail(TW_ERROR_MEMORY, "no memory for the statistics of %s", m->definition->name);
    return nn_buffer_reserve(&m->arena, nn_net_arena_bytes(m->full) / sizeof(float));
}

tw_status model_create(const char *name, const model_shape *shape, model **out)
{
    const model_definition *definition = model_find(name);
    if (!definition) return words_refuse("model", name, strlen(name), model_name);
    if (shape->batch == 0 || shape->classes < 2)
        return tw_fail(TW_ERROR_ARGUMENT, "a model needs a batch of 1 or more and 2 classes or more, not %zu and %zu",
                       shape->batch, shape->classes);
    model *m = calloc(1, sizeof *m);
    if (!m) return tw_fail(TW_ERROR_MEMORY, "no memory for a model");
    m->definition = definition;
    m->shape = *shape;
    tw_status status = model_fill(m);
    if (status == TW_OK)
        *out = m;
    else
        model_destroy(m);
    return status;
}

void model_destroy(model *m)
{
    if (!m) return;
    parameter_set_free(&m->parameters);
    nn_net_destroy(m->full);
    for (size_t i = 0; i < SMALLER_NETS; i++) nn_net_destroy(m->smaller[i].net);
    free(m->buffers);
    free(m->targets);
    nn_buffer_free(&m->arena);
    free(m);
}

/* ---- tables ---- */

const tw_tensor *model_tensors(const model *m, size_t *count)
{
    *count = nn_net_parameters(m->full)->count;
    return nn_net_parameters(m->full)->tensors;
}

const nn_unit *model_units(const model *m, size_t *count)
{
    return nn_net_units(m->full, count);
}

float *model_parameters(model *m)
{
    return m->parameters.values;
}

float *model_gradients(model *m)
{
    return m->parameters.gradients;
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
    return m->buffers;
}

size_t model_buffer_count(const model *m)
{
    return nn_net_buffers(m->full)->elements;
}

tw_status model_page(model *m, pager *by)
{
    return nn_net_page(m->full, by, m->parameters.values, m->parameters.gradients);
}

tw_status model_initialise(model *m, uint64_t seed)
{
    TW_TRY(nn_table_initialise(nn_net_parameters(m->full), seed, m->parameters.values));
    return nn_table_initialise(nn_net_buffers(m->full), seed, m->buffers);
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
    TW_TRY(model_build(m, images, &m->smaller[place].net));
    nn_net_page_like(m->smaller[place].net, m->full);
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
    TW_TRY(nn_buffer_reserve(&m->arena, nn_net_arena_bytes(*net) / sizeof(float)));
    nn_arrays arrays = {m->parameters.values, m->parameters.gradients, m->buffers, m->arena.values};
    return nn_net_bind(*net, &arrays);
}

static tw_status take_labels(model *m, const uint16_t *labels, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (labels[i] >= m->shape.classes)
            return tw_fail(TW_ERROR_ARGUMENT, "image %zu has label %u; the model has %zu classes", i, labels[i],
                           m->shape.classes);
        m->targets[i] = labels[i];
    }
    return TW_OK;
}

/* Forward. *back: whether a training call goes back. */
static tw_status model_run(model *m, const float *images, const uint16_t *labels, size_t count, int training,
                           nn_net **net, model_result *result, int *back)
{
    TW_TRY(take_net(m, count, net));
    TW_TRY(take_labels(m, labels, count));
    TW_TRY(nn_net_forward(*net, images, training));
    *back = 1;
    *result = (model_result){0};
    if (nn_net_goes_on(*net)) return nn_net_send(*net, training, back);
    float *gradient = training ? nn_net_output_gradient(*net) : NULL;
    nn_loss loss = nn_cross_entropy(nn_net_output(*net), m->targets, count, m->shape.classes, gradient);
    *result = (model_result){loss.sum, loss.correct, count};
    return TW_OK;
}

tw_status model_step(model *m, const float *images, const uint16_t *labels, size_t count, model_gradient_ready ready,
                     void *context, model_result *result)
{
    nn_net *net = NULL;
    int back;
    TW_TRY(model_run(m, images, labels, count, 1, &net, result, &back));
    return back ? nn_net_backward(net, ready, context) : TW_OK;
}

tw_status model_evaluate(model *m, const float *images, const uint16_t *labels, size_t count, model_result *result)
{
    nn_net *net = NULL;
    int back;
    return model_run(m, images, labels, count, 0, &net, result, &back);
}

tw_status model_predict(model *m, const float *images, size_t count, double *probabilities)
{
    nn_net *net = NULL;
    TW_TRY(take_net(m, count, &net));
    TW_TRY(nn_net_forward(net, images, 0));
    nn_probabilities(nn_net_output(net), count, m->shape.classes, probabilities);
    return TW_OK;
}
