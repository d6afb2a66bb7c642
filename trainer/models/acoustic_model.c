/* acoustic_model.c - the stack, one or two linear layers, a loss; and back. */
#include "acoustic_model.h"

#include "buffer.h"
#include "engine.h"
#include "projection.h"
#include "recurrent.h"
#include "softmax.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct acoustic_model {
    acoustic_model_config config;
    nn_engine *engine;
    nn_table table;
    recurrent *stack;
    projection bottleneck, output;
    parameter_set parameters;
    nn_buffer narrow;          /* the bottleneck's output */
    nn_buffer narrow_gradient; /* of that */
    nn_buffer hidden_gradient; /* of the stack's output */
    nn_buffer logits;          /* or scores */
    nn_buffer gradient;        /* of the logits */
};

/* ---- making ---- */

static tw_status check(const acoustic_model_config *c)
{
    if (c->features == 0 || c->layers == 0 || c->hidden == 0 || c->labels < 2)
        return tw_fail(
            TW_ERROR_ARGUMENT,
            "an acoustic model needs a feature, a layer, a cell and 2 labels or more, not %zu, %zu, %zu and %zu",
            c->features, c->layers, c->hidden, c->labels);
    if (c->labels > INT32_MAX) return tw_fail(TW_ERROR_ARGUMENT, "%zu labels are too many", c->labels);
    if (!(c->keep > 0.0f && c->keep <= 1.0f))
        return tw_fail(TW_ERROR_ARGUMENT, "the probability of keeping a value must be above 0 and at most 1, not %g",
                       (double)c->keep);
    return TW_OK;
}

/* As PyTorch begins its layers: up to 1 / sqrt(fan-in), an LSTM's fan-in being its cells. */
static float range_of(size_t fan_in)
{
    return 1.0f / sqrtf((float)fan_in);
}

static tw_status declare(acoustic_model *m)
{
    const acoustic_model_config *c = &m->config;
    const recurrent_options stack = {.layers = c->layers,
                                     .inputs = c->features,
                                     .hidden = c->hidden,
                                     .bidirectional = 1,
                                     .range = range_of(c->hidden),
                                     .forget_bias = 1.0f,
                                     .engine = m->engine};
    TW_TRY(recurrent_create(&stack, &m->table, &m->stack));
    size_t width = recurrent_width(m->stack), inputs = c->bottleneck ? c->bottleneck : width;
    const projection_options bottleneck = {"bottleneck", width, c->bottleneck, range_of(width), 0.0f, m->engine};
    const projection_options output = {"output", inputs, c->labels, range_of(inputs), 0.0f, m->engine};
    if (c->bottleneck) TW_TRY(projection_declare(&bottleneck, &m->table, &m->bottleneck));
    return projection_declare(&output, &m->table, &m->output);
}

tw_status acoustic_model_create(const acoustic_model_config *config, acoustic_model **model)
{
    TW_TRY(check(config));
    acoustic_model *made = calloc(1, sizeof *made);
    if (!made) return tw_fail(TW_ERROR_MEMORY, "no memory for an acoustic model");
    made->config = *config;
    tw_status status = nn_engine_create(config->precision, &made->engine);
    if (status == TW_OK) status = declare(made);
    if (status == TW_OK) status = parameter_set_allocate(&made->table, &made->parameters);
    if (status == TW_OK)
        *model = made;
    else
        acoustic_model_destroy(made);
    return status;
}

void acoustic_model_destroy(acoustic_model *m)
{
    if (!m) return;
    recurrent_destroy(m->stack);
    nn_engine_destroy(m->engine);
    parameter_set_free(&m->parameters);
    nn_table_free(&m->table);
    nn_buffer_free(&m->narrow);
    nn_buffer_free(&m->narrow_gradient);
    nn_buffer_free(&m->hidden_gradient);
    nn_buffer_free(&m->logits);
    nn_buffer_free(&m->gradient);
    free(m);
}

const parameter_set *acoustic_model_parameters(const acoustic_model *m)
{
    return &m->parameters;
}

void acoustic_model_initialise(acoustic_model *m, uint64_t seed)
{
    nn_table_initialise(&m->table, seed, m->parameters.values);
}

/* ---- both ways ---- */

/* One call on its way through the model. */
typedef struct pass {
    const acoustic_model_batch *batch;
    const nn_noise *noise; /* NULL: no dropout */
    nn_gradient_ready ready;
    void *context;
    size_t rows;
    const float *hidden; /* the stack's output */
    const float *last;   /* what the output layer read: that, or the bottleneck's */
} pass;

static tw_status forward(acoustic_model *m, pass *p)
{
    const float *values = m->parameters.values;
    const acoustic_model_batch *b = p->batch;
    recurrent_batch stack = {.steps = b->steps, .batch = b->batch, .lengths = b->lengths, .x = b->frames, .keep = 1.0f};
    if (p->noise) {
        stack.keep = m->config.keep;
        stack.noise = *p->noise;
    }
    p->rows = b->steps * b->batch;
    nn_engine_enter();
    TW_TRY(recurrent_forward(m->stack, values, &stack, &p->hidden));
    p->last = p->hidden;
    if (m->config.bottleneck) {
        TW_TRY(nn_buffer_reserve(&m->narrow, p->rows * m->config.bottleneck));
        TW_TRY(projection_forward(&m->bottleneck, values, p->rows, p->hidden, m->narrow.values));
        p->last = m->narrow.values;
    }
    TW_TRY(nn_buffer_reserve(&m->logits, p->rows * m->config.labels));
    return projection_forward(&m->output, values, p->rows, p->last, m->logits.values);
}

/* The parameters' gradients first, so that they can leave. */
static tw_status backward_projection(acoustic_model *m, const pass *p, const projection *linear, const float *x,
                                     const float *y_gradient, nn_buffer *x_gradient)
{
    float *gradients = m->parameters.gradients;
    TW_TRY(nn_buffer_reserve(x_gradient, p->rows * linear->inputs));
    TW_TRY(projection_backward_parameters(linear, p->rows, x, y_gradient, gradients));
    TW_TRY(nn_table_announce(&m->table, linear->parameters, gradients, p->ready, p->context));
    return projection_backward_source(linear, m->parameters.values, p->rows, y_gradient, x_gradient->values);
}

static tw_status backward(acoustic_model *m, const pass *p, const float *gradient)
{
    nn_buffer *narrow = m->config.bottleneck ? &m->narrow_gradient : &m->hidden_gradient;
    TW_TRY(backward_projection(m, p, &m->output, p->last, gradient, narrow));
    if (m->config.bottleneck)
        TW_TRY(backward_projection(m, p, &m->bottleneck, p->hidden, narrow->values, &m->hidden_gradient));
    const recurrent_gradients stack = {.y = m->hidden_gradient.values,
                                       .parameters = m->parameters.gradients,
                                       .ready = p->ready,
                                       .context = p->context};
    return recurrent_backward(m->stack, m->parameters.values, &stack);
}

/* ---- whole utterances ---- */

static void clear_padding(const acoustic_model_batch *batch, size_t labels, float *gradient)
{
    for (size_t t = 0; batch->lengths && t < batch->steps; t++)
        for (size_t s = 0; s < batch->batch; s++)
            if (t >= batch->lengths[s])
                memset(gradient + (t * batch->batch + s) * labels, 0, labels * sizeof *gradient);
}

tw_status acoustic_model_step(acoustic_model *m, const acoustic_model_batch *batch, const acoustic_model_loss *loss,
                              const nn_noise *noise, nn_gradient_ready ready, void *context)
{
    const size_t labels = m->config.labels;
    pass p = {.batch = batch, .noise = noise, .ready = ready, .context = context};
    TW_TRY(forward(m, &p));
    nn_log_softmax(m->logits.values, p.rows, labels);
    TW_TRY(nn_buffer_reserve(&m->gradient, p.rows * labels));
    memset(m->gradient.values, 0, p.rows * labels * sizeof(float));
    TW_TRY(loss->compute(loss->context, batch, m->logits.values, m->gradient.values));
    clear_padding(batch, labels, m->gradient.values);
    return backward(m, &p, m->gradient.values);
}

tw_status acoustic_model_evaluate(acoustic_model *m, const acoustic_model_batch *batch, const float **scores)
{
    pass p = {.batch = batch};
    TW_TRY(forward(m, &p));
    nn_log_softmax(m->logits.values, p.rows, m->config.labels);
    *scores = m->logits.values;
    return TW_OK;
}

/* ---- a label for each frame ---- */

static tw_status check_targets(const acoustic_model *m, const acoustic_model_batch *batch, const int32_t *targets)
{
    for (size_t i = 0; i < batch->steps * batch->batch; i++) {
        size_t step = i / batch->batch, sequence = i % batch->batch;
        if (targets[i] < NN_NO_TARGET || targets[i] >= (int32_t)m->config.labels)
            return tw_fail(TW_ERROR_ARGUMENT, "frame %zu of window %zu has target %d; the model has %zu labels", step,
                           sequence, targets[i], m->config.labels);
        if (batch->lengths && step >= batch->lengths[sequence] && targets[i] != NN_NO_TARGET)
            return tw_fail(TW_ERROR_ARGUMENT, "frame %zu of window %zu has a target but lies beyond its end, %zu", step,
                           sequence, batch->lengths[sequence]);
    }
    return TW_OK;
}

/* Forward and the loss; with its gradient, which then stands where the logits stood. */
static tw_status forward_frames(acoustic_model *m, pass *p, const int32_t *targets, int with_gradient,
                                acoustic_model_result *result)
{
    TW_TRY(check_targets(m, p->batch, targets));
    TW_TRY(forward(m, p));
    float *logits = m->logits.values;
    nn_token_loss loss =
        nn_token_cross_entropy(logits, targets, p->rows, m->config.labels, with_gradient ? logits : NULL);
    *result = (acoustic_model_result){loss.sum, loss.counted, loss.correct};
    return TW_OK;
}

tw_status acoustic_model_step_frames(acoustic_model *m, const acoustic_model_batch *batch, const int32_t *targets,
                                     const nn_noise *noise, nn_gradient_ready ready, void *context,
                                     acoustic_model_result *result)
{
    pass p = {.batch = batch, .noise = noise, .ready = ready, .context = context};
    TW_TRY(forward_frames(m, &p, targets, 1, result));
    return backward(m, &p, m->logits.values);
}

tw_status acoustic_model_evaluate_frames(acoustic_model *m, const acoustic_model_batch *batch, const int32_t *targets,
                                         acoustic_model_result *result)
{
    pass p = {.batch = batch};
    return forward_frames(m, &p, targets, 0, result);
}
