/* bench_workload.c - three kinds of network behind one step. */
#include "bench_workload.h"

#include "error.h"
#include "language_model.h"
#include "model.h"
#include "recurrent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *random_floats(size_t count)
{
    float *values = malloc(count * sizeof *values);
    for (size_t i = 0; values && i < count; i++) {
        uint32_t words[4];
        tw_random(2, 0, i, words);
        values[i] = (float)words[0] / 2147483648.0f - 1;
    }
    return values;
}

/* ---- images ---- */

typedef struct image_workload {
    workload base;
    model *net;
    float *images;
    uint16_t *labels;
} image_workload;

static tw_status step_images(workload *w)
{
    image_workload *i = (image_workload *)w;
    model_result result;
    return model_step(i->net, i->images, i->labels, w->batch, NULL, NULL, &result);
}

static void destroy_images(workload *w)
{
    image_workload *i = (image_workload *)w;
    model_destroy(i->net);
    free(i->images);
    free(i->labels);
    free(i);
}

static tw_status fill_images(const workload_options *o, image_workload *i)
{
    enum { CLASSES = 10, USUAL_BATCH = 128 };
    workload *w = &i->base;
    *w = (workload){step_images, destroy_images, "images", o->batch ? o->batch : USUAL_BATCH, o->size};
    w->items_per_step = (double)w->batch;
    const model_shape shape = {o->channels, o->size, o->size, CLASSES, w->batch, o->precision};
    TW_TRY(model_create(o->model, &shape, &i->net));
    model_initialise(i->net, 1);
    w->parameters = model_parameters(i->net);
    w->gradients = model_gradients(i->net);
    w->parameter_count = model_parameter_count(i->net);
    i->images = random_floats(w->batch * o->channels * o->size * o->size);
    i->labels = malloc(w->batch * sizeof *i->labels);
    if (!i->images || !i->labels) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu images", w->batch);
    for (size_t k = 0; k < w->batch; k++) i->labels[k] = (uint16_t)(k % CLASSES);
    return TW_OK;
}

/* ---- language models ---- */

enum { VOCABULARY = 10000 };
static const char language_prefix[] = "lm-";

typedef struct language_workload {
    workload base;
    language_model *net;
    int32_t *tokens; /* one step more than a call takes: the last are targets only */
    nn_noise noise;
} language_workload;

static tw_status step_language(workload *w)
{
    language_workload *l = (language_workload *)w;
    const language_model_text text = {l->tokens, l->tokens + w->batch, w->size};
    language_model_result result;
    l->noise.step++;
    return language_model_step(l->net, &text, &l->noise, NULL, NULL, &result);
}

static void destroy_language(workload *w)
{
    language_workload *l = (language_workload *)w;
    language_model_destroy(l->net);
    free(l->tokens);
    free(l);
}

static void take_parameters(workload *w, const parameter_set *set)
{
    w->parameters = set->values;
    w->gradients = set->gradients;
    w->parameter_count = set->table->elements;
}

static tw_status fill_language(const workload_options *o, const language_model_definition *d, language_workload *l)
{
    workload *w = &l->base;
    *w = (workload){step_language, destroy_language, "tokens", o->batch ? o->batch : d->batch, d->steps};
    w->items_per_step = (double)(w->batch * w->size);
    TW_TRY(language_model_create(&d->config, &(language_model_shape){VOCABULARY, w->size, w->batch, o->precision},
                                 &l->net));
    language_model_initialise(l->net, 1);
    take_parameters(w, language_model_parameters(l->net));
    size_t count = (w->size + 1) * w->batch;
    l->tokens = malloc(count * sizeof *l->tokens);
    if (!l->tokens) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu tokens", count);
    for (size_t i = 0; i < count; i++) l->tokens[i] = (int32_t)(i * 7919 % VOCABULARY);
    return TW_OK;
}

/* ---- LSTM layers ---- */

typedef struct lstm_definition {
    const char *name;
    recurrent_options options;
    size_t steps, batch;
} lstm_definition;

static const lstm_definition lstm_definitions[] = {
    {"lstm-2x650", {.layers = 2, .inputs = 650, .hidden = 650, .range = 0.05f}, 35, 20},
    {"bilstm-2x256", {.layers = 2, .inputs = 256, .hidden = 256, .bidirectional = 1, .range = 0.05f}, 200, 16},
};
enum { LSTM_DEFINITIONS = sizeof lstm_definitions / sizeof *lstm_definitions };

typedef struct lstm_workload {
    workload base;
    nn_engine *engine;
    nn_table table;
    recurrent *stack;
    parameter_set parameters;
    float *x, *x_gradient, *y_gradient;
    size_t y_count;
} lstm_workload;

/* The loss is the sum of the outputs. */
static tw_status step_lstm(workload *w)
{
    lstm_workload *l = (lstm_workload *)w;
    const recurrent_batch batch = {.steps = w->size, .batch = w->batch, .x = l->x, .keep = 1.0f};
    const recurrent_gradients gradients = {.y = l->y_gradient, .x = l->x_gradient, .parameters = w->gradients};
    const float *y;
    TW_TRY(recurrent_forward(l->stack, w->parameters, &batch, &y));
    for (size_t i = 0; i < l->y_count; i++) l->y_gradient[i] = 1.0f;
    return recurrent_backward(l->stack, w->parameters, &gradients);
}

static void destroy_lstm(workload *w)
{
    lstm_workload *l = (lstm_workload *)w;
    recurrent_destroy(l->stack);
    nn_engine_destroy(l->engine);
    parameter_set_free(&l->parameters);
    nn_table_free(&l->table);
    free(l->x);
    free(l->x_gradient);
    free(l->y_gradient);
    free(l);
}

static tw_status fill_lstm(const workload_options *o, const lstm_definition *d, lstm_workload *l)
{
    workload *w = &l->base;
    *w = (workload){step_lstm, destroy_lstm, "frames", o->batch ? o->batch : d->batch, d->steps};
    size_t rows = w->batch * w->size;
    w->items_per_step = (double)rows;
    recurrent_options stack = d->options;
    TW_TRY(nn_engine_create(o->precision, &l->engine));
    stack.engine = l->engine;
    TW_TRY(recurrent_create(&stack, &l->table, &l->stack));
    TW_TRY(parameter_set_allocate(&l->table, &l->parameters));
    nn_table_initialise(&l->table, 1, l->parameters.values);
    take_parameters(w, &l->parameters);
    l->y_count = rows * recurrent_width(l->stack);
    l->x = random_floats(rows * d->options.inputs);
    l->x_gradient = random_floats(rows * d->options.inputs);
    l->y_gradient = random_floats(l->y_count);
    if (!l->x || !l->x_gradient || !l->y_gradient)
        return tw_fail(TW_ERROR_MEMORY, "no memory for %zu sequences", w->batch);
    return TW_OK;
}

/* ---- by name ---- */

static const lstm_definition *find_lstm(const char *name)
{
    for (size_t i = 0; i < LSTM_DEFINITIONS; i++)
        if (strcmp(lstm_definitions[i].name, name) == 0) return &lstm_definitions[i];
    return NULL;
}

static const language_model_definition *find_language(const char *name)
{
    const size_t length = strlen(language_prefix);
    return strncmp(name, language_prefix, length) == 0 ? language_model_find(name + length) : NULL;
}

static void bench_workload_append(char *text, size_t room, const char *before, const char *prefix, const char *name)
{
    size_t used = strlen(text);
    snprintf(text + used, room - used, "%s%s%s", before, prefix, name);
}

static tw_status refuse_model(const char *name)
{
    char names[512] = "";
    for (size_t i = 0; i < LSTM_DEFINITIONS; i++)
        bench_workload_append(names, sizeof names, i ? ", " : "", "", lstm_definitions[i].name);
    for (const language_model_definition *d = language_model_definitions; d->name; d++)
        bench_workload_append(names, sizeof names, ", ", language_prefix, d->name);
    for (size_t i = 0; model_name(i); i++) bench_workload_append(names, sizeof names, ", ", "", model_name(i));
    return tw_fail(TW_ERROR_ARGUMENT, "there is no model \"%.100s\"; there are %s", name, names);
}

tw_status workload_create(const workload_options *options, workload **w)
{
    const lstm_definition *lstm = find_lstm(options->model);
    const language_model_definition *language = find_language(options->model);
    if (!lstm && !language && !model_exists(options->model)) return refuse_model(options->model);
    const size_t bytes = lstm ? sizeof(lstm_workload) : language ? sizeof(language_workload) : sizeof(image_workload);
    void *made = calloc(1, bytes);
    if (!made) return tw_fail(TW_ERROR_MEMORY, "no memory for a benchmark");
    tw_status status = lstm       ? fill_lstm(options, lstm, made)
                       : language ? fill_language(options, language, made)
                                  : fill_images(options, made);
    *w = made;
    if (status == TW_OK) return TW_OK;
    (*w)->destroy(*w);
    *w = NULL;
    return status;
}
