/* language_model.c - embedding, dropout, the stack, softmax; and back. */
#include "language_model.h"

#include "affine.h"
#include "buffer.h"
#include "cross_entropy.h"
#include "embedding.h"
#include "engine.h"
#include "recurrent.h"

#include <stdlib.h>
#include <string.h>

#define ZAREMBA "LSTM of Zaremba et al. 2014 "

const language_model_definition language_model_definitions[] = {
    {"small", ZAREMBA "(2 x 200, no dropout)", {2, 200, 200, 0, 1.0f, 0.1f}, 20, 20},
    {"medium", ZAREMBA "(2 x 650, half dropped)", {2, 650, 650, 0, 0.5f, 0.05f}, 35, 20},
    {"large", ZAREMBA "(2 x 1500, 65 % dropped)", {2, 1500, 1500, 0, 0.35f, 0.04f}, 35, 20},
    {"tied", "LSTM of Deep Gradient Compression (2 x 1500, tied)", {2, 1500, 1500, 1, 0.35f, 0.04f}, 35, 20},
    {0},
};

/* The flat state of all layers. */
typedef struct carried {
    float *values;
    size_t batch, count;
} carried;

struct language_model {
    language_model_config config;
    language_model_shape shape;
    nn_engine *engine;
    nn_table table;
    nn_range encoder; /* in the table: the first tensor */
    recurrent *stack;
    nn_affine decoder;
    parameter_set parameters;
    carried training, evaluation;
    nn_buffer embedded;        /* and, in backward, their gradients */
    nn_buffer hidden_gradient; /* of the stack's output */
    nn_buffer logits;          /* and, in a training step, their gradients */
};

const language_model_definition *language_model_find(const char *name)
{
    const language_model_definition *d = language_model_definitions;
    while (d->name && strcmp(d->name, name) != 0) d++;
    return d->name ? d : NULL;
}

/* ---- making ---- */

/* Sizes may come from a made-up file: they must not be such that a product of two wraps around. */
static int is_size(size_t size)
{
    return size > 0 && size <= INT32_MAX;
}

static tw_status check(const language_model_config *c, const language_model_shape *shape)
{
    if (!is_size(c->layers) || !is_size(c->hidden) || !is_size(c->embedding))
        return tw_fail(
            TW_ERROR_ARGUMENT,
            "a language model needs at least one layer, hidden cell and embedding feature, and fewer than 2^31, "
            "not %zu, %zu and %zu",
            c->layers, c->hidden, c->embedding);
    if (c->tied && c->embedding != c->hidden)
        return tw_fail(TW_ERROR_ARGUMENT, "tied weights need embedding = hidden, not %zu and %zu", c->embedding,
                       c->hidden);
    if (!(c->keep > 0.0f && c->keep <= 1.0f))
        return tw_fail(TW_ERROR_ARGUMENT, "the probability of keeping a value must be above 0 and at most 1, not %g",
                       (double)c->keep);
    if (shape->vocabulary < 2 || shape->vocabulary > INT32_MAX || shape->steps == 0 || shape->batch == 0)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "a language model needs 2 tokens or more, a step and a strip, not %zu, %zu and %zu",
                       shape->vocabulary, shape->steps, shape->batch);
    return TW_OK;
}

static tw_status allocate_state(const language_model_config *config, size_t batch, carried *state)
{
    size_t count = config->layers * 2 * batch * config->hidden;
    float *values = parameter_array(count);
    if (!values) return tw_fail(TW_ERROR_MEMORY, "no memory for the state of %zu strips", batch);
    free(state->values);
    *state = (carried){values, batch, count};
    return TW_OK;
}

static tw_status declare(language_model *m)
{
    const language_model_config *c = &m->config;
    const nn_declaration encoder = {"encoder",          "weight", 2, {m->shape.vocabulary, c->embedding},
                                    NN_INITIAL_UNIFORM, c->range};
    const recurrent_options stack = {
        .layers = c->layers, .inputs = c->embedding, .hidden = c->hidden, .range = c->range, .engine = m->engine};
    const nn_affine_options decoder = {"decoder", c->hidden, m->shape.vocabulary, c->range, c->range, m->engine};
    m->encoder = (nn_range){0, 1};
    TW_TRY(nn_table_declare(&m->table, &encoder));
    TW_TRY(recurrent_create(&stack, &m->table, &m->stack));
    if (c->tied) return nn_affine_declare_tied(&decoder, 0, &m->table, &m->decoder);
    return nn_affine_declare(&decoder, &m->table, &m->decoder);
}

static tw_status fill(language_model *m)
{
    TW_TRY(nn_engine_create(m->shape.precision, &m->engine));
    TW_TRY(declare(m));
    TW_TRY(parameter_set_allocate(&m->table, &m->parameters));
    return allocate_state(&m->config, m->shape.batch, &m->training);
}

tw_status language_model_create(const language_model_config *config, const language_model_shape *shape,
                                language_model **model)
{
    TW_TRY(check(config, shape));
    language_model *made = calloc(1, sizeof *made);
    if (!made) return tw_fail(TW_ERROR_MEMORY, "no memory for a language model");
    made->config = *config;
    made->shape = *shape;
    tw_status status = fill(made);
    if (status == TW_OK)
        *model = made;
    else
        language_model_destroy(made);
    return status;
}

void language_model_destroy(language_model *m)
{
    if (!m) return;
    recurrent_destroy(m->stack);
    nn_engine_destroy(m->engine);
    parameter_set_free(&m->parameters);
    nn_table_free(&m->table);
    free(m->training.values);
    free(m->evaluation.values);
    nn_buffer_free(&m->embedded);
    nn_buffer_free(&m->hidden_gradient);
    nn_buffer_free(&m->logits);
    free(m);
}

const parameter_set *language_model_parameters(const language_model *m)
{
    return &m->parameters;
}

void language_model_initialise(language_model *m, uint64_t seed)
{
    nn_table_initialise(&m->table, seed, m->parameters.values);
}

/* ---- state ---- */

float *language_model_state(language_model *m, size_t *count)
{
    *count = m->training.count;
    return m->training.values;
}

void language_model_reset(language_model *m)
{
    memset(m->training.values, 0, m->training.count * sizeof *m->training.values);
}

tw_status language_model_start_evaluation(language_model *m, size_t batch)
{
    if (batch == 0) return tw_fail(TW_ERROR_ARGUMENT, "an evaluation needs at least one strip");
    return allocate_state(&m->config, batch, &m->evaluation);
}

/* ---- running ---- */

/* One call on its way through the model. */
typedef struct pass {
    const language_model_text *text;
    const carried *state;
    float keep;
    nn_noise noise;
    size_t rows;
    const float *hidden; /* the stack's output */
} pass;

static tw_status check_tokens(const language_model *m, const pass *p)
{
    const int32_t size = (int32_t)m->shape.vocabulary, *targets = p->text->targets;
    if (p->text->steps == 0) return tw_fail(TW_ERROR_ARGUMENT, "a text needs at least one step");
    for (size_t i = 0; i < p->rows; i++) {
        int32_t token = p->text->tokens[i], target = targets ? targets[i] : NN_NO_TARGET;
        if (token < 0 || token >= size || target < NN_NO_TARGET || target >= size)
            return tw_fail(TW_ERROR_ARGUMENT, "place %zu has token %d and target %d; the vocabulary has %d tokens", i,
                           token, target, size);
    }
    return TW_OK;
}

static void drop_embedded(language_model *m, const pass *p)
{
    nn_dropout(&p->noise, 0, p->keep, m->embedded.values, p->rows * m->config.embedding);
}

static tw_status reserve(language_model *m, const pass *p)
{
    TW_TRY(nn_buffer_reserve(&m->embedded, p->rows * m->config.embedding));
    TW_TRY(nn_buffer_reserve(&m->hidden_gradient, p->rows * m->config.hidden));
    return nn_buffer_reserve(&m->logits, p->rows * m->shape.vocabulary);
}

static tw_status forward(language_model *m, pass *p)
{
    const float *values = m->parameters.values;
    p->rows = p->text->steps * p->state->batch;
    TW_TRY(check_tokens(m, p));
    TW_TRY(reserve(m, p));
    nn_engine_enter();
    nn_embedding_forward(values, m->config.embedding, p->text->tokens, p->rows, m->embedded.values);
    drop_embedded(m, p);
    const recurrent_batch batch = {.steps = p->text->steps,
                                   .batch = p->state->batch,
                                   .x = m->embedded.values,
                                   .state = p->state->values,
                                   .keep = p->keep,
                                   .noise = p->noise};
    TW_TRY(recurrent_forward(m->stack, values, &batch, &p->hidden));
    return nn_affine_forward(&m->decoder, values, p->rows, p->hidden, m->logits.values);
}

/* Both uses of a tied matrix add to its gradient, which is complete only at the very end. */
static tw_status backward(language_model *m, const pass *p, nn_gradient_ready ready, void *context)
{
    float *gradients = m->parameters.gradients;
    const float *values = m->parameters.values;
    const recurrent_gradients stack = {.y = m->hidden_gradient.values,
                                       .x = m->embedded.values,
                                       .parameters = gradients,
                                       .ready = ready,
                                       .context = context};
    TW_TRY(nn_affine_backward_parameters(&m->decoder, p->rows, p->hidden, m->logits.values, gradients));
    TW_TRY(nn_table_announce(&m->table, m->decoder.parameters, gradients, ready, context));
    TW_TRY(nn_affine_backward_source(&m->decoder, values, p->rows, m->logits.values, m->hidden_gradient.values));
    TW_TRY(recurrent_backward(m->stack, values, &stack));
    drop_embedded(m, p);
    if (!m->config.tied) memset(gradients, 0, nn_table_elements(&m->table, 0) * sizeof *gradients);
    nn_embedding_backward(m->embedded.values, m->config.embedding, p->text->tokens, p->rows, gradients);
    return nn_table_announce(&m->table, m->encoder, gradients, ready, context);
}

tw_status language_model_step(language_model *m, const language_model_text *text, const nn_noise *noise,
                              nn_gradient_ready ready, void *context, language_model_result *result)
{
    pass p = {.text = text, .state = &m->training, .keep = m->config.keep, .noise = *noise};
    if (text->steps > m->shape.steps)
        return tw_fail(TW_ERROR_ARGUMENT, "the language model was made for %zu steps a call, not %zu", m->shape.steps,
                       text->steps);
    TW_TRY(forward(m, &p));
    nn_loss loss = nn_cross_entropy(m->logits.values, text->targets, p.rows, m->shape.vocabulary, m->logits.values);
    *result = (language_model_result){loss.sum, loss.counted};
    return backward(m, &p, ready, context);
}

tw_status language_model_evaluate(language_model *m, const language_model_text *text, language_model_result *result)
{
    pass p = {.text = text, .state = &m->evaluation, .keep = 1.0f};
    if (!m->evaluation.values)
        return tw_fail(TW_ERROR_ORDER, "language_model_start_evaluation comes before language_model_evaluate");
    TW_TRY(forward(m, &p));
    if (!text->targets || !result) return TW_OK;
    nn_loss loss = nn_cross_entropy(m->logits.values, text->targets, p.rows, m->shape.vocabulary, NULL);
    *result = (language_model_result){loss.sum, loss.counted};
    return TW_OK;
}

const float *language_model_logits(const language_model *m)
{
    return m->logits.values;
}
