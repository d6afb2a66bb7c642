/* acoustic_model.c - the stack or the speech encoder, one or two linear layers, a loss; and back.
 *
 * Batches are padded. Convolutions read packed ones: the padding is taken out before them. It is put back before the
 * stack, which wants steps, and for the speech encoder behind the last layer, where the loss is. */
#include "acoustic_model.h"

#include "affine.h"
#include "buffer.h"
#include "cross_entropy.h"
#include "engine.h"
#include "front_end.h"
#include "recurrent.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct acoustic_model {
    acoustic_model_config config;
    nn_engine *engine;
    nn_table table;
    front_end front;  /* where the configuration has channels */
    recurrent *stack; /* or */
    speech_encoder *encoder;
    int held;
    nn_range encoder_parameters; /* that learn, of the stack or the encoder */
    nn_affine bottleneck, output;
    parameter_set parameters;
    size_t *first;   /* of each utterance's packed frames */
    size_t *lengths; /* of what the stack reads, behind `first` in its memory */
    size_t utterances;
    nn_buffer packed;          /* the frames without padding */
    nn_buffer rows;            /* of the front end, with padding */
    nn_buffer rows_gradient;   /* of these */
    nn_buffer packed_gradient; /* of the logits, or of the front end's rows, without padding */
    nn_buffer scores;          /* with padding */
    nn_buffer narrow;          /* the bottleneck's output */
    nn_buffer narrow_gradient; /* of that */
    nn_buffer hidden_gradient; /* of the stack's output */
    nn_buffer logits;          /* or scores */
    nn_buffer gradient;        /* of the logits */
};

/* ---- making ---- */

static tw_status acoustic_model_check(const acoustic_model_config *c)
{
    const int encodes = c->layers == 0 && c->encoder.blocks > 0;
    if (c->features == 0 || (!encodes && (c->layers == 0 || c->hidden == 0)) || c->labels < 2)
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

static tw_status declare_stack(acoustic_model *m, size_t *width)
{
    const acoustic_model_config *c = &m->config;
    if (c->channels > 0) TW_TRY(front_end_declare(c->features, c->channels, m->engine, &m->table, &m->front));
    TW_TRY(nn_table_end_unit(&m->table, 0));
    const recurrent_options stack = {.layers = c->layers,
                                     .inputs = c->channels > 0 ? m->front.width : c->features,
                                     .hidden = c->hidden,
                                     .bidirectional = 1,
                                     .range = range_of(c->hidden),
                                     .forget_bias = 1.0f,
                                     .engine = m->engine};
    TW_TRY(recurrent_create(&stack, &m->table, &m->stack));
    *width = recurrent_width(m->stack);
    return TW_OK;
}

static tw_status declare_encoder(acoustic_model *m, size_t *width)
{
    speech_encoder_config *encoder = &m->config.encoder;
    encoder->features = m->config.features;
    encoder->keep = m->config.keep;
    TW_TRY(speech_encoder_create(encoder, m->engine, &m->table, &m->encoder));
    m->encoder_parameters.first = speech_encoder_frozen(m->encoder, m->config.freeze);
    *width = encoder->width;
    return TW_OK;
}

static tw_status acoustic_model_declare(acoustic_model *m)
{
    const acoustic_model_config *c = &m->config;
    size_t width;
    TW_TRY(c->layers > 0 ? declare_stack(m, &width) : declare_encoder(m, &width));
    m->encoder_parameters.end = m->table.count;
    size_t inputs = c->bottleneck ? c->bottleneck : width;
    const nn_affine_options bottleneck = {"bottleneck", width, c->bottleneck, range_of(width), 0.0f, m->engine};
    const nn_affine_options output = {"output", inputs, c->labels, range_of(inputs), 0.0f, m->engine};
    TW_TRY(nn_table_end_unit(&m->table, 0));
    if (c->bottleneck) TW_TRY(nn_affine_declare(&bottleneck, &m->table, &m->bottleneck));
    TW_TRY(nn_table_end_unit(&m->table, 0));
    return nn_affine_declare(&output, &m->table, &m->output);
}

/* All but the parameters' memory. */
static tw_status acoustic_model_begin(const acoustic_model_config *config, acoustic_model **model)
{
    TW_TRY(acoustic_model_check(config));
    acoustic_model *made = calloc(1, sizeof *made);
    if (!made) return tw_fail(TW_ERROR_MEMORY, "no memory for an acoustic model");
    made->config = *config;
    tw_status status = nn_engine_create(config->precision, &made->engine);
    if (status == TW_OK) status = acoustic_model_declare(made);
    if (status == TW_OK)
        *model = made;
    else
        acoustic_model_destroy(made);
    return status;
}

tw_status acoustic_model_create(const acoustic_model_config *config, acoustic_model **model)
{
    acoustic_model *made = NULL;
    TW_TRY(acoustic_model_begin(config, &made));
    tw_status status = parameter_set_allocate(&made->table, &made->parameters);
    if (status == TW_OK)
        *model = made;
    else
        acoustic_model_destroy(made);
    return status;
}

tw_status acoustic_model_elements(const acoustic_model_config *config, size_t *elements)
{
    acoustic_model *made = NULL;
    TW_TRY(acoustic_model_begin(config, &made));
    *elements = made->table.elements;
    acoustic_model_destroy(made);
    return TW_OK;
}

void acoustic_model_destroy(acoustic_model *m)
{
    if (!m) return;
    front_end_free(&m->front);
    recurrent_destroy(m->stack);
    speech_encoder_destroy(m->encoder);
    nn_engine_destroy(m->engine);
    parameter_set_free(&m->parameters);
    nn_table_free(&m->table);
    free(m->first);
    nn_buffer_free(&m->packed);
    nn_buffer_free(&m->rows);
    nn_buffer_free(&m->rows_gradient);
    nn_buffer_free(&m->packed_gradient);
    nn_buffer_free(&m->scores);
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

tw_status acoustic_model_page(acoustic_model *m, pager *by)
{
    if (m->encoder_parameters.first > 0)
        return tw_fail(TW_ERROR_ARGUMENT, "--memory-budget goes with a network that learns as a whole: leave out "
                                          "--freeze, or the budget");
    return nn_table_page(&m->table, by, m->parameters.values, m->parameters.gradients);
}

tw_status acoustic_model_initialise(acoustic_model *m, uint64_t seed)
{
    return nn_table_initialise(&m->table, seed, m->parameters.values);
}

size_t acoustic_model_frozen(const acoustic_model *m)
{
    return m->encoder_parameters.first;
}

void acoustic_model_hold(acoustic_model *m, int held)
{
    m->held = held;
}

/* Whether a row stands for four frames. */
static int convolves(const acoustic_model *m)
{
    return m->encoder || m->config.channels > 0;
}

size_t acoustic_model_rows(const acoustic_model *m, size_t frames)
{
    return convolves(m) ? front_end_rows(frames) : frames;
}

/* ---- both ways ---- */

/* One call on its way through the model. */
typedef struct pass {
    const acoustic_model_batch *batch;
    const nn_noise *noise; /* NULL: no dropout */
    nn_gradient_ready ready;
    void *context;
    size_t rows;
    nn_rows packed; /* the convolutions' rows */
    recurrent_batch stack;
    const float *hidden; /* the stack's output, or the encoder's */
    const float *last;   /* what the output layer read: that, or the bottleneck's */
} pass;

static tw_status reserve_places(acoustic_model *m, size_t utterances)
{
    if (m->utterances >= utterances && m->first) return TW_OK;
    free(m->first);
    m->utterances = 0;
    m->first = malloc((2 * utterances + 1) * sizeof *m->first);
    if (!m->first) return tw_fail(TW_ERROR_MEMORY, "no memory for a batch of %zu utterances", utterances);
    m->lengths = m->first + utterances + 1;
    m->utterances = utterances;
    return TW_OK;
}

/* `padded` is (steps, utterances, width), `packed` (rows, width): row t of utterance u is padded[t][u]. */
static void padding_remove(const nn_rows *rows, size_t width, const float *padded, float *packed)
{
    for (size_t u = 0; u < rows->count; u++)
        for (size_t row = rows->first[u], t = 0; row < rows->first[u + 1]; row++, t++)
            memcpy(packed + row * width, padded + (t * rows->count + u) * width, width * sizeof *packed);
}

/* Zeros stand behind an utterance's end. */
static void padding_put(const nn_rows *rows, size_t steps, size_t width, const float *packed, float *padded)
{
    memset(padded, 0, steps * rows->count * width * sizeof *padded);
    for (size_t u = 0; u < rows->count; u++)
        for (size_t row = rows->first[u], t = 0; row < rows->first[u + 1]; row++, t++)
            memcpy(padded + (t * rows->count + u) * width, packed + row * width, width * sizeof *padded);
}

/* The frames without padding, into m->packed. */
static tw_status acoustic_model_pack(acoustic_model *m, const acoustic_model_batch *b, nn_rows *frames)
{
    TW_TRY(reserve_places(m, b->batch));
    m->first[0] = 0;
    for (size_t u = 0; u < b->batch; u++) m->first[u + 1] = m->first[u] + (b->lengths ? b->lengths[u] : b->steps);
    *frames = (nn_rows){b->batch, m->first};
    TW_TRY(nn_buffer_reserve(&m->packed, nn_rows_total(frames) * m->config.features));
    padding_remove(frames, m->config.features, b->frames, m->packed.values);
    return TW_OK;
}

/* The stack then reads the front end's rows in place of the frames. */
static tw_status forward_front(acoustic_model *m, pass *p)
{
    recurrent_batch *stack = &p->stack;
    const float *rows;
    nn_rows frames;
    TW_TRY(acoustic_model_pack(m, p->batch, &frames));
    TW_TRY(front_end_forward(&m->front, m->parameters.values, &frames, m->packed.values, &p->packed, &rows));
    for (size_t u = 0; u < stack->batch; u++) m->lengths[u] = nn_rows_length(&p->packed, u);
    stack->steps = front_end_rows(stack->steps);
    TW_TRY(nn_buffer_reserve(&m->rows, stack->steps * stack->batch * m->front.width));
    padding_put(&p->packed, stack->steps, m->front.width, rows, m->rows.values);
    stack->lengths = m->lengths;
    stack->x = m->rows.values;
    return TW_OK;
}

static tw_status forward_stack(acoustic_model *m, pass *p)
{
    const acoustic_model_batch *b = p->batch;
    p->stack =
        (recurrent_batch){.steps = b->steps, .batch = b->batch, .lengths = b->lengths, .x = b->frames, .keep = 1.0f};
    if (p->noise) {
        p->stack.keep = m->config.keep;
        p->stack.noise = *p->noise;
    }
    if (convolves(m)) TW_TRY(forward_front(m, p));
    p->rows = p->stack.steps * p->stack.batch;
    return recurrent_forward(m->stack, m->parameters.values, &p->stack, &p->hidden);
}

static tw_status forward_encoder(acoustic_model *m, pass *p)
{
    nn_rows frames;
    TW_TRY(acoustic_model_pack(m, p->batch, &frames));
    TW_TRY(speech_encoder_forward(m->encoder, m->parameters.values, &frames, m->packed.values, p->noise, &p->packed,
                                  &p->hidden));
    p->rows = nn_rows_total(&p->packed);
    return TW_OK;
}

static tw_status acoustic_model_forward(acoustic_model *m, pass *p)
{
    const float *values = m->parameters.values;
    nn_engine_enter();
    TW_TRY(m->encoder ? forward_encoder(m, p) : forward_stack(m, p));
    p->last = p->hidden;
    if (m->config.bottleneck) {
        TW_TRY(nn_buffer_reserve(&m->narrow, p->rows * m->config.bottleneck));
        TW_TRY(nn_table_use(&m->table, m->bottleneck.parameters, PAGER_FORWARD));
        TW_TRY(nn_affine_forward(&m->bottleneck, values, p->rows, p->hidden, m->narrow.values));
        p->last = m->narrow.values;
    }
    TW_TRY(nn_buffer_reserve(&m->logits, p->rows * m->config.labels));
    TW_TRY(nn_table_use(&m->table, m->output.parameters, PAGER_FORWARD));
    return nn_affine_forward(&m->output, values, p->rows, p->last, m->logits.values);
}

/* Who hears of gradients counts from behind what is frozen. */
typedef struct listener {
    const pass *pass;
    size_t frozen;
} listener;

static tw_status acoustic_model_announce(void *context, size_t index, float *gradient)
{
    const listener *l = context;
    return l->pass->ready(l->pass->context, index - l->frozen, gradient);
}

/* The parameters' gradients first, so that they can leave. `x_gradient` NULL: nobody before it learns. */
static tw_status acoustic_model_backward_affine(acoustic_model *m, const pass *p, const nn_affine *a, const float *x,
                                                const float *y_gradient, nn_buffer *x_gradient)
{
    float *gradients = m->parameters.gradients;
    listener to = {p, m->encoder_parameters.first};
    TW_TRY(nn_table_use(&m->table, a->parameters, PAGER_BACKWARD));
    TW_TRY(nn_affine_backward_parameters(a, p->rows, x, y_gradient, gradients));
    TW_TRY(nn_table_announce(&m->table, a->parameters, gradients, p->ready ? acoustic_model_announce : NULL, &to));
    if (!x_gradient) return TW_OK;
    TW_TRY(nn_buffer_reserve(x_gradient, p->rows * a->inputs));
    return nn_affine_backward_source(a, m->parameters.values, p->rows, y_gradient, x_gradient->values);
}

static tw_status backward_stack(acoustic_model *m, const pass *p)
{
    const size_t width = m->front.width;
    if (convolves(m)) TW_TRY(nn_buffer_reserve(&m->rows_gradient, p->rows * width));
    const recurrent_gradients stack = {.y = m->hidden_gradient.values,
                                       .x = convolves(m) ? m->rows_gradient.values : NULL,
                                       .parameters = m->parameters.gradients,
                                       .ready = p->ready,
                                       .context = p->context};
    TW_TRY(recurrent_backward(m->stack, m->parameters.values, &stack));
    if (!convolves(m)) return TW_OK;
    TW_TRY(nn_buffer_reserve(&m->packed_gradient, nn_rows_total(&p->packed) * width));
    padding_remove(&p->packed, width, m->rows_gradient.values, m->packed_gradient.values);
    return front_end_backward(&m->front, m->parameters.values, m->packed_gradient.values, m->parameters.gradients,
                              p->ready, p->context);
}

static tw_status backward_encoder(acoustic_model *m, const pass *p)
{
    listener to = {p, m->encoder_parameters.first};
    const speech_encoder_gradients encoder = {
        .parameters = m->parameters.gradients, .ready = p->ready ? acoustic_model_announce : NULL, .context = &to};
    return speech_encoder_backward(m->encoder, m->parameters.values, m->hidden_gradient.values, m->config.freeze,
                                   &encoder);
}

/* What stands still for now is exchanged like the rest, so that all steps are of one form. */
static tw_status announce_zeros(acoustic_model *m, const pass *p)
{
    float *gradients = m->parameters.gradients;
    const nn_range range = m->encoder_parameters;
    listener to = {p, range.first};
    for (size_t i = range.end; i-- > range.first;) {
        TW_TRY(nn_table_use(&m->table, (nn_range){i, i + 1}, PAGER_BACKWARD));
        memset(gradients + m->table.offsets[i], 0, nn_table_elements(&m->table, i) * sizeof *gradients);
        TW_TRY(nn_table_announce(&m->table, (nn_range){i, i + 1}, gradients, p->ready ? acoustic_model_announce : NULL,
                                 &to));
    }
    return TW_OK;
}

static tw_status acoustic_model_backward(acoustic_model *m, const pass *p, const float *gradient)
{
    const int learns = !m->held && m->encoder_parameters.first < m->encoder_parameters.end;
    nn_buffer *hidden = learns ? &m->hidden_gradient : NULL;
    nn_buffer *narrow = m->config.bottleneck ? &m->narrow_gradient : hidden;
    TW_TRY(acoustic_model_backward_affine(m, p, &m->output, p->last, gradient, narrow));
    if (narrow != hidden)
        TW_TRY(acoustic_model_backward_affine(m, p, &m->bottleneck, p->hidden, narrow->values, hidden));
    if (!learns) return announce_zeros(m, p);
    return m->encoder ? backward_encoder(m, p) : backward_stack(m, p);
}

/* ---- whole utterances ---- */

static void clear_padding(const recurrent_batch *batch, size_t labels, float *gradient)
{
    for (size_t t = 0; batch->lengths && t < batch->steps; t++)
        for (size_t s = 0; s < batch->batch; s++)
            if (t >= batch->lengths[s])
                memset(gradient + (t * batch->batch + s) * labels, 0, labels * sizeof *gradient);
}

/* The logits' logarithms of the softmax, with padding: (rows of steps, batch, labels). */
static tw_status score(acoustic_model *m, const pass *p, float **scores)
{
    const acoustic_model_batch *b = p->batch;
    const size_t labels = m->config.labels, steps = acoustic_model_rows(m, b->steps);
    nn_log_softmax(m->logits.values, p->rows, labels);
    *scores = m->logits.values;
    if (!m->encoder) return TW_OK;
    TW_TRY(nn_buffer_reserve(&m->scores, steps * b->batch * labels));
    padding_put(&p->packed, steps, labels, m->logits.values, m->scores.values);
    *scores = m->scores.values;
    return TW_OK;
}

/* The loss's gradient, as the last layer's rows stand. */
static tw_status without_padding(acoustic_model *m, const pass *p, float **gradient)
{
    const size_t labels = m->config.labels;
    if (m->encoder) {
        TW_TRY(nn_buffer_reserve(&m->packed_gradient, p->rows * labels));
        padding_remove(&p->packed, labels, m->gradient.values, m->packed_gradient.values);
    } else {
        clear_padding(&p->stack, labels, m->gradient.values);
    }
    *gradient = m->encoder ? m->packed_gradient.values : m->gradient.values;
    return TW_OK;
}

tw_status acoustic_model_step(acoustic_model *m, const acoustic_model_batch *batch, const acoustic_model_loss *loss,
                              const nn_noise *noise, nn_gradient_ready ready, void *context)
{
    const size_t count = acoustic_model_rows(m, batch->steps) * batch->batch * m->config.labels;
    pass p = {.batch = batch, .noise = noise, .ready = ready, .context = context};
    float *scores, *gradient;
    TW_TRY(acoustic_model_forward(m, &p));
    TW_TRY(score(m, &p, &scores));
    TW_TRY(nn_buffer_reserve(&m->gradient, count));
    memset(m->gradient.values, 0, count * sizeof(float));
    TW_TRY(loss->compute(loss->context, batch, scores, m->gradient.values));
    TW_TRY(without_padding(m, &p, &gradient));
    return acoustic_model_backward(m, &p, gradient);
}

tw_status acoustic_model_evaluate(acoustic_model *m, const acoustic_model_batch *batch, const float **scores)
{
    pass p = {.batch = batch};
    float *own;
    TW_TRY(acoustic_model_forward(m, &p));
    TW_TRY(score(m, &p, &own));
    *scores = own;
    return TW_OK;
}

/* ---- a label for each frame ---- */

static tw_status check_targets(const acoustic_model *m, const acoustic_model_batch *batch, const int32_t *targets)
{
    if (convolves(m))
        return tw_fail(TW_ERROR_ARGUMENT, "with convolutions there is no row for each frame that has a target");
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
    TW_TRY(acoustic_model_forward(m, p));
    float *logits = m->logits.values;
    nn_loss loss = nn_cross_entropy(logits, targets, p->rows, m->config.labels, with_gradient ? logits : NULL);
    *result = (acoustic_model_result){loss.sum, loss.counted, loss.correct};
    return TW_OK;
}

tw_status acoustic_model_step_frames(acoustic_model *m, const acoustic_model_batch *batch, const int32_t *targets,
                                     const nn_noise *noise, nn_gradient_ready ready, void *context,
                                     acoustic_model_result *result)
{
    pass p = {.batch = batch, .noise = noise, .ready = ready, .context = context};
    TW_TRY(forward_frames(m, &p, targets, 1, result));
    return acoustic_model_backward(m, &p, m->logits.values);
}

tw_status acoustic_model_evaluate_frames(acoustic_model *m, const acoustic_model_batch *batch, const int32_t *targets,
                                         acoustic_model_result *result)
{
    pass p = {.batch = batch};
    return forward_frames(m, &p, targets, 0, result);
}
