/* language_model.c - embedding, dropout, the stack, softmax; and back. */
#include "language_model.h"

#include "affine.h"
#include "buffer.h"
#include "cross_entropy.h"
#include "embedding.h"
#include "engine.h"
#include "recurrent.h"
#include "transformer.h"

#include <stdlib.h>
#include <string.h>

#define LSTM(cells, is_tied, kept, reach)                                                                              \
    .config = {.layers = 2, .hidden = cells, .embedding = cells, .tied = is_tied, .keep = kept, .range = reach}
#define ZAREMBA "LSTM of Zaremba et al. 2014 "

/* The transformer's range has the deviation of GPT-2's weights, 0.02. */
const language_model_definition language_model_definitions[] = {
    {"small", ZAREMBA "(2 x 200, no dropout)", LSTM(200, 0, 1.0f, 0.1f), .steps = 20, .batch = 20},
    {"medium", ZAREMBA "(2 x 650, half dropped)", LSTM(650, 0, 0.5f, 0.05f), .steps = 35, .batch = 20},
    {"large", ZAREMBA "(2 x 1500, 65 % dropped)", LSTM(1500, 0, 0.35f, 0.04f), .steps = 35, .batch = 20},
    {"tied", "LSTM of Deep Gradient Compression (2 x 1500, tied)", LSTM(1500, 1, 0.35f, 0.04f), .steps = 35,
     .batch = 20},
    {"transformer", "decoder in Llama's shape (4 x 256, 4 heads)",
     .config = {.layers = 4,
                .hidden = 256,
                .embedding = 256,
                .keep = 1.0f,
                .range = 0.0346f,
                .heads = 4,
                .kv_heads = 4,
                .inner = 704,
                .theta = NN_ROTARY_BASE,
                .epsilon = NN_RMS_EPSILON},
     .steps = 128, .batch = 20},
    {0},
};

size_t language_model_head(const language_model_config *config)
{
    return config->head ? config->head : config->hidden / config->heads;
}

size_t language_model_inner(size_t hidden)
{
    return (8 * hidden / 3 + 31) / 32 * 32;
}

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
    nn_range encoder;    /* in the table: the first tensor */
    recurrent *stack;    /* of LSTMs, or */
    transformer *blocks; /* of a transformer: the other is NULL */
    nn_affine decoder;
    parameter_set parameters;
    nn_lora lora; /* the adapters, and */
    parameter_set adapters;
    carried training, evaluation;
    int evaluates;    /* since language_model_start_evaluation or _writing */
    int32_t *written; /* a transformer that writes: the tokens that it remembers */
    size_t written_count;
    nn_buffer embedded;        /* and, in backward, their gradients */
    nn_buffer hidden_gradient; /* of the stack's output */
    nn_buffer logits;          /* and, in a training step, their gradients */
    nn_unit *units;            /* where it can be cut */
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

static tw_status check_positions(const language_model_config *c)
{
    const nn_rotary_scaling *s = &c->scaling;
    if (!(c->theta > 1.0 && c->theta <= 1e12 && c->epsilon > 0.0f && c->epsilon < 1.0f))
        return tw_fail(
            TW_ERROR_ARGUMENT,
            "a transformer's positions have a base from 1 to 1e12, and its norms an epsilon from 0 to 1, not "
            "%g and %g",
            c->theta, (double)c->epsilon);
    if (s->factor == 0.0 || (s->factor >= 1.0 && s->factor <= 1e6 && s->low >= 0.0 && s->low < s->high &&
                             s->high <= 1e6 && s->original >= 0.0 && s->original <= 1e6))
        return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "positions are scaled by a factor from 1 to 1e6, with a low bound below the high one, for a text of "
                   "up to 1e6 positions, not %g, %g, %g and %g",
                   s->factor, s->low, s->high, s->original);
}

static tw_status check_heads(const language_model_config *c)
{
    if (c->head == 0 && (c->hidden % c->heads != 0 || c->hidden / c->heads % 2 != 0))
        return tw_fail(TW_ERROR_ARGUMENT, "%zu heads must divide %zu features into even parts", c->heads, c->hidden);
    if (c->head % 2 != 0 || c->head > INT32_MAX)
        return tw_fail(TW_ERROR_ARGUMENT, "a head has an even number of features, not %zu", c->head);
    if (c->heads % c->kv_heads != 0)
        return tw_fail(TW_ERROR_ARGUMENT, "%zu key heads must divide %zu heads", c->kv_heads, c->heads);
    return TW_OK;
}

static tw_status check_transformer(const language_model_config *c)
{
    if (!is_size(c->heads) || !is_size(c->kv_heads) || !is_size(c->inner))
        return tw_fail(TW_ERROR_ARGUMENT,
                       "a transformer needs at least one head, key head and inner feature, and fewer than 2^31, not "
                       "%zu, %zu and %zu",
                       c->heads, c->kv_heads, c->inner);
    TW_TRY(check_positions(c));
    if (c->embedding != c->hidden)
        return tw_fail(TW_ERROR_ARGUMENT, "a transformer's tokens have as many features as its layers, not %zu and %zu",
                       c->embedding, c->hidden);
    return check_heads(c);
}

static tw_status language_model_check(const language_model_config *c, const language_model_shape *shape)
{
    if (!is_size(c->layers) || !is_size(c->hidden) || !is_size(c->embedding))
        return tw_fail(
            TW_ERROR_ARGUMENT,
            "a language model needs at least one layer, hidden cell and embedding feature, and fewer than 2^31, "
            "not %zu, %zu and %zu",
            c->layers, c->hidden, c->embedding);
    if (c->heads > 0) TW_TRY(check_transformer(c));
    if (c->lora.rank > 0 && c->heads == 0)
        return tw_fail(TW_ERROR_ARGUMENT, "adapters go with a transformer, and not with LSTMs");
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

/* A transformer has a batch alone. */
static tw_status allocate_state(const language_model_config *config, size_t batch, carried *state)
{
    size_t count = config->heads ? 0 : config->layers * 2 * batch * config->hidden;
    float *values = parameter_array(count);
    if (!values) return tw_fail(TW_ERROR_MEMORY, "no memory for the state of %zu strips", batch);
    free(state->values);
    *state = (carried){values, batch, count};
    return TW_OK;
}

static tw_status declare_layers(language_model *m)
{
    const language_model_config *c = &m->config;
    const recurrent_options lstms = {
        .layers = c->layers, .inputs = c->embedding, .hidden = c->hidden, .range = c->range, .engine = m->engine};
    const transformer_options blocks = {.family = c->family,
                                        .layers = c->layers,
                                        .width = c->hidden,
                                        .heads = c->heads,
                                        .kv_heads = c->kv_heads,
                                        .head = c->heads ? language_model_head(c) : 0,
                                        .inner = c->inner,
                                        .theta = c->theta,
                                        .scaling = c->scaling,
                                        .epsilon = c->epsilon,
                                        .range = c->range,
                                        .engine = m->engine,
                                        .lora = c->lora.rank ? &m->lora : NULL};
    return c->heads ? transformer_create(&blocks, &m->table, &m->blocks)
                    : recurrent_create(&lstms, &m->table, &m->stack);
}

/* A transformer's has no bias, and so, where it is tied, no tensor of its own. */
static tw_status declare_decoder(language_model *m)
{
    const language_model_config *c = &m->config;
    const nn_affine_options options = {
        c->heads ? "lm_head" : "decoder", c->hidden, m->shape.vocabulary, c->range, c->range, m->engine};
    if (!c->heads)
        return c->tied ? nn_affine_declare_tied(&options, 0, &m->table, &m->decoder)
                       : nn_affine_declare(&options, &m->table, &m->decoder);
    if (!c->tied) return nn_affine_declare_plain(&options, &m->table, &m->decoder);
    m->decoder = (nn_affine){.inputs = c->hidden, .outputs = m->shape.vocabulary, .engine = m->engine, .plain = 1};
    return TW_OK;
}

static tw_status language_model_declare(language_model *m)
{
    const language_model_config *c = &m->config;
    const nn_declaration encoder = {c->heads ? "model.embed_tokens" : "encoder", "weight",           2,
                                    {m->shape.vocabulary, c->embedding},         NN_INITIAL_UNIFORM, c->range};
    m->encoder = (nn_range){0, 1};
    TW_TRY(nn_table_declare(&m->table, &encoder));
    TW_TRY(nn_table_end_unit(&m->table, c->tied));
    TW_TRY(declare_layers(m));
    TW_TRY(nn_table_end_unit(&m->table, 0));
    return declare_decoder(m);
}

/* Weights that do not learn have no gradients. */
static tw_status allocate_parameters(language_model *m)
{
    if (m->config.lora.rank == 0) return parameter_set_allocate(&m->table, &m->parameters);
    TW_TRY(parameter_set_allocate_frozen(&m->table, &m->parameters));
    TW_TRY(parameter_set_allocate(&m->lora.table, &m->adapters));
    m->lora.values = m->adapters.values;
    m->lora.gradients = m->adapters.gradients;
    return TW_OK;
}

/* ---- a stage ---- */

/* After the embedding come the transformer's blocks and norm, and then the last product. */
static size_t units_of(const language_model *m)
{
    return m->config.layers + 3;
}

static int is_cuttable(const language_model *m)
{
    return m->config.heads > 0 && !m->config.tied && m->config.lora.rank == 0;
}

static int is_first(const language_model *m)
{
    return !m->shape.stage || m->shape.stage->first == 0;
}

static int is_last(const language_model *m)
{
    return !m->shape.stage || m->shape.stage->end == units_of(m);
}

static size_t first_tensor(const nn_table *table, size_t element)
{
    size_t i = 0;
    while (i < table->count && table->offsets[i] < element) i++;
    return i;
}

static tw_status list_units(language_model *m)
{
    if (!is_cuttable(m)) return TW_OK;
    TW_TRY(nn_table_end_unit(&m->table, 0));
    m->units = calloc(units_of(m), sizeof *m->units);
    if (!m->units) return tw_fail(TW_ERROR_MEMORY, "no memory for a list of %zu layers", units_of(m));
    for (size_t i = 0; i < units_of(m); i++) m->units[i].parameters = m->table.units[i].end;
    return TW_OK;
}

static tw_status take_stage(language_model *m)
{
    const nn_stage *s = m->shape.stage;
    TW_TRY(list_units(m));
    if (!s) return TW_OK;
    if (!is_cuttable(m))
        return tw_fail(TW_ERROR_ARGUMENT, "a language model is cut into stages where it is a transformer whose "
                                          "matrices are apart and all learn: write --model transformer, without --tied "
                                          "and --lora");
    m->table.held.first = s->first ? first_tensor(&m->table, m->units[s->first - 1].parameters) : 0;
    m->table.held.end = first_tensor(&m->table, m->units[s->end - 1].parameters);
    transformer_hold(m->blocks, s->first ? s->first - 1 : 0, s->end - 1);
    return TW_OK;
}

static tw_status language_model_fill(language_model *m)
{
    TW_TRY(nn_engine_create(m->shape.precision, &m->engine));
    m->lora.options = m->config.lora;
    TW_TRY(language_model_declare(m));
    TW_TRY(take_stage(m));
    TW_TRY(allocate_parameters(m));
    return allocate_state(&m->config, m->shape.batch, &m->training);
}

tw_status language_model_create(const language_model_config *config, const language_model_shape *shape,
                                language_model **model)
{
    TW_TRY(language_model_check(config, shape));
    language_model *made = calloc(1, sizeof *made);
    if (!made) return tw_fail(TW_ERROR_MEMORY, "no memory for a language model");
    made->config = *config;
    made->shape = *shape;
    tw_status status = language_model_fill(made);
    if (status == TW_OK)
        *model = made;
    else
        language_model_destroy(made);
    return status;
}

tw_status language_model_tensors(const language_model_config *config, size_t vocabulary, nn_table *table)
{
    language_model m = {.config = *config, .shape = {.vocabulary = vocabulary, .steps = 1, .batch = 1}};
    TW_TRY(language_model_check(&m.config, &m.shape));
    tw_status status = language_model_declare(&m);
    recurrent_destroy(m.stack);
    transformer_destroy(m.blocks);
    nn_lora_free(&m.lora);
    *table = m.table;
    return status;
}

void language_model_destroy(language_model *m)
{
    if (!m) return;
    recurrent_destroy(m->stack);
    transformer_destroy(m->blocks);
    nn_engine_destroy(m->engine);
    parameter_set_free(&m->parameters);
    nn_table_free(&m->table);
    parameter_set_free(&m->adapters);
    nn_lora_free(&m->lora);
    free(m->training.values);
    free(m->evaluation.values);
    free(m->written);
    free(m->units);
    nn_buffer_free(&m->embedded);
    nn_buffer_free(&m->hidden_gradient);
    nn_buffer_free(&m->logits);
    free(m);
}

const nn_unit *language_model_units(const language_model *m, size_t *count)
{
    *count = m->units ? units_of(m) : 0;
    return m->units;
}

const parameter_set *language_model_parameters(const language_model *m)
{
    return &m->parameters;
}

const parameter_set *language_model_adapters(const language_model *m)
{
    return m->config.lora.rank ? &m->adapters : NULL;
}

tw_status language_model_page(language_model *m, pager *by)
{
    if (m->config.lora.rank > 0)
        return tw_fail(TW_ERROR_ARGUMENT, "--memory-budget goes with a network that learns as a whole: leave out "
                                          "--lora, or the budget");
    return nn_table_page(&m->table, by, m->parameters.values, m->parameters.gradients);
}

tw_status language_model_initialise(language_model *m, uint64_t seed)
{
    TW_TRY(nn_table_initialise(&m->table, seed, m->parameters.values));
    return nn_table_initialise(&m->lora.table, seed, m->adapters.values);
}

/* ---- state ---- */

/* What a transformer remembers goes with the first training step, or the next evaluation. */
static void end_writing(language_model *m)
{
    m->evaluates &= !m->written;
    free(m->written);
    m->written = NULL;
}

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
    end_writing(m);
    m->evaluates = 1;
    return allocate_state(&m->config, batch, &m->evaluation);
}

tw_status language_model_start_writing(language_model *m)
{
    TW_TRY(language_model_start_evaluation(m, 1));
    m->written_count = 0;
    if (!m->blocks) return TW_OK;
    m->written = malloc(m->shape.steps * sizeof *m->written);
    if (!m->written) return tw_fail(TW_ERROR_MEMORY, "no memory for a text of %zu tokens", m->shape.steps);
    return TW_OK;
}

/* ---- running ---- */

/* One call on its way through the model. */
typedef struct pass {
    const language_model_text *text;
    const carried *state;
    float keep, adapter_keep; /* of dropout; in training below 1 */
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

static tw_status language_model_reserve(language_model *m, const pass *p)
{
    TW_TRY(nn_buffer_reserve(&m->embedded, p->rows * m->config.embedding));
    TW_TRY(nn_buffer_reserve(&m->hidden_gradient, p->rows * m->config.hidden));
    if (m->blocks && !m->written) TW_TRY(transformer_remember(m->blocks, 0)); /* a text by itself */
    return nn_buffer_reserve(&m->logits, p->rows * m->shape.vocabulary);
}

static tw_status forward_layers(language_model *m, pass *p)
{
    const float *values = m->parameters.values, *x = m->embedded.values;
    const size_t steps = p->text->steps, batch = p->state->batch;
    const transformer_batch blocks = {.steps = steps, .batch = batch, .x = x, .keep = p->keep, .noise = p->noise};
    const recurrent_batch lstms = {
        .steps = steps, .batch = batch, .x = x, .state = p->state->values, .keep = p->keep, .noise = p->noise};
    return m->blocks ? transformer_forward(m->blocks, values, &blocks, &p->hidden)
                     : recurrent_forward(m->stack, values, &lstms, &p->hidden);
}

static tw_status forward_first(language_model *m, const pass *p)
{
    const nn_stage *stage = m->shape.stage;
    if (!is_first(m)) return stage->receive(stage->context, m->embedded.values, p->rows * m->config.embedding);
    TW_TRY(nn_table_use(&m->table, m->encoder, PAGER_FORWARD));
    nn_embedding_forward(m->parameters.values, m->config.embedding, p->text->tokens, p->rows, m->embedded.values);
    drop_embedded(m, p);
    return TW_OK;
}

/* Up to what the last product makes, or what goes to the next stage. */
static tw_status language_model_forward(language_model *m, pass *p)
{
    p->rows = p->text->steps * p->state->batch;
    m->lora.noise = p->noise;
    m->lora.keep = p->adapter_keep;
    TW_TRY(check_tokens(m, p));
    TW_TRY(language_model_reserve(m, p));
    nn_engine_enter();
    TW_TRY(forward_first(m, p));
    TW_TRY(forward_layers(m, p));
    if (!is_last(m)) return TW_OK;
    TW_TRY(nn_table_use(&m->table, m->decoder.parameters, PAGER_FORWARD));
    return nn_affine_forward(&m->decoder, m->parameters.values, p->rows, p->hidden, m->logits.values);
}

static tw_status backward_layers(language_model *m, nn_gradient_ready ready, void *context)
{
    float *y = m->hidden_gradient.values, *x = m->embedded.values, *parameters = m->parameters.gradients;
    const transformer_gradients blocks = {y, x, parameters, ready, context};
    const recurrent_gradients lstms = {y, x, parameters, ready, context};
    return m->blocks ? transformer_backward(m->blocks, m->parameters.values, &blocks)
                     : recurrent_backward(m->stack, m->parameters.values, &lstms);
}

static tw_status backward_decoder(language_model *m, const pass *p, nn_gradient_ready ready, void *context)
{
    float *gradients = m->parameters.gradients;
    const float *values = m->parameters.values;
    TW_TRY(nn_table_use(&m->table, m->decoder.parameters, PAGER_BACKWARD));
    TW_TRY(nn_affine_backward_parameters(&m->decoder, p->rows, p->hidden, m->logits.values, gradients));
    TW_TRY(nn_table_announce(&m->table, m->decoder.parameters, gradients, ready, context));
    return nn_affine_backward_source(&m->decoder, values, p->rows, m->logits.values, m->hidden_gradient.values);
}

/* Both uses of a tied matrix add to its gradient, which is complete only at the very end. */
static tw_status backward_all(language_model *m, const pass *p, nn_gradient_ready ready, void *context)
{
    float *gradients = m->parameters.gradients;
    const nn_stage *stage = m->shape.stage;
    if (is_last(m)) TW_TRY(backward_decoder(m, p, ready, context));
    TW_TRY(backward_layers(m, ready, context));
    if (!is_first(m)) return stage->send_back(stage->context, m->embedded.values, p->rows * m->config.embedding);
    drop_embedded(m, p);
    TW_TRY(nn_table_use(&m->table, m->encoder, PAGER_BACKWARD));
    if (!m->config.tied) memset(gradients, 0, nn_table_elements(&m->table, 0) * sizeof *gradients);
    nn_embedding_backward(m->embedded.values, m->config.embedding, p->text->tokens, p->rows, gradients);
    return nn_table_announce(&m->table, m->encoder, gradients, ready, context);
}

/* Adapters lie above the embedding, and are so few that they can wait for each other. */
static tw_status backward_adapters(language_model *m, const pass *p, nn_gradient_ready ready, void *context)
{
    const nn_range all = {0, m->lora.table.count};
    TW_TRY(nn_affine_backward_source(&m->decoder, m->parameters.values, p->rows, m->logits.values,
                                     m->hidden_gradient.values));
    TW_TRY(backward_layers(m, NULL, NULL));
    return nn_table_announce(&m->lora.table, all, m->lora.gradients, ready, context);
}

static tw_status language_model_backward(language_model *m, const pass *p, nn_gradient_ready ready, void *context)
{
    return m->config.lora.rank ? backward_adapters(m, p, ready, context) : backward_all(m, p, ready, context);
}

/* What the last product makes is judged; what another stage goes on with is sent. *back: whether the call goes on. */
static tw_status judge(language_model *m, const pass *p, language_model_result *result, int *back)
{
    const nn_stage *stage = m->shape.stage;
    *result = (language_model_result){0};
    *back = is_last(m);
    if (!*back)
        return stage->send(stage->context, p->hidden, p->rows * m->config.hidden, m->hidden_gradient.values, back);
    nn_loss loss = nn_cross_entropy(m->logits.values, p->text->targets, p->rows, m->shape.vocabulary, m->logits.values);
    *result = (language_model_result){loss.sum, loss.counted};
    return TW_OK;
}

tw_status language_model_step(language_model *m, const language_model_text *text, const nn_noise *noise,
                              nn_gradient_ready ready, void *context, language_model_result *result)
{
    pass p = {.text = text,
              .state = &m->training,
              .keep = m->config.keep,
              .adapter_keep = m->config.lora.keep,
              .noise = *noise};
    if (text->steps > m->shape.steps)
        return tw_fail(TW_ERROR_ARGUMENT, "the language model was made for %zu steps a call, not %zu", m->shape.steps,
                       text->steps);
    end_writing(m); /* of a training step */
    int back;
    TW_TRY(language_model_forward(m, &p));
    TW_TRY(judge(m, &p, result, &back));
    return back ? language_model_backward(m, &p, ready, context) : TW_OK;
}

/* The tokens that stay are read again. */
static tw_status forget_half(language_model *m)
{
    const size_t kept = m->shape.steps / 2;
    memmove(m->written, m->written + m->written_count - kept, kept * sizeof *m->written);
    m->written_count = kept;
    TW_TRY(transformer_remember(m->blocks, m->shape.steps));
    const language_model_text again = {.tokens = m->written, .steps = kept};
    pass p = {.text = &again, .state = &m->evaluation, .keep = 1.0f, .adapter_keep = 1.0f};
    return kept > 0 ? language_model_forward(m, &p) : TW_OK;
}

/* Before a text is read on. */
static tw_status language_model_make_room(language_model *m, const language_model_text *text)
{
    const size_t room = m->shape.steps;
    if (text->steps > room - room / 2)
        return tw_fail(TW_ERROR_ARGUMENT, "a model of %zu steps reads %zu tokens at a time and no more, not %zu", room,
                       room - room / 2, text->steps);
    if (m->written_count == 0) TW_TRY(transformer_remember(m->blocks, room));
    if (m->written_count + text->steps > room) TW_TRY(forget_half(m));
    memcpy(m->written + m->written_count, text->tokens, text->steps * sizeof *text->tokens);
    m->written_count += text->steps;
    return TW_OK;
}

tw_status language_model_evaluate(language_model *m, const language_model_text *text, language_model_result *result)
{
    pass p = {.text = text, .state = &m->evaluation, .keep = 1.0f, .adapter_keep = 1.0f};
    if (!m->evaluates)
        return tw_fail(TW_ERROR_ORDER, "language_model_start_evaluation comes before language_model_evaluate");
    if (m->written) TW_TRY(language_model_make_room(m, text));
    TW_TRY(language_model_forward(m, &p));
    if (!is_last(m)) {
        const nn_stage *stage = m->shape.stage;
        *result = (language_model_result){0};
        return stage->send(stage->context, p.hidden, p.rows * m->config.hidden, NULL, NULL);
    }
    if (!text->targets || !result) return TW_OK;
    nn_loss loss = nn_cross_entropy(m->logits.values, text->targets, p.rows, m->shape.vocabulary, NULL);
    *result = (language_model_result){loss.sum, loss.counted};
    return TW_OK;
}

const float *language_model_logits(const language_model *m)
{
    return m->logits.values;
}
