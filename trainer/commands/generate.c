/* thinwire generate: text from a language model that thinwire train lm made. */
#include "checkpoint.h"
#include "code_point.h"
#include "commands.h"
#include "error.h"
#include "language_model.h"
#include "launch.h"
#include "sampling.h"
#include "vocabulary.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct generate_settings {
    char *prompt;
    long tokens, top_k, seed;
    double temperature;
} generate_settings;

#define AT(field) offsetof(generate_settings, field)

static const option_row rows[] = {
    {"prompt", "TEXT", OPTION_TEXT, AT(prompt), .help = "what the text begins with; without it, a new line"},
    {"tokens", "N", OPTION_INTEGER, AT(tokens), "200", 0, 1e9,
     .help = "words, or characters, to add; ends of lines count"},
    {"temperature", "T", OPTION_REAL, AT(temperature), "1", 0, 100,
     .help = "below 1 the likely becomes likelier; 0: always the likeliest"},
    {"top-k", "K", OPTION_INTEGER, AT(top_k), "0", 0, 1e9, .help = "draw from the K likeliest only; 0: from all"},
    {"seed", "N", OPTION_INTEGER, AT(seed), "1", 0, 1e15, .help = "another text for every seed"},
};

static const option_page page = {
    .usage = "thinwire generate CHECKPOINT [options]",
    .description = "Lets a language model write. CHECKPOINT is the folder of a run of thinwire train lm, one of its "
                   "checkpoints, or a model.safetensors.",
    .examples = "  thinwire generate runs/shakespeare --prompt 'ROMEO:' --tokens 500 --temperature 0.8\n",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
    .least_arguments = 1,
    .most_arguments = 1,
};

/* ---- the model ---- */

/* A model that writes, and where its line stands. */
typedef struct author {
    const char *path; /* of its checkpoint */
    vocabulary *vocabulary;
    language_model *model;
    bool in_line; /* words: something stands in the line already */
} author;

static size_t find_matrix(const tw_state *state, const char *name, size_t shape[2])
{
    for (size_t i = 0; i < tw_state_count(state); i++) {
        tw_state_entry entry;
        if (tw_state_at(state, i, &entry) != TW_OK || strcmp(entry.name, name) != 0 || entry.dims != 2) continue;
        shape[0] = entry.shape[0];
        shape[1] = entry.shape[1];
        return 1;
    }
    return 0;
}

/* The shapes of the tensors tell the network's. */
static tw_status read_network(const tw_state *state, language_model_config *config, size_t *types)
{
    size_t encoder[2], decoder[2], cells[2];
    char name[64] = "rnn.weight_hh_l0";
    *config = (language_model_config){.keep = 1};
    if (!find_matrix(state, "encoder.weight", encoder) || !find_matrix(state, name, cells))
        return tw_fail(TW_ERROR_FORMAT, "not a language model: it lacks encoder.weight or %s", name);
    config->tied = !find_matrix(state, "decoder.weight", decoder);
    config->embedding = encoder[1];
    config->hidden = cells[1];
    for (; find_matrix(state, name, cells); config->layers++)
        snprintf(name, sizeof name, "rnn.weight_hh_l%zu", config->layers + 1);
    *types = encoder[0];
    return TW_OK;
}

/* Without the biases. */
static double count_weights(const language_model_config *config, size_t types)
{
    double hidden = (double)config->hidden, embedding = (double)config->embedding, layers = (double)config->layers;
    double cells = 4 * hidden * (embedding + hidden + (layers - 1) * 2 * hidden);
    return cells + (double)types * (embedding + (config->tied ? 0 : hidden));
}

static tw_status read_model(void *author_of_it, const tw_state *state)
{
    author *a = author_of_it;
    language_model_config config;
    language_model_shape shape = {.steps = 1, .batch = 1};
    const char *text = tw_state_text(state, "vocabulary.txt");
    if (!text) return tw_fail(TW_ERROR_FORMAT, "it holds no vocabulary: thinwire train lm did not write it");
    TW_TRY(vocabulary_read(text, &a->vocabulary));
    TW_TRY(read_network(state, &config, &shape.vocabulary));
    if (shape.vocabulary != vocabulary_count(a->vocabulary))
        return tw_fail(TW_ERROR_FORMAT, "it has a network for %zu tokens and a vocabulary of %zu", shape.vocabulary,
                       vocabulary_count(a->vocabulary));
    TW_TRY(checkpoint_holds(state, count_weights(&config, shape.vocabulary)));
    TW_TRY(language_model_create(&config, &shape, &a->model));
    const parameter_set *parameters = language_model_parameters(a->model);
    TW_TRY(checkpoint_weights(state, parameters->table->tensors, parameters->table->count, parameters->values));
    return language_model_start_evaluation(a->model, 1);
}

static void close_author(author *a)
{
    language_model_destroy(a->model);
    vocabulary_destroy(a->vocabulary);
}

/* ---- writing ---- */

/* The model reads a token. */
static tw_status hear(author *a, uint32_t token)
{
    int32_t id = (int32_t)token;
    language_model_text text = {.tokens = &id, .steps = 1};
    return language_model_evaluate(a->model, &text, NULL);
}

/* Prints a token, words with spaces between them. */
static void print_token(author *a, uint32_t token)
{
    const char *text = vocabulary_token(a->vocabulary, token);
    bool words = vocabulary_unit(a->vocabulary) == TEXT_WORDS;
    if (words && strcmp(text, TOKEN_END_OF_LINE) == 0) text = "\n";
    bool ends = strcmp(text, "\n") == 0;
    if (words && a->in_line && !ends) putchar(' ');
    fputs(text, stdout);
    a->in_line = !ends;
}

static tw_status say(author *a, uint32_t token)
{
    print_token(a, token);
    return hear(a, token);
}

/* Every text begins a line; a model without lines begins with what is most frequent. */
static tw_status begin_line(author *a)
{
    const char *end = vocabulary_unit(a->vocabulary) == TEXT_WORDS ? TOKEN_END_OF_LINE : "\n";
    uint32_t token = vocabulary_find(a->vocabulary, end, strlen(end));
    return hear(a, token == VOCABULARY_NONE ? 0 : token);
}

static tw_status check_prompt(const author *a, token_reader reader)
{
    const char *token;
    char shown[TOKEN_SHOWN];
    size_t length;
    if (utf8_prefix(reader.at, (size_t)(reader.end - reader.at)) != (size_t)(reader.end - reader.at))
        return tw_fail(TW_ERROR_ARGUMENT, "--prompt is not UTF-8");
    while (token_next(&reader, &token, &length))
        if (vocabulary_find_or_unknown(a->vocabulary, token, length) == VOCABULARY_NONE)
            return tw_fail(TW_ERROR_ARGUMENT, "--prompt: \"%s\" is not in the vocabulary of %s, and there is no <unk>",
                           code_point_show(token, length, shown, TOKEN_SHOWN), a->path);
    return TW_OK;
}

static tw_status read_prompt(author *a, const char *prompt)
{
    token_reader reader = {prompt, prompt + strlen(prompt), vocabulary_unit(a->vocabulary)};
    const char *token;
    size_t length;
    TW_TRY(check_prompt(a, reader));
    while (token_next(&reader, &token, &length))
        TW_TRY(say(a, vocabulary_find_or_unknown(a->vocabulary, token, length)));
    return TW_OK;
}

static tw_status write_text(author *a, const generate_settings *s)
{
    sampling how = {.temperature = s->temperature, .top_k = (size_t)s->top_k, .seed = (uint64_t)s->seed};
    size_t types = vocabulary_count(a->vocabulary);
    TW_TRY(begin_line(a));
    if (s->prompt) TW_TRY(read_prompt(a, s->prompt));
    for (long i = 0; i < s->tokens; i++) {
        uint32_t token;
        TW_TRY(sample_token(&how, language_model_logits(a->model), types, (uint64_t)i, &token));
        TW_TRY(say(a, token));
    }
    if (a->in_line) putchar('\n');
    return TW_OK;
}

static int run(void *settings, options *set)
{
    author a = {.path = set->arguments[0]};
    tw_status status = checkpoint_read(a.path, read_model, &a);
    if (status == TW_OK) status = write_text(&a, settings);
    close_author(&a);
    return status == TW_OK ? EXIT_DONE : launch_refuse();
}

int command_generate(int argc, char **argv)
{
    generate_settings settings = {0};
    return command_run(&page, argc, argv, &settings, run);
}
