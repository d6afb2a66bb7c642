#include "transformer_folder.h"

#include "error.h"
#include "tokenizer_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- config.json ---- */

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

/* 1e-05, and not what is nearest to it in fp32. */
static double shortest(float value)
{
    char text[32];
    snprintf(text, sizeof text, "%.7g", (double)value);
    return strtod(text, NULL);
}

/* A text begins with the end of a line, as when thinwire generate writes one, and of ids nobody knows; nothing ends it.
 */
static void describe_config(const lm_predictor *p, cJSON *config)
{
    const language_model_config *c = &p->config;
    const uint32_t begins = vocabulary_begin(p->vocabulary);
    cJSON *architectures = cJSON_AddArrayToObject(config, "architectures");
    cJSON_AddItemToArray(architectures, cJSON_CreateString("LlamaForCausalLM"));
    cJSON_AddStringToObject(config, "model_type", "llama");
    add_sizes(p, config);
    cJSON_AddStringToObject(config, "hidden_act", "silu");
    cJSON_AddNumberToObject(config, "rms_norm_eps", shortest(c->epsilon));
    cJSON_AddNumberToObject(config, "rope_theta", c->theta);
    cJSON_AddBoolToObject(config, "attention_bias", 0);
    cJSON_AddBoolToObject(config, "mlp_bias", 0);
    cJSON_AddBoolToObject(config, "tie_word_embeddings", p->config.tied);
    cJSON_AddStringToObject(config, "torch_dtype", "float32");
    cJSON_AddItemToObject(config, "bos_token_id",
                          vocabulary_unit(p->vocabulary) == TEXT_IDS ? cJSON_CreateNull()
                          : begins == VOCABULARY_NONE                ? cJSON_CreateNumber(0)
                                                                     : cJSON_CreateNumber(begins));
    cJSON_AddNullToObject(config, "eos_token_id");
    cJSON_AddNullToObject(config, "pad_token_id");
}

/* ---- the folder ---- */

static void describe_tokenizer_config(const lm_predictor *p, cJSON *config)
{
    cJSON_AddStringToObject(config, "tokenizer_class", "PreTrainedTokenizerFast");
    cJSON_AddNumberToObject(config, "model_max_length", (double)p->context);
    cJSON_AddBoolToObject(config, "clean_up_tokenization_spaces", 0);
    if (vocabulary_pieces(p->vocabulary)) tokenizer_pieces_describe_use(p->vocabulary, config);
}

tw_status lm_describe_folder(const task_predictor *base, task_folder *folder)
{
    const lm_predictor *p = (const lm_predictor *)base;
    if (p->config.heads == 0)
        return tw_fail(TW_ERROR_UNSUPPORTED, "transformers has no LSTMs like this network's; leave out --transformers");
    describe_config(p, folder->config);
    if (vocabulary_unit(p->vocabulary) == TEXT_IDS) return TW_OK; /* the tokenizer is somebody else's */
    TW_TRY(tokenizer_json_describe(p->vocabulary, folder->tokenizer));
    describe_tokenizer_config(p, folder->tokenizer_config);
    if (vocabulary_pieces(p->vocabulary))
        folder->pieces = pieces_bytes(vocabulary_pieces(p->vocabulary), &folder->pieces_size);
    return TW_OK;
}
