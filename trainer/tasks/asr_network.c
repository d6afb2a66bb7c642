#include "asr_network.h"
#include "asr.h"

#include "beam.h"
#include "decode.h"
#include "encoder_text.h"
#include "error.h"
#include "recurrent_export.h"
#include "sound.h"
#include "state_matrix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

/* `most` bounds what a made-up file can ask for; the options of thinwire train asr allow no more. */
static tw_status read_size(const tw_state *state, const char *key, long most, size_t *size)
{
    const char *text = tw_state_text(state, key);
    char *end = NULL;
    long value = text ? strtol(text, &end, 10) : -1;
    if (!text || end == text || *end || value < 0 || value > most)
        return tw_fail(TW_ERROR_FORMAT, "it does not say its %s: thinwire train asr did not write it", key);
    *size = (size_t)value;
    return TW_OK;
}

/* The rows of output.weight, where no alphabet tells. */
static size_t count_labels(const tw_state *state)
{
    size_t shape[2];
    return find_matrix(state, "output.weight", shape) ? shape[0] : 0;
}

/* -1, where nobody gave it, and nothing in older checkpoints: no convolutions. */
static tw_status read_channels(const tw_state *state, size_t *channels)
{
    const char *text = tw_state_text(state, "channels");
    return text && strcmp(text, "-1") != 0 ? read_size(state, "channels", 65536, channels) : TW_OK;
}

static tw_status read_encoder(const tw_state *state, const char *sizes, acoustic_model_config *config)
{
    if (sizes) return encoder_parse(sizes, &config->encoder);
    TW_TRY(read_channels(state, &config->channels));
    TW_TRY(read_size(state, "layers", 64, &config->layers));
    TW_TRY(read_size(state, "hidden", 16384, &config->hidden));
    return read_size(state, "bottleneck", 65536, &config->bottleneck);
}

static tw_status read_texts(asr_predictor *p, const tw_state *state)
{
    const char *letters = tw_state_text(state, ASR_ALPHABET), *features = tw_state_text(state, "feature settings");
    acoustic_model_config *config = &p->config;
    if (!features)
        return tw_fail(TW_ERROR_FORMAT,
                       "it holds no feature settings and no alphabet: it is not of thinwire train asr");
    *config = (acoustic_model_config){.keep = 1};
    if (letters) TW_TRY(alphabet_parse(letters, &p->letters));
    TW_TRY(feature_settings_parse(features, &p->features));
    TW_TRY(read_encoder(state, tw_state_text(state, "speech encoder"), config));
    config->features = feature_width(&p->features);
    config->labels = letters ? p->letters.count + 1 : count_labels(state);
    return TW_OK;
}

/* Without the biases. Two directions of LSTM cells make rows of 2 * hidden; a quarter of the features, for each
 * channel, is what convolutions leave of a frame. */
static double count_weights(const acoustic_model_config *config)
{
    double features = (double)config->features, channels = (double)config->channels;
    double hidden = (double)config->hidden, width = 2 * hidden, layers = (double)config->layers;
    double read = channels > 0 ? ceil(features / 4) * channels : features;
    double cells = 2 * 4 * hidden * (read + hidden + (layers - 1) * (width + hidden));
    double bottleneck = (double)config->bottleneck, inputs = bottleneck > 0 ? bottleneck : width;
    return 9 * channels * (1 + channels) + cells + width * bottleneck + inputs * (double)config->labels;
}

/* With the biases: what is declared is counted. */
static tw_status count_encoder(const acoustic_model_config *config, double *weights)
{
    size_t elements;
    TW_TRY(acoustic_model_elements(config, &elements));
    *weights = (double)elements;
    return TW_OK;
}

static tw_status asr_network_fill_predictor(const tw_state *state, size_t elements, asr_predictor *p)
{
    TW_TRY(read_texts(p, state));
    double weights = count_weights(&p->config);
    if (p->config.layers == 0) TW_TRY(count_encoder(&p->config, &weights));
    if ((double)elements < weights)
        return tw_fail(TW_ERROR_FORMAT, "it is of a network with %.0f weights, but holds %zu", weights, elements);
    TW_TRY(log_mel_create(&p->features, &p->extractor));
    TW_TRY(acoustic_model_create(&p->config, &p->model));
    const parameter_set *parameters = acoustic_model_parameters(p->model);
    p->base = (task_predictor){.tensors = parameters->table->tensors,
                               .tensor_count = parameters->table->count,
                               .parameters = parameters->values};
    return TW_OK;
}

tw_status asr_predictor_open(const tw_state *state, size_t elements, task_predictor **out)
{
    asr_predictor *p = calloc(1, sizeof *p);
    if (!p) return tw_fail(TW_ERROR_MEMORY, "no memory for a network");
    tw_status status = asr_network_fill_predictor(state, elements, p);
    if (status == TW_OK)
        *out = &p->base;
    else
        asr_predictor_close(&p->base);
    return status;
}

void asr_predictor_close(task_predictor *base)
{
    asr_predictor *p = (asr_predictor *)base;
    if (!p) return;
    acoustic_model_destroy(p->model);
    log_mel_destroy(p->extractor);
    alphabet_release(&p->letters);
    free(p);
}

/* ---- one file ---- */

/* What became of a file, step by step. */
typedef struct recording {
    float *samples, *rows;
    size_t sample_count, frames;
    uint32_t *letters;
    size_t letter_count;
    char *text;
} recording;

static tw_status read_features(asr_predictor *r, const asr_use *s, const char *path, recording *heard)
{
    sound_request request = {.rate = r->features.rate,
                             .channel = s->channel < 0 ? SOUND_MONO : (int)s->channel,
                             .most_seconds = s->most_seconds};
    TW_TRY(sound_read(path, &request, &heard->samples, &heard->sample_count));
    heard->frames = feature_frames(&r->features, heard->sample_count);
    if (heard->frames == 0)
        return tw_fail(TW_ERROR_FORMAT, "%s is shorter than one frame of %g ms", path, r->features.window_ms);
    heard->rows = malloc(heard->frames * feature_width(&r->features) * sizeof *heard->rows);
    heard->letters = malloc(heard->frames * sizeof *heard->letters);
    heard->text = malloc(4 * heard->frames + 1);
    if (!heard->rows || !heard->letters || !heard->text)
        return tw_fail(TW_ERROR_MEMORY, "no memory for the %zu frames of %s", heard->frames, path);
    return log_mel_extract(r->extractor, heard->samples, heard->sample_count, heard->rows);
}

static tw_status asr_network_search(const asr_use *s, const utterance *u, recording *heard)
{
    beam *search;
    beam_result result = {0};
    TW_TRY(beam_create(u->frames, u->labels, (size_t)s->beam, &search));
    tw_status status = beam_search(search, u, s->bonus, heard->letters, &result);
    heard->letter_count = result.count;
    beam_destroy(search);
    return status;
}

static tw_status recognise(asr_predictor *r, const asr_use *s, const char *path, recording *heard)
{
    const float *scores;
    TW_TRY(read_features(r, s, path, heard));
    acoustic_model_batch batch = {.steps = heard->frames, .batch = 1, .frames = heard->rows};
    TW_TRY(acoustic_model_evaluate(r->model, &batch, &scores));
    const size_t labels = r->letters.count + 1;
    utterance u = {scores, labels, acoustic_model_rows(r->model, heard->frames), labels};
    if (s->beam > 0)
        TW_TRY(asr_network_search(s, &u, heard));
    else
        heard->letter_count = decode_greedy(&u, heard->letters);
    alphabet_decode(&r->letters, heard->letters, heard->letter_count, heard->text);
    return TW_OK;
}

static void put_answer(const asr_predictor *p, const recording *heard, const task_answer *answer)
{
    if (answer->json) {
        cJSON_AddStringToObject(answer->json, "text", heard->text);
        cJSON_AddNumberToObject(answer->json, "seconds", (double)heard->sample_count / p->features.rate);
    } else {
        fprintf(answer->text, "%s\t%s\n", answer->name, heard->text);
    }
}

tw_status asr_predict(task_predictor *base, const void *use, const char *path, const task_answer *answer)
{
    asr_predictor *p = (asr_predictor *)base;
    recording heard = {0};
    if (p->letters.count == 0)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "%s: the network is of --model frames, whose classes are no letters; only "
                       "--model ctc writes",
                       path);
    tw_status status = recognise(p, use, path, &heard);
    if (status == TW_OK) put_answer(p, &heard, answer);
    free(heard.samples);
    free(heard.rows);
    free(heard.letters);
    free(heard.text);
    return status;
}

/* ---- describing ---- */

static void describe_stack(const acoustic_model_config *config, cJSON *network)
{
    cJSON_AddStringToObject(network, "architecture", "acoustic model");
    cJSON_AddNumberToObject(network, "features", (double)config->features);
    cJSON_AddNumberToObject(network, "channels", (double)config->channels);
    cJSON_AddNumberToObject(network, "layers", (double)config->layers);
    cJSON_AddNumberToObject(network, "hidden", (double)config->hidden);
    cJSON_AddNumberToObject(network, "bottleneck", (double)config->bottleneck);
}

static void describe_encoder(const acoustic_model_config *config, cJSON *network)
{
    const speech_encoder_config *e = &config->encoder;
    cJSON_AddStringToObject(network, "architecture", "speech encoder");
    cJSON_AddNumberToObject(network, "features", (double)config->features);
    cJSON_AddNumberToObject(network, "channels", (double)e->channels);
    cJSON_AddNumberToObject(network, "width", (double)e->width);
    cJSON_AddNumberToObject(network, "heads", (double)e->heads);
    cJSON_AddNumberToObject(network, "kernel", (double)e->kernel);
    cJSON_AddNumberToObject(network, "blocks", (double)e->blocks);
    cJSON_AddStringToObject(network, "positions", e->relative ? "relative" : "none");
}

tw_status asr_describe_network(const task_predictor *base, cJSON *network, tw_state *tensors)
{
    const asr_predictor *p = (const asr_predictor *)base;
    char text[FEATURE_SETTINGS_TEXT], *letters = NULL;
    if (p->config.layers > 0)
        describe_stack(&p->config, network);
    else
        describe_encoder(&p->config, network);
    cJSON_AddNumberToObject(network, "labels", (double)p->config.labels);
    cJSON_AddStringToObject(network, "feature_settings", feature_settings_text(&p->features, text));
    if (p->letters.count > 0) {
        TW_TRY(alphabet_text(&p->letters, &letters));
        cJSON_AddStringToObject(network, "alphabet", letters);
        free(letters);
    }
    return recurrent_export_biases(base, tensors);
}
