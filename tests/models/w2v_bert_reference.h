/* w2v_bert_reference.h - w2v-BERT's losses a second time: in double, a number at a time, tensors by their names. Masks,
 * noise and dropout are the model's own; what is computed with them is not.
 *
 * A choice of codes has no derivative. What the model takes for one is that of q = E[k] + sum over j of (y[j] -
 * y0[j]) E0[j], where y0 and E0 are what y and E were at first: this is what `reference_losses` computes, so
 * differences of it are the gradients that the model should find, all of them. */
#ifndef TEST_MODELS_W2V_BERT_REFERENCE_H
#define TEST_MODELS_W2V_BERT_REFERENCE_H

#include "hiding.h"
#include "w2v_bert.h"

#include "support/assert.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct reference {
    const w2v_bert_config *config;
    const nn_table *table;
    double *values;
    const w2v_bert_batch *batch;
    const w2v_bert_step_options *options;
    hiding hidden;
    nn_rows rows;
    size_t first[16];
    double *soft, *entries; /* y0 and E0, once there */
    double contrastive, diversity, masked, loss;
    double *arrays[512];
    size_t array_count;
} reference;

/* Zeros, until the end of the call. */
static inline double *ref_array(reference *r, size_t count)
{
    assert_true(r->array_count < sizeof r->arrays / sizeof *r->arrays);
    return r->arrays[r->array_count++] = calloc(count + 1, sizeof(double));
}

static inline const double *ref_tensor(const reference *r, const char *prefix, const char *name)
{
    char whole[160];
    snprintf(whole, sizeof whole, "%s%s", prefix, name);
    for (size_t i = 0; i < r->table->count; i++)
        if (strcmp(r->table->tensors[i].name, whole) == 0) return r->values + r->table->offsets[i];
    fail_msg("no tensor is named %s", whole);
    return NULL;
}

static inline const double *ref_part(const reference *r, const char *prefix, const char *name, const char *part)
{
    char whole[96];
    snprintf(whole, sizeof whole, "%s.%s", name, part);
    return ref_tensor(r, prefix, whole);
}

static inline double *ref_linear(reference *r, const char *prefix, const char *name, size_t rows, size_t inputs,
                                 size_t outputs, const double *x)
{
    const double *w = ref_part(r, prefix, name, "weight"), *b = ref_part(r, prefix, name, "bias");
    double *y = ref_array(r, rows * outputs);
    for (size_t i = 0; i < rows; i++)
        for (size_t o = 0; o < outputs; o++) {
            y[i * outputs + o] = b[o];
            for (size_t k = 0; k < inputs; k++) y[i * outputs + o] += w[o * inputs + k] * x[i * inputs + k];
        }
    return y;
}

static inline double *ref_norm(reference *r, const char *prefix, const char *name, size_t rows, size_t width,
                               const double *x)
{
    const double *w = ref_part(r, prefix, name, "weight"), *b = ref_part(r, prefix, name, "bias");
    double *y = ref_array(r, rows * width);
    for (size_t i = 0; i < rows; i++) {
        double sum = 0.0, squares = 0.0;
        for (size_t c = 0; c < width; c++) sum += x[i * width + c];
        for (size_t c = 0; c < width; c++) squares += pow(x[i * width + c] - sum / (double)width, 2.0);
        for (size_t c = 0; c < width; c++)
            y[i * width + c] =
                w[c] * (x[i * width + c] - sum / (double)width) / sqrt(squares / (double)width + 1e-5) + b[c];
    }
    return y;
}

static inline double ref_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static inline void ref_drop(reference *r, size_t place, double *x, size_t count)
{
    float *mask = malloc((count + 1) * sizeof *mask);
    for (size_t i = 0; i < count; i++) mask[i] = 1.0f;
    nn_dropout(&r->options->dropout, place, r->config->encoder.keep, mask, count);
    for (size_t i = 0; i < count; i++) x[i] *= mask[i];
    free(mask);
}

/* (time, bins, inputs) to half of both. */
static inline double *ref_convolve(reference *r, const char *name, size_t length, size_t bins, size_t inputs,
                                   size_t channels, const double *x)
{
    const double *w = ref_part(r, "", name, "weight"), *b = ref_part(r, "", name, "bias");
    const size_t half = (bins + 1) / 2;
    double *y = ref_array(r, (length + 1) / 2 * half * channels);
    for (size_t t = 0; t < (length + 1) / 2; t++)
        for (size_t f = 0; f < half; f++)
            for (size_t c = 0; c < channels; c++) {
                double sum = b[c];
                for (size_t i = 0; i < inputs * 9; i++) {
                    const long time = (long)(2 * t + i % 9 / 3) - 1, bin = (long)(2 * f + i % 3) - 1;
                    if (time >= 0 && time < (long)length && bin >= 0 && bin < (long)bins)
                        sum += w[c * inputs * 9 + i] * x[((size_t)time * bins + (size_t)bin) * inputs + i / 9];
                }
                y[(t * half + f) * channels + c] = fmax(sum, 0.0);
            }
    return y;
}

static inline void ref_feed(reference *r, const char *prefix, const char *ffn, size_t place, double *x)
{
    const size_t d = r->config->encoder.width, rows = nn_rows_total(&r->rows);
    char norm[32], in[48], out[48];
    snprintf(norm, sizeof norm, "%s_layer_norm", ffn);
    snprintf(in, sizeof in, "%s.intermediate_dense", ffn);
    snprintf(out, sizeof out, "%s.output_dense", ffn);
    double *wide = ref_linear(r, prefix, in, rows, d, 4 * d, ref_norm(r, prefix, norm, rows, d, x));
    for (size_t i = 0; i < rows * 4 * d; i++) wide[i] *= ref_sigmoid(wide[i]);
    ref_drop(r, place, wide, rows * 4 * d);
    double *y = ref_linear(r, prefix, out, rows, 4 * d, d, wide);
    ref_drop(r, place + 1, y, rows * d);
    for (size_t i = 0; i < rows * d; i++) x[i] += 0.5 * y[i];
}

enum { REF_LONGEST = 32 };

/* r_m W' for each distance, from -REF_LONGEST on. */
static inline double *ref_positions(reference *r, const char *prefix)
{
    const size_t d = r->config->encoder.width;
    double *all = ref_array(r, 2 * REF_LONGEST * d);
    if (!r->config->encoder.relative) return all;
    const double *w = ref_tensor(r, prefix, "self_attn.linear_pos.weight");
    for (long m = -REF_LONGEST; m < REF_LONGEST; m++)
        for (size_t i = 0; i < d; i++) {
            const double angle = (double)m / pow(10000.0, (double)(i - i % 2) / (double)d);
            for (size_t c = 0; c < d; c++)
                all[(size_t)(m + REF_LONGEST) * d + c] += w[c * d + i] * (i % 2 ? cos(angle) : sin(angle));
        }
    return all;
}

/* `at`: the position of this distance; `u` and `v` as in attention.h; NULL without positions. */
static inline double ref_score(const double *q, const double *k, const double *at, const double *u, const double *v,
                               size_t begin, size_t end)
{
    double sum = 0.0;
    for (size_t c = begin; c < end; c++) sum += u ? (q[c] + u[c]) * k[c] + (q[c] + v[c]) * at[c] : q[c] * k[c];
    return sum / sqrt((double)(end - begin));
}

static inline void ref_attend(reference *r, const char *prefix, size_t place, double *x)
{
    const size_t d = r->config->encoder.width, rows = nn_rows_total(&r->rows), heads = r->config->encoder.heads;
    const double *n = ref_norm(r, prefix, "self_attn_layer_norm", rows, d, x);
    const double *q = ref_linear(r, prefix, "self_attn.linear_q", rows, d, d, n);
    const double *k = ref_linear(r, prefix, "self_attn.linear_k", rows, d, d, n);
    const double *v = ref_linear(r, prefix, "self_attn.linear_v", rows, d, d, n);
    const double *positions = ref_positions(r, prefix);
    const int relative = r->config->encoder.relative;
    const double *bias_u = relative ? ref_tensor(r, prefix, "self_attn.pos_bias_u") : NULL;
    const double *bias_v = relative ? ref_tensor(r, prefix, "self_attn.pos_bias_v") : NULL;
    double *mixed = ref_array(r, rows * d);
    for (size_t u = 0; u < r->rows.count; u++)
        for (size_t i = r->rows.first[u]; i < r->rows.first[u + 1]; i++)
            for (size_t h = 0; h < heads; h++) {
                const size_t begin = h * d / heads, end = (h + 1) * d / heads;
                double total = 0.0;
                for (size_t j = r->rows.first[u]; j < r->rows.first[u + 1]; j++) {
                    const double *at = positions + (REF_LONGEST + i - j) * d;
                    const double w = exp(ref_score(q + i * d, k + j * d, at, bias_u, bias_v, begin, end));
                    total += w;
                    for (size_t c = begin; c < end; c++) mixed[i * d + c] += w * v[j * d + c];
                }
                for (size_t c = begin; c < end; c++) mixed[i * d + c] /= total;
            }
    double *y = ref_linear(r, prefix, "self_attn.linear_out", rows, d, d, mixed);
    ref_drop(r, place, y, rows * d);
    for (size_t i = 0; i < rows * d; i++) x[i] += y[i];
}

static inline double *ref_along_time(reference *r, const char *prefix, const double *x)
{
    const size_t d = r->config->encoder.width, kernel = r->config->encoder.kernel;
    const double *w = ref_tensor(r, prefix, "conv_module.depthwise_conv.weight");
    const double *b = ref_tensor(r, prefix, "conv_module.depthwise_conv.bias");
    double *y = ref_array(r, nn_rows_total(&r->rows) * d);
    for (size_t u = 0; u < r->rows.count; u++)
        for (long t = (long)r->rows.first[u]; t < (long)r->rows.first[u + 1]; t++)
            for (size_t c = 0; c < d; c++) {
                double sum = b[c];
                for (size_t k = 0; k < kernel; k++) {
                    const long from = t + (long)k - (long)(kernel / 2);
                    if (from >= (long)r->rows.first[u] && from < (long)r->rows.first[u + 1])
                        sum += w[c * kernel + k] * x[(size_t)from * d + c];
                }
                y[(size_t)t * d + c] = sum;
            }
    return y;
}

static inline void ref_convolution_module(reference *r, const char *prefix, size_t place, double *x)
{
    const size_t d = r->config->encoder.width, rows = nn_rows_total(&r->rows);
    const double *n = ref_norm(r, prefix, "conv_module.layer_norm", rows, d, x);
    const double *pair = ref_linear(r, prefix, "conv_module.pointwise_conv1", rows, d, 2 * d, n);
    double *gated = ref_array(r, rows * d);
    for (size_t i = 0; i < rows; i++)
        for (size_t c = 0; c < d; c++) gated[i * d + c] = pair[i * 2 * d + c] * ref_sigmoid(pair[i * 2 * d + d + c]);
    double *inner = ref_norm(r, prefix, "conv_module.depthwise_layer_norm", rows, d, ref_along_time(r, prefix, gated));
    for (size_t i = 0; i < rows * d; i++) inner[i] *= ref_sigmoid(inner[i]);
    double *y = ref_linear(r, prefix, "conv_module.pointwise_conv2", rows, d, d, inner);
    ref_drop(r, place, y, rows * d);
    for (size_t i = 0; i < rows * d; i++) x[i] += y[i];
}

static inline double *ref_block(reference *r, size_t index, const double *x)
{
    const size_t d = r->config->encoder.width, rows = nn_rows_total(&r->rows), place = 1 + 6 * index;
    char prefix[40];
    snprintf(prefix, sizeof prefix, "encoder.layers.%zu.", index);
    double *stream = ref_array(r, rows * d);
    memcpy(stream, x, rows * d * sizeof *stream);
    ref_feed(r, prefix, "ffn1", place, stream);
    ref_attend(r, prefix, place + 2, stream);
    ref_convolution_module(r, prefix, place + 3, stream);
    ref_feed(r, prefix, "ffn2", place + 4, stream);
    return ref_norm(r, prefix, "final_layer_norm", rows, d, stream);
}

static inline double *ref_features(reference *r, size_t *width)
{
    const speech_encoder_config *c = &r->config->encoder;
    const size_t half = (c->features + 1) / 2, quarter = (half + 1) / 2;
    const nn_rows *frames = &r->batch->crops;
    *width = quarter * c->channels;
    for (size_t u = 0; u < frames->count; u++) r->first[u + 1] = r->first[u] + (nn_rows_length(frames, u) + 3) / 4;
    r->rows = (nn_rows){frames->count, r->first};
    double *all = ref_array(r, nn_rows_total(&r->rows) * *width);
    for (size_t u = 0; u < frames->count; u++) {
        const size_t length = nn_rows_length(frames, u);
        double *x = ref_array(r, length * c->features);
        for (size_t i = 0; i < length * c->features; i++) x[i] = r->batch->frames[frames->first[u] * c->features + i];
        const double *once =
            ref_convolve(r, "feature_extractor.conv_layers.0.conv", length, c->features, 1, c->channels, x);
        const double *twice = ref_convolve(r, "feature_extractor.conv_layers.1.conv", (length + 1) / 2, half,
                                           c->channels, c->channels, once);
        memcpy(all + r->first[u] * *width, twice, nn_rows_length(&r->rows, u) * *width * sizeof *all);
    }
    return ref_norm(r, "", "feature_projection.layer_norm", nn_rows_total(&r->rows), *width, all);
}

static inline double *ref_cover(reference *r, const double *features, size_t width)
{
    const w2v_bert_config *c = r->config;
    const size_t count = nn_rows_total(&r->rows) * width;
    float *noise = calloc(count, sizeof *noise);
    double *covered = ref_array(r, count);
    memcpy(covered, features, count * sizeof *covered);
    hiding_cover(&r->hidden, &r->rows, r->batch->place, &r->options->draws, 0.1f * sqrtf(3.0f), NULL, width, noise);
    for (size_t i = 0; i < r->hidden.count; i++)
        for (size_t k = 0; k < width; k++) {
            const size_t at = r->hidden.rows[i] * width + k;
            covered[at] =
                c->fill == W2V_BERT_FILL_LEARNED ? ref_tensor(r, "masked_spec_embed", ".weight")[k] : noise[at];
        }
    free(noise);
    return covered;
}

static inline double *ref_gather(reference *r, const double *rows, size_t width)
{
    double *y = ref_array(r, r->hidden.count * width);
    for (size_t i = 0; i < r->hidden.count; i++)
        memcpy(y + i * width, rows + r->hidden.rows[i] * width, width * sizeof *y);
    return y;
}

/* ---- codes ---- */

static inline size_t ref_crop_of(const reference *r, size_t hidden_row)
{
    size_t u = 0;
    while (r->hidden.first[u + 1] <= hidden_row) u++;
    return u;
}

static inline double ref_gumbel(const reference *r, size_t hidden_row, size_t code)
{
    const size_t u = ref_crop_of(r, hidden_row), all = r->config->groups * r->config->codes;
    const size_t row = r->hidden.rows[hidden_row] - r->rows.first[u];
    uint32_t words[4];
    tw_random(r->options->draws.seed, hiding_stream(&r->options->draws, HIDING_GUMBEL, r->batch->place[u]),
              row * ((all + 3) / 4) + code / 4, words);
    return -log(-log((words[code % 4] + 0.5) / 4294967296.0));
}

/* softmax of values / temperature; says which is largest. */
static inline size_t ref_soften(const double *values, size_t count, double temperature, double *y)
{
    size_t best = 0;
    double sum = 0.0;
    for (size_t v = 0; v < count; v++)
        if (values[v] > values[best]) best = v;
    for (size_t v = 0; v < count; v++) sum += y[v] = exp((values[v] - values[best]) / temperature);
    for (size_t v = 0; v < count; v++) y[v] /= sum;
    return best;
}

typedef struct ref_codes {
    size_t *chosen, *best; /* (hidden, groups) */
    double *q;
} ref_codes;

static inline void ref_code(reference *r, const double *l, size_t i, size_t g, double *mean, ref_codes *z)
{
    const w2v_bert_config *c = r->config;
    const size_t all = c->groups * c->codes, width = c->code_width / c->groups, at = i * c->groups + g;
    double noisy[64], y[64], p[64];
    for (size_t v = 0; v < c->codes; v++) noisy[v] = l[i * all + g * c->codes + v] + ref_gumbel(r, i, g * c->codes + v);
    z->chosen[at] = ref_soften(noisy, c->codes, r->options->temperature, y);
    z->best[at] = ref_soften(l + i * all + g * c->codes, c->codes, 1.0, p);
    for (size_t v = 0; v < c->codes; v++) mean[g * c->codes + v] += p[v] / (double)r->hidden.count;
    if (!c->contrastive_blocks) return;
    const double *entries = ref_tensor(r, "quantizer", ".codevectors") + g * c->codes * width;
    double *first = r->soft + i * all + g * c->codes;
    if (r->entries == NULL) memcpy(first, y, c->codes * sizeof *first);
    for (size_t k = 0; k < width; k++) {
        z->q[i * c->code_width + g * width + k] = entries[z->chosen[at] * width + k];
        for (size_t v = 0; v < c->codes && r->entries; v++)
            z->q[i * c->code_width + g * width + k] += (y[v] - first[v]) * r->entries[(g * c->codes + v) * width + k];
    }
}

static inline void ref_keep_entries(reference *r)
{
    const size_t count = r->config->codes * r->config->code_width;
    if (r->entries || !r->config->contrastive_blocks) return;
    r->entries = malloc(count * sizeof *r->entries);
    memcpy(r->entries, ref_tensor(r, "quantizer", ".codevectors"), count * sizeof *r->entries);
}

static inline ref_codes ref_quantise(reference *r, const double *features, size_t width)
{
    const w2v_bert_config *c = r->config;
    const size_t all = c->groups * c->codes, hidden = r->hidden.count;
    ref_codes z = {calloc(hidden * c->groups + 1, sizeof(size_t)), calloc(hidden * c->groups + 1, sizeof(size_t)),
                   ref_array(r, hidden * c->code_width)};
    const double *l = ref_linear(r, "", "quantizer.weight_proj", hidden, width, all, ref_gather(r, features, width));
    double *mean = ref_array(r, all), alive = 0.0;
    if (!r->soft) r->soft = calloc(hidden * all + 1, sizeof *r->soft);
    for (size_t i = 0; i < hidden; i++)
        for (size_t g = 0; g < c->groups; g++) ref_code(r, l, i, g, mean, &z);
    ref_keep_entries(r);
    for (size_t g = 0; g < c->groups; g++) {
        double sum = 0.0;
        for (size_t v = 0; v < c->codes; v++) sum += mean[g * c->codes + v] * log(mean[g * c->codes + v] + 1e-7);
        alive += exp(-sum);
    }
    r->diversity = 1.0 - alive / (double)all;
    return z;
}

/* ---- losses ---- */

static inline double ref_cosine(const double *a, const double *b, size_t width)
{
    double product = 0.0, aa = 0.0, bb = 0.0;
    for (size_t k = 0; k < width; k++) {
        product += a[k] * b[k];
        aa += a[k] * a[k];
        bb += b[k] * b[k];
    }
    return product / sqrt(aa * bb);
}

/* The i-th hidden row of a crop against the distractors that were drawn for it, one at a time. */
static inline double ref_contrast_row(const reference *r, const ref_codes *z, const double *a, const double *b,
                                      size_t u, size_t i)
{
    const w2v_bert_config *c = r->config;
    const size_t first = r->hidden.first[u], pool = r->hidden.first[u + 1] - first, width = c->compared_width;
    const size_t draws = pool - 1 <= c->distractors ? pool - 1 : c->distractors;
    const double own = exp(ref_cosine(a + (first + i) * width, b + (first + i) * width, width) / c->similarity);
    double others = 0.0;
    for (size_t d = 0; d < draws; d++) {
        uint32_t words[4];
        tw_random(r->options->draws.seed, hiding_stream(&r->options->draws, HIDING_DISTRACTORS, r->batch->place[u]),
                  i * ((c->distractors + 3) / 4) + d / 4, words);
        size_t j = pool - 1 <= c->distractors ? d : (size_t)((double)words[d % 4] / 4294967296.0 * (double)(pool - 1));
        j += j >= i;
        size_t equal = 0;
        for (size_t g = 0; g < c->groups; g++)
            equal += z->chosen[(first + i) * c->groups + g] == z->chosen[(first + j) * c->groups + g];
        if (equal < c->groups)
            others += exp(ref_cosine(a + (first + i) * width, b + (first + j) * width, width) / c->similarity);
    }
    return log(1.0 + others / own);
}

static inline void ref_contrast(reference *r, const ref_codes *z, const double *seen)
{
    const w2v_bert_config *c = r->config;
    const size_t hidden = r->hidden.count;
    const double *a = ref_linear(r, "", "project_hid", hidden, c->encoder.width, c->compared_width,
                                 ref_gather(r, seen, c->encoder.width));
    const double *b = ref_linear(r, "", "project_q", hidden, c->code_width, c->compared_width, z->q);
    for (size_t u = 0; u < r->rows.count; u++)
        for (size_t i = 0; i < r->hidden.first[u + 1] - r->hidden.first[u]; i++)
            r->contrastive += ref_contrast_row(r, z, a, b, u, i) / (double)hidden;
}

static inline void ref_predict(reference *r, const ref_codes *z, const double *last)
{
    const w2v_bert_config *c = r->config;
    const size_t hidden = r->hidden.count, all = c->groups * c->codes;
    const double *logits =
        ref_linear(r, "", "masked_prediction", hidden, c->encoder.width, all, ref_gather(r, last, c->encoder.width));
    double p[64];
    for (size_t i = 0; i < hidden * c->groups; i++) {
        ref_soften(logits + i * c->codes, c->codes, 1.0, p);
        r->masked -= log(p[z->best[i]]) / (double)hidden;
    }
}

static inline double reference_losses(reference *r)
{
    const w2v_bert_config *c = r->config;
    size_t width;
    r->contrastive = r->masked = r->diversity = 0.0;
    const double *features = ref_features(r, &width);
    assert_ok(
        hiding_draw(&r->hidden, &r->rows, r->batch->place, &r->options->draws, c->mask_probability, c->mask_span));
    const ref_codes z = ref_quantise(r, features, width);
    double *x = ref_linear(r, "", "feature_projection.projection", nn_rows_total(&r->rows), width, c->encoder.width,
                           ref_cover(r, features, width));
    ref_drop(r, 0, x, nn_rows_total(&r->rows) * c->encoder.width);
    for (size_t i = 0; i < c->contrastive_blocks + c->masked_blocks; i++) {
        x = ref_block(r, i, x);
        if (i + 1 == c->contrastive_blocks) ref_contrast(r, &z, x);
    }
    if (c->masked_blocks) ref_predict(r, &z, x);
    r->loss = r->contrastive + c->diversity_weight * r->diversity + r->masked;
    while (r->array_count) free(r->arrays[--r->array_count]);
    free(z.chosen);
    free(z.best);
    return r->loss;
}

static inline void reference_close(reference *r)
{
    hiding_free(&r->hidden);
    free(r->soft);
    free(r->entries);
    free(r->values);
}

#endif
