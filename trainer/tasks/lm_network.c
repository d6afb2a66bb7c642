#include "lm_network.h"

#include "code_point.h"
#include "error.h"
#include "file.h"
#include "recurrent_export.h"
#include "sampling.h"
#include "state_matrix.h"
#include "transformer_text.h"

#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

/* The shapes of the tensors tell the network's. */
static tw_status read_lstms(const tw_state *state, language_model_config *config, size_t *types)
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

static tw_status read_network(const tw_state *state, lm_predictor *p, size_t *types)
{
    p->context = 1;
    return tw_state_text(state, TASK_NETWORK) ? transformer_read(state, &p->config, types, &p->context)
                                              : read_lstms(state, &p->config, types);
}

/* Without the biases. */
static double count_weights(const language_model_config *config, size_t types)
{
    if (config->heads > 0) return transformer_weights(config, types);
    double hidden = (double)config->hidden, embedding = (double)config->embedding, layers = (double)config->layers;
    double cells = 4 * hidden * (embedding + hidden + (layers - 1) * 2 * hidden);
    return cells + (double)types * (embedding + (config->tied ? 0 : hidden));
}

/* Before a network is made of what the shapes say, since a small file can say much. */
static tw_status lm_network_check_size(double weights, size_t elements)
{
    if ((double)elements >= weights) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "it is of a network with %.0f weights, but holds %zu", weights, elements);
}

static tw_status lm_network_fill_predictor(const tw_state *state, size_t elements, lm_predictor *p)
{
    language_model_shape shape = {.batch = 1};
    const char *text = tw_state_text(state, "vocabulary.txt");
    if (!text) return tw_fail(TW_ERROR_FORMAT, "it holds no vocabulary: thinwire train lm did not write it");
    TW_TRY(vocabulary_read(text, &p->vocabulary));
    TW_TRY(read_network(state, p, &shape.vocabulary));
    shape.steps = p->context;
    if (shape.vocabulary != vocabulary_count(p->vocabulary))
        return tw_fail(TW_ERROR_FORMAT, "it has a network for %zu tokens and a vocabulary of %zu", shape.vocabulary,
                       vocabulary_count(p->vocabulary));
    TW_TRY(lm_network_check_size(count_weights(&p->config, shape.vocabulary), elements));
    TW_TRY(language_model_create(&p->config, &shape, &p->model));
    const parameter_set *parameters = language_model_parameters(p->model);
    p->base = (task_predictor){.tensors = parameters->table->tensors,
                               .tensor_count = parameters->table->count,
                               .parameters = parameters->values};
    return TW_OK;
}

tw_status lm_predictor_open(const tw_state *state, size_t elements, task_predictor **out)
{
    lm_predictor *p = calloc(1, sizeof *p);
    if (!p) return tw_fail(TW_ERROR_MEMORY, "no memory for a network");
    tw_status status = lm_network_fill_predictor(state, elements, p);
    if (status == TW_OK)
        *out = &p->base;
    else
        lm_predictor_close(&p->base);
    return status;
}

void lm_predictor_close(task_predictor *base)
{
    lm_predictor *p = (lm_predictor *)base;
    if (!p) return;
    language_model_destroy(p->model);
    vocabulary_destroy(p->vocabulary);
    free(p);
}

/* ---- writing ---- */

/* A model that writes, and where its line stands. */
typedef struct author {
    lm_predictor *p;
    FILE *out;
    const char *whose; /* text it goes on with, for messages: a file's name, or --prompt */
    bool in_line;      /* words: something stands in the line already */
    piece_ids written; /* pieces, which are printed at the end: some characters take several */
} author;

/* The model reads a token. */
static tw_status lm_network_hear(author *a, uint32_t token)
{
    int32_t id = (int32_t)token;
    language_model_text text = {.tokens = &id, .steps = 1};
    return language_model_evaluate(a->p->model, &text, NULL);
}

const char *lm_unit_name(text_unit unit)
{
    static const char *const names[TEXT_UNITS] = {
        [TEXT_WORDS] = "word", [TEXT_CHARACTERS] = "char", [TEXT_PIECES] = "piece", [TEXT_IDS] = "id"};
    return names[unit];
}

/* Prints a token, words and numbers with spaces between them. */
static void print_token(author *a, uint32_t token)
{
    const char *text = vocabulary_token(a->p->vocabulary, token);
    bool words = vocabulary_unit(a->p->vocabulary) != TEXT_CHARACTERS;
    if (words && strcmp(text, TOKEN_END_OF_LINE) == 0) text = "\n";
    bool ends = strcmp(text, "\n") == 0;
    if (words && a->in_line && !ends) fputc(' ', a->out);
    fputs(text, a->out);
    a->in_line = !ends;
}

static tw_status print_pieces(author *a)
{
    char *text;
    size_t size;
    const piece_set *model = vocabulary_pieces(a->p->vocabulary);
    if (!model) return TW_OK;
    TW_TRY(pieces_decode(model, a->written.ids, a->written.count, &text, &size));
    fwrite(text, 1, size, a->out);
    a->in_line = size > 0 && text[size - 1] != '\n';
    free(text);
    return TW_OK;
}

static tw_status say(author *a, uint32_t token)
{
    if (vocabulary_pieces(a->p->vocabulary))
        TW_TRY(piece_ids_add(&a->written, &token, 1));
    else
        print_token(a, token);
    return lm_network_hear(a, token);
}

/* Every text begins a line; a model without lines begins with what is most frequent. What ids begin with is said in
 * the prompt. */
static tw_status begin_line(author *a)
{
    const uint32_t token = vocabulary_begin(a->p->vocabulary);
    TW_TRY(language_model_start_writing(a->p->model));
    if (vocabulary_unit(a->p->vocabulary) == TEXT_IDS) return TW_OK;
    return lm_network_hear(a, token == VOCABULARY_NONE ? 0 : token);
}

static tw_status check_begin(const author *a, token_reader reader)
{
    const char *token;
    size_t length;
    if (vocabulary_unit(a->p->vocabulary) != TEXT_IDS || token_next(&reader, &token, &length)) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "%s has no id, and a text of ids begins with one; write for example --prompt \"1 15 4\"", a->whose);
}

static tw_status check_prompt(const author *a, token_reader reader)
{
    const char *token;
    char shown[TOKEN_SHOWN];
    size_t length;
    if (utf8_prefix(reader.at, (size_t)(reader.end - reader.at)) != (size_t)(reader.end - reader.at))
        return tw_fail(TW_ERROR_FORMAT, "%s is not UTF-8", a->whose);
    while (!vocabulary_pieces(a->p->vocabulary) && token_next(&reader, &token, &length))
        if (vocabulary_find_or_unknown(a->p->vocabulary, token, length) == VOCABULARY_NONE)
            return tw_fail(TW_ERROR_FORMAT, "%s: \"%s\" is not in the model's vocabulary, and there is no <unk>",
                           a->whose, code_point_show(token, length, shown, TOKEN_SHOWN));
    return TW_OK;
}

static tw_status read_in_pieces(author *a, const piece_set *model, token_reader reader)
{
    piece_ids ids = {0};
    tw_status status = pieces_encode(model, reader.at, (size_t)(reader.end - reader.at), &ids);
    for (size_t i = 0; status == TW_OK && i < ids.count; i++) status = say(a, ids.ids[i]);
    free(ids.ids);
    return status;
}

static tw_status read_prompt(author *a, token_reader reader)
{
    const char *token;
    size_t length;
    TW_TRY(begin_line(a));
    if (vocabulary_pieces(a->p->vocabulary)) return read_in_pieces(a, vocabulary_pieces(a->p->vocabulary), reader);
    while (token_next(&reader, &token, &length))
        TW_TRY(say(a, vocabulary_find_or_unknown(a->p->vocabulary, token, length)));
    return TW_OK;
}

static tw_status go_on(author *a, const lm_use *use)
{
    sampling how = {.temperature = use->temperature, .top_k = (size_t)use->top_k, .seed = (uint64_t)use->seed};
    size_t types = vocabulary_count(a->p->vocabulary);
    for (long i = 0; i < use->tokens; i++) {
        uint32_t token;
        TW_TRY(sample_token(&how, language_model_logits(a->p->model), types, (uint64_t)i, &token));
        TW_TRY(say(a, token));
    }
    TW_TRY(print_pieces(a));
    if (a->in_line) fputc('\n', a->out);
    return TW_OK;
}

/* `title` is the text's, or NULL where there is none. */
static tw_status lm_network_write_text(author *a, const lm_use *use, const char *text, size_t size, const char *title)
{
    token_reader reader = {text, text + size, vocabulary_unit(a->p->vocabulary)};
    TW_TRY(check_prompt(a, reader));
    TW_TRY(check_begin(a, reader));
    if (title) fprintf(a->out, "==> %s <==\n", title);
    TW_TRY(read_prompt(a, reader));
    return go_on(a, use);
}

/* The whole text is a member of the object. */
static tw_status put_text(author *a, const lm_use *use, const char *text, size_t size, cJSON *json)
{
    char *written = NULL;
    size_t length;
    a->out = open_memstream(&written, &length);
    if (!a->out) return tw_fail(TW_ERROR_MEMORY, "no memory for a text");
    tw_status status = lm_network_write_text(a, use, text, size, NULL);
    if (fclose(a->out) != 0 && status == TW_OK) status = tw_fail(TW_ERROR_MEMORY, "no memory for a text");
    if (status == TW_OK) cJSON_AddStringToObject(json, "text", written);
    free(written);
    return status;
}

static tw_status answer_text(author *a, const lm_use *use, const char *text, size_t size, const task_answer *answer)
{
    if (answer->json) return put_text(a, use, text, size, answer->json);
    a->out = answer->text;
    return lm_network_write_text(a, use, text, size, answer->is_among ? answer->name : NULL);
}

tw_status lm_predict(task_predictor *base, const void *use_of_it, const char *path, const task_answer *answer)
{
    const lm_use *use = use_of_it;
    author a = {.p = (lm_predictor *)base, .whose = path ? path : "--prompt"};
    const char *prompt = use->prompt ? use->prompt : "";
    uint8_t *bytes;
    size_t size;
    if (path && use->prompt)
        return tw_fail(TW_ERROR_ARGUMENT, "--prompt begins a text, and so does %s: one of the two is enough", path);
    if (path) TW_TRY(file_read(path, &bytes, &size));
    tw_status status = path ? answer_text(&a, use, (const char *)bytes, size, answer)
                            : answer_text(&a, use, prompt, strlen(prompt), answer);
    if (path) free(bytes);
    free(a.written.ids);
    return status;
}

/* ---- describing ---- */

/* PyTorch's tied matrix has both names. */
static tw_status put_decoder(const lm_predictor *p, tw_state *tensors)
{
    const tw_tensor *encoder = &p->base.tensors[0];
    if (!p->config.tied) return TW_OK;
    return tw_state_put(tensors, p->config.heads ? "lm_head.weight" : "decoder.weight", TW_F32, encoder->dims,
                        encoder->shape, p->base.parameters);
}

static void describe_heads(const lm_predictor *p, cJSON *network)
{
    const nn_rotary_scaling *s = &p->config.scaling;
    const double scaling[] = {s->factor, s->low, s->high, s->original};
    cJSON_AddStringToObject(network, "family", transformer_families[p->config.family]);
    cJSON_AddNumberToObject(network, "heads", (double)p->config.heads);
    cJSON_AddNumberToObject(network, "kv_heads", (double)p->config.kv_heads);
    cJSON_AddNumberToObject(network, "head", (double)language_model_head(&p->config));
    cJSON_AddNumberToObject(network, "inner", (double)p->config.inner);
    cJSON_AddNumberToObject(network, "theta", p->config.theta);
    if (s->factor > 0.0) cJSON_AddItemToObject(network, "scaling", cJSON_CreateDoubleArray(scaling, 4));
    cJSON_AddNumberToObject(network, "epsilon", (double)p->config.epsilon);
    cJSON_AddNumberToObject(network, "context", (double)p->context);
}

tw_status lm_describe_network(const task_predictor *base, cJSON *network, tw_state *tensors)
{
    const lm_predictor *p = (const lm_predictor *)base;
    cJSON_AddStringToObject(network, "architecture", p->config.heads ? "transformer" : "language model");
    if (p->config.heads > 0) describe_heads(p, network);
    cJSON_AddNumberToObject(network, "layers", (double)p->config.layers);
    cJSON_AddNumberToObject(network, "hidden", (double)p->config.hidden);
    cJSON_AddNumberToObject(network, "embedding", (double)p->config.embedding);
    cJSON_AddBoolToObject(network, "tied", p->config.tied);
    cJSON_AddStringToObject(network, "unit", lm_unit_name(vocabulary_unit(p->vocabulary)));
    cJSON *all = cJSON_AddArrayToObject(network, "vocabulary");
    for (uint32_t i = 0; i < vocabulary_count(p->vocabulary); i++)
        cJSON_AddItemToArray(all, cJSON_CreateString(vocabulary_token(p->vocabulary, i)));
    TW_TRY(put_decoder(p, tensors));
    return recurrent_export_biases(base, tensors);
}
