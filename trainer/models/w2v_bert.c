/* w2v_bert.c - what is hidden, its codes, two losses at two heights of the encoder, and back. */
#include "w2v_bert.h"

#include "contrast.h"
#include "cross_entropy.h"
#include "front_end.h"
#include "quantiser.h"
#include "random_targets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct w2v_bert {
    w2v_bert_config config;
    nn_engine *engine;
    nn_table table, frozen_table;
    parameter_set parameters, buffers;
    speech_encoder *encoder;
    size_t fill; /* in the flat array: the learned vector of hidden rows */
    nn_range fill_parameters, heads;
    nn_affine prediction, project_hidden, project_codes;
    quantiser quantiser;
    random_targets targets;
    hiding hidden;
    contrast_room room;
    nn_buffer covered, covered_gradient;        /* the features with what is hidden covered: (rows, features) */
    nn_buffer hidden_features, hidden_gradient; /* of hidden rows: (hidden, features) */
    nn_buffer chosen, best;                     /* (hidden, groups), as int32_t */
    nn_buffer codes, code_gradient;             /* (hidden, code_width) */
    nn_buffer seen, seen_gradient;              /* outputs of the contrastive blocks, of hidden rows: (hidden, width) */
    nn_buffer compared[2], compared_gradient[2]; /* of outputs and of codes: (hidden, compared_width) */
    nn_buffer predicted, predicted_gradient;     /* outputs of the last block, of hidden rows */
    nn_buffer logits;
    nn_buffer gradient;   /* of the encoder's output: (rows, width) */
    nn_buffer statistics; /* sums of p, and the hidden rows: what workers add up */
    nn_buffer slope;
    double *counts; /* sums of p, histogram of targets, mean p, slope: (groups, codes) each */
};

enum { PROBABILITIES, CHOSEN, MEAN, SLOPE, COUNTS };

/* ---- making ---- */

static int compares(const w2v_bert *m)
{
    return m->config.contrastive_blocks > 0;
}

static int predicts(const w2v_bert *m)
{
    return m->config.masked_blocks > 0;
}

static int learns_codes(const w2v_bert *m)
{
    return m->config.targets == W2V_BERT_GUMBEL;
}

static size_t all_codes(const w2v_bert *m)
{
    return m->config.groups * m->config.codes;
}

static tw_status declare_encoder(w2v_bert *m)
{
    speech_encoder_config encoder = m->config.encoder;
    const size_t bins = (encoder.features + 3) / 4;
    const nn_declaration fill = {"masked_spec_embed", "weight", 1, {bins * encoder.channels}, NN_INITIAL_UNIFORM, 1.0f};
    encoder.blocks = m->config.contrastive_blocks + m->config.masked_blocks;
    if (m->config.fill == W2V_BERT_FILL_LEARNED) TW_TRY(nn_table_declare(&m->table, &fill));
    m->fill_parameters.end = m->table.count;
    TW_TRY(nn_table_end_unit(&m->table, 1));
    return speech_encoder_create(&encoder, m->engine, &m->table, &m->encoder);
}

static tw_status declare_head(w2v_bert *m, const char *name, size_t inputs, size_t outputs, nn_affine *head)
{
    const float range = 1.0f / sqrtf((float)inputs);
    const nn_affine_options options = {name, inputs, outputs, range, range, m->engine};
    return nn_affine_declare(&options, &m->table, head);
}

static tw_status declare_targets(w2v_bert *m)
{
    const w2v_bert_config *c = &m->config;
    const size_t features = speech_encoder_features(m->encoder);
    const quantiser_options learned = {features,    c->groups,     c->codes, c->code_width,
                                       compares(m), c->code_scale, m->engine};
    const random_targets frozen = {.features = c->encoder.features,
                                   .stride = FRONT_END_STRIDE,
                                   .groups = c->groups,
                                   .codes = c->codes,
                                   .engine = m->engine};
    return learns_codes(m) ? quantiser_declare(&learned, &m->table, &m->quantiser)
                           : random_targets_declare(&frozen, &m->frozen_table, &m->targets);
}

static tw_status w2v_bert_declare(w2v_bert *m)
{
    const w2v_bert_config *c = &m->config;
    const size_t width = c->encoder.width;
    TW_TRY(declare_encoder(m));
    m->heads.first = m->table.count;
    if (predicts(m)) TW_TRY(declare_head(m, "masked_prediction", width, all_codes(m), &m->prediction));
    if (compares(m)) {
        TW_TRY(declare_head(m, "project_hid", width, c->compared_width, &m->project_hidden));
        TW_TRY(declare_head(m, "project_q", c->code_width, c->compared_width, &m->project_codes));
    }
    TW_TRY(declare_targets(m));
    m->heads.end = m->table.count;
    return nn_table_end_unit(&m->table, 1);
}

static tw_status w2v_bert_allocate(w2v_bert *m)
{
    TW_TRY(parameter_set_allocate(&m->table, &m->parameters));
    TW_TRY(parameter_set_allocate(&m->frozen_table, &m->buffers));
    m->counts = calloc(COUNTS * all_codes(m), sizeof *m->counts);
    if (!m->counts) return tw_fail(TW_ERROR_MEMORY, "no memory for the statistics of %zu codes", all_codes(m));
    TW_TRY(nn_buffer_reserve(&m->slope, all_codes(m)));
    return nn_buffer_reserve(&m->statistics, all_codes(m) + 1);
}

static tw_status w2v_bert_begin(const w2v_bert_config *config, w2v_bert **model)
{
    TW_TRY(w2v_bert_check(config));
    w2v_bert *made = calloc(1, sizeof *made);
    if (!made) return tw_fail(TW_ERROR_MEMORY, "no memory for a w2v-BERT");
    made->config = *config;
    tw_status status = nn_engine_create(config->precision, &made->engine);
    if (status == TW_OK) status = w2v_bert_declare(made);
    if (status == TW_OK)
        *model = made;
    else
        w2v_bert_destroy(made);
    return status;
}

tw_status w2v_bert_create(const w2v_bert_config *config, w2v_bert **model)
{
    w2v_bert *made = NULL;
    TW_TRY(w2v_bert_begin(config, &made));
    tw_status status = w2v_bert_allocate(made);
    if (status == TW_OK)
        *model = made;
    else
        w2v_bert_destroy(made);
    return status;
}

tw_status w2v_bert_describe(const w2v_bert_config *config, nn_table *table)
{
    w2v_bert *made = NULL;
    TW_TRY(w2v_bert_begin(config, &made));
    *table = made->table;
    made->table = (nn_table){0};
    w2v_bert_destroy(made);
    return TW_OK;
}

void w2v_bert_destroy(w2v_bert *m)
{
    if (!m) return;
    nn_buffer *const own[] = {&m->covered,
                              &m->covered_gradient,
                              &m->hidden_features,
                              &m->hidden_gradient,
                              &m->chosen,
                              &m->best,
                              &m->codes,
                              &m->code_gradient,
                              &m->seen,
                              &m->seen_gradient,
                              &m->compared[0],
                              &m->compared[1],
                              &m->predicted,
                              &m->gradient,
                              &m->compared_gradient[0],
                              &m->compared_gradient[1],
                              &m->logits,
                              &m->statistics,
                              &m->predicted_gradient,
                              &m->slope};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) nn_buffer_free(own[i]);
    speech_encoder_destroy(m->encoder);
    quantiser_free(&m->quantiser);
    random_targets_free(&m->targets);
    hiding_free(&m->hidden);
    contrast_room_free(&m->room);
    parameter_set_free(&m->parameters);
    parameter_set_free(&m->buffers);
    nn_table_free(&m->table);
    nn_table_free(&m->frozen_table);
    nn_engine_destroy(m->engine);
    free(m->counts);
    free(m);
}

const parameter_set *w2v_bert_parameters(const w2v_bert *m)
{
    return &m->parameters;
}

const parameter_set *w2v_bert_buffers(const w2v_bert *m)
{
    return &m->buffers;
}

tw_status w2v_bert_page(w2v_bert *m, pager *by)
{
    return nn_table_page(&m->table, by, m->parameters.values, m->parameters.gradients);
}

tw_status w2v_bert_initialise(w2v_bert *m, uint64_t seed)
{
    TW_TRY(nn_table_initialise(&m->table, seed, m->parameters.values));
    return nn_table_initialise(&m->frozen_table, seed ^ 0x9e3779b97f4a7c15u, m->buffers.values);
}

/* ---- both ways ---- */

/* One call on its way through the model. */
typedef struct pass {
    const w2v_bert_batch *batch;
    const w2v_bert_step_options *options;
    int training;
    nn_rows rows;
    const float *features;
    quantiser_call quantised;
    double all_hidden; /* of all workers */
    float weight;      /* of a hidden row's loss in this worker's gradients, whose mean over workers is taken */
    w2v_bert_result *result;
} pass;

static size_t w2v_bert_total(const pass *p)
{
    return nn_rows_total(&p->rows);
}

static int32_t *numbers(const nn_buffer *buffer)
{
    return (int32_t *)(void *)buffer->values;
}

/* At least one value, so that an array without hidden rows is an array all the same. */
static tw_status room_for(nn_buffer *buffer, size_t rows, size_t width)
{
    return nn_buffer_reserve(buffer, (rows ? rows : 1) * width);
}

static tw_status w2v_bert_forward_head(const w2v_bert *m, const nn_affine *head, const float *x, nn_buffer *y)
{
    TW_TRY(room_for(y, m->hidden.count, head->outputs));
    if (m->hidden.count == 0) return TW_OK;
    return nn_affine_forward(head, m->parameters.values, m->hidden.count, x, y->values);
}

static tw_status w2v_bert_backward_head(w2v_bert *m, const nn_affine *head, const float *x, const float *y_gradient,
                                        nn_buffer *x_gradient)
{
    const size_t rows = m->hidden.count;
    float *gradients = m->parameters.gradients;
    TW_TRY(room_for(x_gradient, rows, head->inputs));
    if (rows == 0) {
        memset(gradients + head->weight, 0, head->inputs * head->outputs * sizeof *gradients);
        memset(gradients + head->bias, 0, head->outputs * sizeof *gradients);
        return TW_OK;
    }
    TW_TRY(nn_affine_backward_parameters(head, rows, x, y_gradient, gradients));
    return nn_affine_backward_source(head, m->parameters.values, rows, y_gradient, x_gradient->values);
}

/* ---- forward: hiding and codes ---- */

/* BEST-RQ's deviation, of normalised features. */
static float fill_range(void)
{
    return 0.1f * sqrtf(3.0f);
}

static tw_status hide(w2v_bert *m, pass *p)
{
    const w2v_bert_config *c = &m->config;
    const nn_noise *draws = &p->options->draws;
    const size_t width = speech_encoder_features(m->encoder);
    const float *fill = c->fill == W2V_BERT_FILL_LEARNED ? m->parameters.values + m->fill : NULL;
    TW_TRY(nn_table_use(&m->table, m->fill_parameters, PAGER_FORWARD));
    TW_TRY(nn_table_use(&m->table, m->heads, PAGER_FORWARD));
    TW_TRY(hiding_draw(&m->hidden, &p->rows, p->batch->place, draws, c->mask_probability, c->mask_span));
    TW_TRY(nn_buffer_reserve(&m->covered, w2v_bert_total(p) * width));
    TW_TRY(room_for(&m->hidden_features, m->hidden.count, width));
    memcpy(m->covered.values, p->features, w2v_bert_total(p) * width * sizeof *p->features);
    hiding_gather(&m->hidden, p->features, width, m->hidden_features.values);
    hiding_cover(&m->hidden, &p->rows, p->batch->place, draws, fill_range(), fill, width, m->covered.values);
    return TW_OK;
}

static tw_status learned_codes(w2v_bert *m, pass *p)
{
    p->quantised = (quantiser_call){.hidden = &m->hidden,
                                    .rows = &p->rows,
                                    .places = p->batch->place,
                                    .draws = &p->options->draws,
                                    .temperature = p->training ? p->options->temperature : 0.0f,
                                    .x = m->hidden_features.values,
                                    .chosen = numbers(&m->chosen),
                                    .best = numbers(&m->best),
                                    .q = compares(m) ? m->codes.values : NULL};
    return quantiser_forward(&m->quantiser, m->parameters.values, &p->quantised);
}

static tw_status find_codes(w2v_bert *m, pass *p)
{
    const size_t hidden = m->hidden.count;
    TW_TRY(room_for(&m->chosen, hidden, m->config.groups));
    TW_TRY(room_for(&m->best, hidden, m->config.groups));
    TW_TRY(room_for(&m->codes, hidden, m->config.code_width));
    if (learns_codes(m)) return learned_codes(m, p);
    return random_targets_forward(&m->targets, m->buffers.values, &m->hidden, &p->batch->crops, &p->rows,
                                  p->batch->frames, numbers(&m->best));
}

/* ---- forward: statistics ---- */

static double *counts_of(const w2v_bert *m, size_t kind)
{
    return m->counts + kind * all_codes(m);
}

static double entropy(const float *probabilities, size_t count)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++)
        if (probabilities[i] > 0.0f) sum -= probabilities[i] * log((double)probabilities[i]);
    return sum;
}

/* A target that nothing predicts but itself has probability 1. */
static void count_row(w2v_bert *m, size_t i, w2v_bert_sums *sums)
{
    const size_t codes = m->config.codes, group = i % m->config.groups;
    const size_t best = (size_t)numbers(&m->best)[i];
    double *probabilities = counts_of(m, PROBABILITIES) + group * codes;
    counts_of(m, CHOSEN)[group * codes + best] += 1.0;
    if (!learns_codes(m)) {
        probabilities[best] += 1.0;
        return;
    }
    const float *p = m->quantiser.probabilities.values + i * codes;
    for (size_t v = 0; v < codes; v++) probabilities[v] += p[v];
    sums->row_entropy += entropy(p, codes);
    sums->sampled_best += numbers(&m->chosen)[i] == numbers(&m->best)[i];
}

static void count_codes(w2v_bert *m, pass *p)
{
    w2v_bert_sums *sums = &p->result->sums;
    memset(m->counts, 0, COUNTS * all_codes(m) * sizeof *m->counts);
    for (size_t i = 0; i < m->hidden.count * m->config.groups; i++) count_row(m, i, sums);
    sums->hidden = (double)m->hidden.count;
    p->result->probabilities = counts_of(m, PROBABILITIES);
    p->result->chosen = counts_of(m, CHOSEN);
}

/* Of all workers, where there is a way to add up. */
static tw_status share_statistics(w2v_bert *m, pass *p)
{
    const size_t all = all_codes(m);
    const w2v_bert_sum *sum = p->options->sum;
    float *statistics = m->statistics.values;
    for (size_t v = 0; v < all; v++) statistics[v] = (float)counts_of(m, PROBABILITIES)[v];
    statistics[all] = (float)m->hidden.count;
    if (sum) TW_TRY(sum->sum(sum->context, statistics, all + 1));
    p->all_hidden = statistics[all];
    p->weight = p->all_hidden > 0.0 ? (float)((double)(sum ? sum->workers : 1) / p->all_hidden) : 0.0f;
    return TW_OK;
}

/* The diversity loss, and what a change of a row's probabilities does to it. */
static void measure_diversity(w2v_bert *m, pass *p)
{
    double *mean = counts_of(m, MEAN), *slope = counts_of(m, SLOPE);
    if (!learns_codes(m) || p->all_hidden == 0.0) {
        memset(m->slope.values, 0, all_codes(m) * sizeof(float));
        return;
    }
    for (size_t v = 0; v < all_codes(m); v++) mean[v] = m->statistics.values[v] / p->all_hidden;
    p->result->diversity = quantiser_diversity(mean, m->config.groups, m->config.codes, slope);
    for (size_t v = 0; v < all_codes(m); v++)
        m->slope.values[v] = (float)(m->config.diversity_weight * p->weight * slope[v]);
}

static tw_status quantise(w2v_bert *m, pass *p)
{
    TW_TRY(find_codes(m, p));
    count_codes(m, p);
    TW_TRY(share_statistics(m, p));
    measure_diversity(m, p);
    return TW_OK;
}

/* ---- forward: losses ---- */

static tw_status reserve_compared(w2v_bert *m)
{
    for (size_t i = 0; i < 2; i++)
        TW_TRY(room_for(&m->compared_gradient[i], m->hidden.count, m->config.compared_width));
    return room_for(&m->seen, m->hidden.count, m->config.encoder.width);
}

static void take_contrast(const contrast_result *from, w2v_bert_sums *sums)
{
    sums->compared = from->compared;
    sums->contrastive = from->loss;
    sums->contrastive_chance = from->chance;
    sums->contrastive_correct = from->correct;
    sums->correct_chance = from->correct_chance;
    sums->distractors = from->distractors;
    sums->same = from->same;
    sums->lonely_crops = from->lonely;
}

/* Leaves the gradients with respect to both sides of the comparison. */
static tw_status w2v_bert_compare(w2v_bert *m, const pass *p)
{
    const w2v_bert_config *c = &m->config;
    const contrast_options options = {c->compared_width, c->groups, c->distractors, c->similarity};
    contrast_result result;
    TW_TRY(reserve_compared(m));
    hiding_gather(&m->hidden, speech_encoder_output(m->encoder, c->contrastive_blocks), c->encoder.width,
                  m->seen.values);
    TW_TRY(w2v_bert_forward_head(m, &m->project_hidden, m->seen.values, &m->compared[0]));
    TW_TRY(w2v_bert_forward_head(m, &m->project_codes, m->codes.values, &m->compared[1]));
    const contrast_call call = {.crops = &m->hidden.crops,
                                .places = p->batch->place,
                                .draws = &p->options->draws,
                                .c = m->compared[0].values,
                                .q = m->compared[1].values,
                                .codes = numbers(&m->chosen),
                                .weight = p->weight,
                                .c_gradient = p->training ? m->compared_gradient[0].values : NULL,
                                .q_gradient = p->training ? m->compared_gradient[1].values : NULL};
    TW_TRY(contrast(&options, &call, &m->room, &result));
    take_contrast(&result, &p->result->sums);
    return TW_OK;
}

static size_t blocks_of(const w2v_bert *m)
{
    return m->config.contrastive_blocks + m->config.masked_blocks;
}

/* Leaves the gradient in the logits' place: that of the mean over rows and groups, times what makes it the sum of this
 * worker's share. */
static tw_status w2v_bert_predict(w2v_bert *m, const pass *p)
{
    const w2v_bert_config *c = &m->config;
    const size_t rows = m->hidden.count * c->groups;
    TW_TRY(room_for(&m->predicted, m->hidden.count, c->encoder.width));
    hiding_gather(&m->hidden, speech_encoder_output(m->encoder, blocks_of(m)), c->encoder.width, m->predicted.values);
    TW_TRY(w2v_bert_forward_head(m, &m->prediction, m->predicted.values, &m->logits));
    float *logits = m->logits.values, scale = p->weight * (float)rows;
    const nn_loss loss = nn_cross_entropy(logits, numbers(&m->best), rows, c->codes, p->training ? logits : NULL);
    p->result->sums.masked = loss.sum;
    p->result->sums.masked_correct = (double)loss.correct;
    for (size_t i = 0; p->training && i < rows * c->codes; i++) logits[i] *= scale;
    return TW_OK;
}

static tw_status check_batch(const w2v_bert *m, const pass *p)
{
    for (size_t u = 0; u < p->batch->crops.count; u++)
        if (p->batch->place[u] >> 20)
            return tw_fail(TW_ERROR_ARGUMENT, "a step has at most %d crops; this one would be number %llu", 1 << 20,
                           (unsigned long long)p->batch->place[u]);
    if (p->training && learns_codes(m) && !(p->options->temperature > 0.0f))
        return tw_fail(TW_ERROR_ARGUMENT, "the temperature of codes must be above 0, not %g",
                       (double)p->options->temperature);
    return TW_OK;
}

static tw_status w2v_bert_forward(w2v_bert *m, pass *p)
{
    const float *values = m->parameters.values;
    *p->result = (w2v_bert_result){0};
    TW_TRY(check_batch(m, p));
    nn_engine_enter();
    TW_TRY(speech_encoder_forward_features(m->encoder, values, &p->batch->crops, p->batch->frames, &p->rows,
                                           &p->features));
    TW_TRY(hide(m, p));
    TW_TRY(quantise(m, p));
    TW_TRY(speech_encoder_forward_blocks(m->encoder, values, m->covered.values,
                                         p->training ? &p->options->dropout : NULL));
    if (compares(m)) TW_TRY(w2v_bert_compare(m, p));
    if (predicts(m)) TW_TRY(w2v_bert_predict(m, p));
    p->result->loss = p->weight * (p->result->sums.contrastive + p->result->sums.masked) +
                      m->config.diversity_weight * p->result->diversity;
    return TW_OK;
}

/* ---- backward ---- */

static tw_status backward_comparison(w2v_bert *m)
{
    TW_TRY(w2v_bert_backward_head(m, &m->project_hidden, m->seen.values, m->compared_gradient[0].values,
                                  &m->seen_gradient));
    return w2v_bert_backward_head(m, &m->project_codes, m->codes.values, m->compared_gradient[1].values,
                                  &m->code_gradient);
}

static tw_status backward_codes(w2v_bert *m, const pass *p)
{
    TW_TRY(room_for(&m->hidden_gradient, m->hidden.count, speech_encoder_features(m->encoder)));
    return quantiser_backward(&m->quantiser, m->parameters.values, &p->quantised,
                              compares(m) ? m->code_gradient.values : NULL, m->slope.values, m->parameters.gradients,
                              m->hidden_gradient.values);
}

/* All that stands upon the encoder, whose gradients can then leave. */
static tw_status backward_heads(w2v_bert *m, const pass *p)
{
    const parameter_set *s = &m->parameters;
    if (predicts(m))
        TW_TRY(
            w2v_bert_backward_head(m, &m->prediction, m->predicted.values, m->logits.values, &m->predicted_gradient));
    if (compares(m)) TW_TRY(backward_comparison(m));
    if (learns_codes(m)) TW_TRY(backward_codes(m, p));
    return nn_table_announce(&m->table, m->heads, s->gradients, p->options->ready, p->options->context);
}

static tw_status backward_blocks(w2v_bert *m, const pass *p, const speech_encoder_gradients *gradients)
{
    const size_t width = m->config.encoder.width, tap = m->config.contrastive_blocks;
    float *gradient = m->gradient.values;
    memset(gradient, 0, w2v_bert_total(p) * width * sizeof *gradient);
    if (predicts(m)) hiding_add(&m->hidden, m->predicted_gradient.values, width, gradient);
    TW_TRY(speech_encoder_backward_blocks(m->encoder, m->parameters.values, tap, blocks_of(m), gradient, gradients));
    if (compares(m)) hiding_add(&m->hidden, m->seen_gradient.values, width, gradient);
    return speech_encoder_backward_blocks(m->encoder, m->parameters.values, 0, tap, gradient, gradients);
}

/* What was covered did not come from the features. */
static void uncover(w2v_bert *m, size_t width, float *gradient)
{
    float *fill = m->config.fill == W2V_BERT_FILL_LEARNED ? m->parameters.gradients + m->fill : NULL;
    if (fill) memset(fill, 0, width * sizeof *fill);
    for (size_t i = 0; i < m->hidden.count; i++) {
        float *row = gradient + m->hidden.rows[i] * width;
        for (size_t c = 0; fill && c < width; c++) fill[c] += row[c];
        memset(row, 0, width * sizeof *row);
    }
}

static tw_status backward_features(w2v_bert *m, const pass *p, const speech_encoder_gradients *gradients)
{
    const size_t width = speech_encoder_features(m->encoder);
    float *gradient = m->covered_gradient.values;
    TW_TRY(
        speech_encoder_backward_projection(m->encoder, m->parameters.values, m->gradient.values, gradient, gradients));
    uncover(m, width, gradient);
    if (learns_codes(m)) hiding_add(&m->hidden, m->hidden_gradient.values, width, gradient);
    TW_TRY(speech_encoder_backward_features(m->encoder, m->parameters.values, gradient, gradients));
    return nn_table_announce(&m->table, m->fill_parameters, m->parameters.gradients, p->options->ready,
                             p->options->context);
}

static tw_status w2v_bert_backward(w2v_bert *m, const pass *p)
{
    const speech_encoder_gradients gradients = {m->parameters.gradients, p->options->ready, p->options->context};
    TW_TRY(nn_buffer_reserve(&m->gradient, w2v_bert_total(p) * m->config.encoder.width));
    TW_TRY(nn_buffer_reserve(&m->covered_gradient, w2v_bert_total(p) * speech_encoder_features(m->encoder)));
    TW_TRY(backward_heads(m, p));
    TW_TRY(backward_blocks(m, p, &gradients));
    return backward_features(m, p, &gradients);
}

tw_status w2v_bert_step(w2v_bert *m, const w2v_bert_batch *batch, const w2v_bert_step_options *options,
                        w2v_bert_result *result)
{
    pass p = {.batch = batch, .options = options, .training = 1, .result = result};
    TW_TRY(w2v_bert_forward(m, &p));
    return w2v_bert_backward(m, &p);
}

tw_status w2v_bert_evaluate(w2v_bert *m, const w2v_bert_batch *batch, const nn_noise *draws, w2v_bert_result *result)
{
    const w2v_bert_step_options options = {.draws = *draws};
    pass p = {.batch = batch, .options = &options, .result = result};
    return w2v_bert_forward(m, &p);
}
