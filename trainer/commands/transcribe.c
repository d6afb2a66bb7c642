/* thinwire transcribe: what is said in sound files, by a recogniser that thinwire train asr made. */
#include "acoustic_model.h"
#include "alphabet.h"
#include "beam.h"
#include "checkpoint.h"
#include "commands.h"
#include "decode.h"
#include "error.h"
#include "launch.h"
#include "log_mel.h"
#include "sound.h"
#include <cJSON.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct transcribe_settings {
    long beam, channel;
    double bonus, most_seconds;
    bool json;
} transcribe_settings;

#define AT(field) offsetof(transcribe_settings, field)

static const option_row rows[] = {
    {"beam", "WIDTH", OPTION_INTEGER, AT(beam), "0", 0, 100000,
     .help = "prefixes that a beam search keeps; 0: the likeliest letter of each frame"},
    {"bonus", "NATS", OPTION_REAL, AT(bonus), "0", -100, 100, .help = "for each letter of a beam search"},
    {"channel", "N", OPTION_INTEGER, AT(channel), "-1", -1, 63,
     .help = "of files with several channels, take this one; -1: such files are refused"},
    {"max-seconds", "SECONDS", OPTION_REAL, AT(most_seconds), "120", 0.1, 3600, .help = "longer files are refused"},
    {"json", NULL, OPTION_FLAG, AT(json), .help = "print JSON lines of file, text and seconds"},
};

static const option_page page = {
    .usage = "thinwire transcribe CHECKPOINT FILE... [options]",
    .description =
        "Writes down what is said in sound files, a line each: the file's name, a tab, the text. CHECKPOINT is "
        "the folder of a run of thinwire train asr, one of its checkpoints, or a model.safetensors. A file that "
        "cannot be used is told on standard error and left out; the exit code is then 2.",
    .examples = "  thinwire transcribe runs/digits recordings/*.wav\n"
                "  thinwire transcribe runs/digits question.flac --beam 50 --json\n",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
    .least_arguments = 2,
    .most_arguments = 1000000,
};

/* ---- the recogniser ---- */

typedef struct recogniser {
    feature_settings features;
    alphabet letters;
    acoustic_model *model;
    log_mel *extractor;
} recogniser;

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

static tw_status read_texts(recogniser *r, const tw_state *state, acoustic_model_config *config)
{
    const char *letters = tw_state_text(state, "alphabet"), *features = tw_state_text(state, "feature settings");
    if (!letters || !features)
        return tw_fail(TW_ERROR_FORMAT, "it holds no alphabet: it is not of thinwire train asr --model ctc");
    *config = (acoustic_model_config){.keep = 1};
    TW_TRY(alphabet_parse(letters, &r->letters));
    TW_TRY(feature_settings_parse(features, &r->features));
    TW_TRY(read_size(state, "layers", 64, &config->layers));
    TW_TRY(read_size(state, "hidden", 16384, &config->hidden));
    TW_TRY(read_size(state, "bottleneck", 65536, &config->bottleneck));
    config->features = feature_width(&r->features);
    config->labels = r->letters.count + 1;
    return TW_OK;
}

/* Without the biases. Two directions of LSTM cells make rows of 2 * hidden. */
static double count_weights(const acoustic_model_config *config)
{
    double hidden = (double)config->hidden, width = 2 * hidden, layers = (double)config->layers;
    double cells = 2 * 4 * hidden * ((double)config->features + hidden + (layers - 1) * (width + hidden));
    double bottleneck = (double)config->bottleneck, inputs = bottleneck > 0 ? bottleneck : width;
    return cells + width * bottleneck + inputs * (double)config->labels;
}

static tw_status build(void *recogniser_of_it, const tw_state *state)
{
    recogniser *r = recogniser_of_it;
    acoustic_model_config config;
    TW_TRY(read_texts(r, state, &config));
    TW_TRY(checkpoint_holds(state, count_weights(&config)));
    TW_TRY(log_mel_create(&r->features, &r->extractor));
    TW_TRY(acoustic_model_create(&config, &r->model));
    const parameter_set *parameters = acoustic_model_parameters(r->model);
    return checkpoint_weights(state, parameters->table->tensors, parameters->table->count, parameters->values);
}

static void close_recogniser(recogniser *r)
{
    acoustic_model_destroy(r->model);
    log_mel_destroy(r->extractor);
    alphabet_release(&r->letters);
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

static tw_status read_features(recogniser *r, const transcribe_settings *s, const char *path, recording *heard)
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

static tw_status search(const transcribe_settings *s, const utterance *u, recording *heard)
{
    beam *search;
    beam_result result = {0};
    TW_TRY(beam_create(u->frames, u->labels, (size_t)s->beam, &search));
    tw_status status = beam_search(search, u, s->bonus, heard->letters, &result);
    heard->letter_count = result.count;
    beam_destroy(search);
    return status;
}

static tw_status recognise(recogniser *r, const transcribe_settings *s, const char *path, recording *heard)
{
    const float *scores;
    TW_TRY(read_features(r, s, path, heard));
    acoustic_model_batch batch = {.steps = heard->frames, .batch = 1, .frames = heard->rows};
    TW_TRY(acoustic_model_evaluate(r->model, &batch, &scores));
    utterance u = {scores, r->letters.count + 1, heard->frames, r->letters.count + 1};
    if (s->beam > 0)
        TW_TRY(search(s, &u, heard));
    else
        heard->letter_count = decode_greedy(&u, heard->letters);
    alphabet_decode(&r->letters, heard->letters, heard->letter_count, heard->text);
    return TW_OK;
}

static tw_status print_json(const recogniser *r, const char *path, const recording *heard)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "file", path);
    cJSON_AddStringToObject(line, "text", heard->text);
    cJSON_AddNumberToObject(line, "seconds", (double)heard->sample_count / r->features.rate);
    char *text = cJSON_PrintUnformatted(line);
    if (text) puts(text);
    free(text);
    cJSON_Delete(line);
    return text ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for a line of JSON");
}

static tw_status transcribe(recogniser *r, const transcribe_settings *s, const char *path)
{
    recording heard = {0};
    tw_status status = recognise(r, s, path, &heard);
    if (status == TW_OK && s->json) status = print_json(r, path, &heard);
    if (status == TW_OK && !s->json) printf("%s\t%s\n", path, heard.text);
    free(heard.samples);
    free(heard.rows);
    free(heard.letters);
    free(heard.text);
    return status;
}

static int run(void *settings, options *set)
{
    recogniser r = {0};
    int code = EXIT_DONE;
    tw_status status = checkpoint_read(set->arguments[0], build, &r);
    if (status != TW_OK) code = launch_refuse();
    for (size_t i = 1; status == TW_OK && i < set->argument_count; i++)
        if (transcribe(&r, settings, set->arguments[i]) != TW_OK) code = launch_refuse();
    close_recogniser(&r);
    return code;
}

int command_transcribe(int argc, char **argv)
{
    transcribe_settings settings = {0};
    return command_run(&page, argc, argv, &settings, run);
}
