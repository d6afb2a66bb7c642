#include "transformer_folder.h"

#include "error.h"
#include "tokenizer_json.h"
#include "transformer_text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- config.json ---- */

/* Those that the run was trained with. What llama3 says is of a text `factor` times as long as the original one, and
 * transformers wants to hear of more than the original. */
static double positions_of(const lm_predictor *p)
{
    const nn_rotary_scaling *s = &p->config.scaling;
    return fmax((double)p->context, fmin(floor(s->factor * s->original), INT32_MAX));
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
                 {"head_dim", language_model_head(c)}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        cJSON_AddNumberToObject(config, sizes[i].name, (double)sizes[i].value);
    cJSON_AddNumberToObject(config, "max_position_embeddings", positions_of(p));
}

/* 1e-05, and not what is nearest to it in fp32. */
static double shortest(float value)
{
    char text[32];
    snprintf(text, sizeof text, "%.7g", (double)value);
    return strtod(text, NULL);
}

static void add_family(const char *family, cJSON *config)
{
    char name[32];
    snprintf(name, sizeof name, "%c%sForCausalLM", toupper((unsigned char)*family), family + 1);
    cJSON_AddItemToArray(cJSON_AddArrayToObject(config, "architectures"), cJSON_CreateString(name));
    cJSON_AddStringToObject(config, "model_type", family);
}

/* Under the key that all versions of transformers read. */
static void add_scaling(const nn_rotary_scaling *s, cJSON *config)
{
    if (s->factor == 0.0) return;
    cJSON *rope = cJSON_AddObjectToObject(config, "rope_scaling");
    cJSON_AddStringToObject(rope, "rope_type", s->original > 0.0 ? "llama3" : "linear");
    cJSON_AddNumberToObject(rope, "factor", s->factor);
    if (s->original == 0.0) return;
    cJSON_AddNumberToObject(rope, "low_freq_factor", s->low);
    cJSON_AddNumberToObject(rope, "high_freq_factor", s->high);
    cJSON_AddNumberToObject(rope, "original_max_position_embeddings", s->original);
}

/* A text begins with the end of a line, as when thinwire generate writes one, and of ids nobody knows; nothing ends it.
 */
static void describe_config(const lm_predictor *p, cJSON *config)
{
    const language_model_config *c = &p->config;
    const uint32_t begins = vocabulary_begin(p->vocabulary);
    add_family(transformer_families[c->family], config);
    add_sizes(p, config);
    cJSON_AddStringToObject(config, "hidden_act", "silu");
    cJSON_AddNumberToObject(config, "rms_norm_eps", shortest(c->epsilon));
    cJSON_AddNumberToObject(config, "rope_theta", c->theta);
    add_scaling(&c->scaling, config);
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
    cJSON_AddNumberToObject(config, "model_max_length", positions_of(p));
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
