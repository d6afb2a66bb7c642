#include "transformer_folder.h"

#include "error.h"
#include "rotary.h"

#include <string.h>

/* ---- config.json ---- */

static uint32_t end_of_line(const vocabulary *v)
{
    const char *end = vocabulary_unit(v) == TEXT_WORDS ? TOKEN_END_OF_LINE : "\n";
    return vocabulary_find(v, end, strlen(end));
}

static void add_sizes(const lm_predictor *p, cJSON *config)
{
    const language_model_config *c = &p->config;
    const struct {
        const char *name;
        size_t value;
    } sizes[] = {{"vocab_size", vocabulary_count(p->vocabulary)},
                 {"hidden_size", c->hidden},
                 {"intermediate_size", c->inner},
                 {"num_hidden_layers", c->layers},
                 {"num_attention_heads", c->heads},
                 {"num_key_value_heads", c->kv_heads},
                 {"head_dim", c->hidden / c->heads},
                 {"max_position_embeddings", p->context}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        cJSON_AddNumberToObject(config, sizes[i].name, (double)sizes[i].value);
}

/* A text begins with the end of a line, as when thinwire generate writes one; and nothing ends it. */
static void describe_config(const lm_predictor *p, cJSON *config)
{
    const uint32_t begins = end_of_line(p->vocabulary);
    cJSON *architectures = cJSON_AddArrayToObject(config, "architectures");
    cJSON_AddItemToArray(architectures, cJSON_CreateString("LlamaForCausalLM"));
    cJSON_AddStringToObject(config, "model_type", "llama");
    add_sizes(p, config);
    cJSON_AddStringToObject(config, "hidden_act", "silu");
    cJSON_AddNumberToObject(config, "rms_norm_eps", 1e-5);
    cJSON_AddNumberToObject(config, "rope_theta", NN_ROTARY_BASE);
    cJSON_AddBoolToObject(config, "attention_bias", 0);
    cJSON_AddBoolToObject(config, "mlp_bias", 0);
    cJSON_AddBoolToObject(config, "tie_word_embeddings", p->config.tied);
    cJSON_AddStringToObject(config, "torch_dtype", "float32");
    cJSON_AddNumberToObject(config, "bos_token_id", begins == VOCABULARY_NONE ? 0 : (double)begins);
    cJSON_AddNullToObject(config, "eos_token_id");
    cJSON_AddNullToObject(config, "pad_token_id");
}

/* ---- tokenizer.json ---- */

static void add_split(cJSON *parent, const char *expression, const char *behaviour)
{
    cJSON *split = cJSON_AddObjectToObject(parent, "pre_tokenizer");
    cJSON_AddStringToObject(split, "type", "Split");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(split, "pattern"), "Regex", expression);
    cJSON_AddStringToObject(split, "behavior", behaviour);
    cJSON_AddBoolToObject(split, "invert", 0);
}

/* An end of a line is a word. */
static void add_end_of_line(cJSON *tokenizer)
{
    cJSON *replace = cJSON_AddObjectToObject(tokenizer, "normalizer");
    cJSON_AddStringToObject(replace, "type", "Replace");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(replace, "pattern"), "String", "\n");
    cJSON_AddStringToObject(replace, "content", " " TOKEN_END_OF_LINE " ");
}

/* Words are joined by spaces where there is no decoder; characters are not. */
static void describe_tokenizer(const vocabulary *v, cJSON *tokenizer)
{
    const int words = vocabulary_unit(v) == TEXT_WORDS;
    cJSON_AddStringToObject(tokenizer, "version", "1.0");
    cJSON_AddArrayToObject(tokenizer, "added_tokens");
    if (words) add_end_of_line(tokenizer);
    add_split(tokenizer, words ? "[ \\t\\r\\x0b\\x0c]+" : "[\\s\\S]", words ? "Removed" : "Isolated");
    if (!words) cJSON_AddStringToObject(cJSON_AddObjectToObject(tokenizer, "decoder"), "type", "Fuse");
    cJSON *model = cJSON_AddObjectToObject(tokenizer, "model");
    cJSON_AddStringToObject(model, "type", "WordLevel");
    cJSON_AddStringToObject(model, "unk_token", TOKEN_UNKNOWN);
    cJSON *all = cJSON_AddObjectToObject(model, "vocab");
    for (uint32_t i = 0; i < vocabulary_count(v); i++)
        cJSON_AddItemToObject(all, vocabulary_token(v, i), cJSON_CreateNumber(i));
}

static void describe_tokenizer_config(const lm_predictor *p, cJSON *config)
{
    cJSON_AddStringToObject(config, "tokenizer_class", "PreTrainedTokenizerFast");
    cJSON_AddNumberToObject(config, "model_max_length", (double)p->context);
    cJSON_AddBoolToObject(config, "clean_up_tokenization_spaces", 0);
}

tw_status lm_describe_folder(const task_predictor *base, const task_folder *folder)
{
    const lm_predictor *p = (const lm_predictor *)base;
    if (p->config.heads == 0)
        return tw_fail(TW_ERROR_UNSUPPORTED, "transformers has no LSTMs like this network's; leave out --transformers");
    describe_config(p, folder->config);
    describe_tokenizer(p->vocabulary, folder->tokenizer);
    describe_tokenizer_config(p, folder->tokenizer_config);
    return TW_OK;
}
