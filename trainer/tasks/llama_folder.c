/* llama_folder.c - a LlamaForCausalLM of transformers, or one of its kin, as a checkpoint of thinwire train lm would
 * have it. */
#include "error.h"
#include "file.h"
#include "rotary.h"
#include "shape.h"
#include "tokenizer_json.h"
#include "transformer_folder.h"
#include "transformer_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EMBEDDING "model.embed_tokens.weight"
#define HEAD "lm_head.weight"

typedef struct llama_folder {
    const char *path;
    const cJSON *config;
    language_model_config sizes; /* as config.json has them */
    size_t types, context;
    tw_state *state;
    tw_state *head; /* lm_head.weight beside tied weights, which has to be that of the words that come in */
} llama_folder;

/* ---- config.json ------------------------------------------------------------------------------------------------- */

static tw_status read_object(const char *folder, const char *name, cJSON **object)
{
    char path[FILE_PATH_MOST];
    TW_TRY(tokenizer_json_parse(file_path(path, folder, name), object));
    if (cJSON_IsObject(*object)) return TW_OK;
    cJSON_Delete(*object);
    return tw_fail(TW_ERROR_FORMAT, "%s is not a JSON object", path);
}

/* NULL where it is not there, or null. */
static const cJSON *find_value(const cJSON *object, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNull(value) ? NULL : value;
}

/* What the program's transformer is, whatever the config: another value is refused by its name. */
static tw_status refuse_value(const char *key, const cJSON *value, const char *own)
{
    char *text = cJSON_PrintUnformatted(value);
    tw_status status =
        tw_fail(TW_ERROR_UNSUPPORTED, "config.json has %s %.80s; the transformer of thinwire train lm has %s", key,
                text ? text : "?", own);
    free(text);
    return status;
}

static tw_status check_text(const llama_folder *f, const char *key, const char *own)
{
    const cJSON *value = find_value(f->config, key);
    const char *text = cJSON_GetStringValue(value);
    if (!value || (text && strcmp(text, own) == 0)) return TW_OK;
    return refuse_value(key, value, own);
}

/* Positions turn all of a head's values, or it is another network. */
static tw_status check_all_turn(const cJSON *object)
{
    static const char key[] = "partial_rotary_factor";
    const cJSON *value = find_value(object, key);
    return !value || cJSON_GetNumberValue(value) == 1.0 ? TW_OK : refuse_value(key, value, "1");
}

static tw_status check_false(const llama_folder *f, const char *key)
{
    const cJSON *value = find_value(f->config, key);
    return !value || cJSON_IsFalse(value) ? TW_OK : refuse_value(key, value, "none");
}

/* *number stays what it is where nothing is said. */
static tw_status read_number(const cJSON *object, const char *key, double least, double most, double *number)
{
    const cJSON *value = find_value(object, key);
    const double found = cJSON_GetNumberValue(value);
    if (!value) return TW_OK;
    if (!(found >= least && found <= most))
        return tw_fail(TW_ERROR_FORMAT, "config.json has no %s that is a number from %g to %g", key, least, most);
    *number = found;
    return TW_OK;
}

/* *theta is 0 until somebody has said it. Versions of transformers do not agree on who is believed. */
static tw_status take_theta(const cJSON *object, const char *whose, double *theta)
{
    double told = 0;
    TW_TRY(read_number(object, "rope_theta", 1, 1e12, &told));
    if (told > 0 && *theta > 0 && told != *theta)
        return tw_fail(TW_ERROR_FORMAT,
                       "config.json has %srope_theta %.17g, and another of %.17g; leave one of them out", whose, told,
                       *theta);
    if (told > 0) *theta = told;
    return TW_OK;
}

/* A number that has to be there; transformers takes others' places where it is not. */
static tw_status need_number(const cJSON *rope, const char *key, double least, double *number)
{
    *number = -1.0;
    TW_TRY(read_number(rope, key, least, 1e6, number));
    return *number < 0.0 ? tw_fail(TW_ERROR_FORMAT, "config.json scales its positions, and does not say the %s", key)
                         : TW_OK;
}

static tw_status read_llama3(const cJSON *rope, nn_rotary_scaling *s)
{
    TW_TRY(need_number(rope, "factor", 1, &s->factor));
    TW_TRY(need_number(rope, "low_freq_factor", 0, &s->low));
    TW_TRY(need_number(rope, "high_freq_factor", 0, &s->high));
    TW_TRY(need_number(rope, "original_max_position_embeddings", 1, &s->original));
    if (s->low < s->high) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "config.json has low_freq_factor %g, which is not below its high_freq_factor %g",
                   s->low, s->high);
}

static tw_status read_scaling(const cJSON *rope, const char *key, nn_rotary_scaling *s)
{
    const cJSON *kind = find_value(rope, find_value(rope, "rope_type") ? "rope_type" : "type"), *part;
    const char *name = kind ? cJSON_GetStringValue(kind) : "default";
    char where[64];
    *s = (nn_rotary_scaling){0};
    if (!cJSON_IsObject(rope) || !name) return refuse_value(key, rope, "an object with a rope_type");
    cJSON_ArrayForEach(part, rope) if (cJSON_IsObject(part)) return refuse_value(key, rope, "one for all layers");
    TW_TRY(check_all_turn(rope));
    if (strcmp(name, "default") == 0) return TW_OK;
    if (strcmp(name, "llama3") == 0) return read_llama3(rope, s);
    s->high = 1.0;
    if (strcmp(name, "linear") == 0) return need_number(rope, "factor", 1, &s->factor);
    snprintf(where, sizeof where, "%s.rope_type", key);
    return refuse_value(where, kind, "default, linear and llama3");
}

static int is_same_scaling(const nn_rotary_scaling *one, const nn_rotary_scaling *other)
{
    return one->factor == other->factor && one->low == other->low && one->high == other->high &&
           one->original == other->original;
}

/* transformers 5 has them in an object of their own, of which older versions have the other key. */
static tw_status read_positions(llama_folder *f)
{
    const cJSON *older = find_value(f->config, "rope_scaling"), *rope = find_value(f->config, "rope_parameters");
    nn_rotary_scaling other = {0}, *scaling = &f->sizes.scaling;
    double theta = 0;
    TW_TRY(check_all_turn(f->config));
    TW_TRY(take_theta(f->config, "", &theta));
    TW_TRY(take_theta(older, "rope_scaling.", &theta));
    TW_TRY(take_theta(rope, "rope_parameters.", &theta));
    if (rope) TW_TRY(read_scaling(rope, "rope_parameters", scaling));
    if (older) TW_TRY(read_scaling(older, "rope_scaling", rope ? &other : scaling));
    if (rope && older && !is_same_scaling(scaling, &other))
        return tw_fail(TW_ERROR_FORMAT, "config.json has another rope_scaling than its rope_parameters; leave one of "
                                        "them out");
    f->sizes.theta = theta > 0 ? theta : NN_ROTARY_BASE;
    return TW_OK;
}

/* Qwen's have a window over the last tokens, which is shut as a rule. */
static tw_status check_window(const llama_folder *f)
{
    const cJSON *kinds = find_value(f->config, "layer_types"), *kind;
    TW_TRY(check_false(f, "use_sliding_window"));
    cJSON_ArrayForEach(kind, kinds)
    {
        const char *name = cJSON_GetStringValue(kind);
        if (!name || strcmp(name, "full_attention") != 0)
            return refuse_value("a layer of layer_types", kind, "\"full_attention\"");
    }
    return TW_OK;
}

static tw_status check_family(llama_folder *f)
{
    const cJSON *kind = find_value(f->config, "model_type");
    const char *name = cJSON_GetStringValue(kind);
    if (!kind) return tw_fail(TW_ERROR_FORMAT, "config.json does not say its model_type");
    for (int i = 0; name && i < DECODER_FAMILIES; i++) {
        f->sizes.family = (decoder_family)i;
        if (strcmp(name, transformer_families[i]) == 0) return TW_OK;
    }
    return refuse_value("model_type", kind, "\"llama\", \"qwen2\" or \"qwen3\"");
}

static tw_status check_kind(llama_folder *f)
{
    TW_TRY(check_family(f));
    TW_TRY(check_text(f, "hidden_act", "silu"));
    if (f->sizes.family != DECODER_QWEN2) TW_TRY(check_false(f, "attention_bias")); /* which Qwen2 does not read */
    TW_TRY(check_false(f, "mlp_bias"));
    TW_TRY(check_false(f, "quantization_config"));
    return check_window(f);
}

/* `usual`: where it is not said; 0: it has to be. */
static tw_status read_size(const llama_folder *f, const char *key, size_t usual, size_t *size)
{
    const cJSON *value = find_value(f->config, key);
    const double number = cJSON_GetNumberValue(value);
    *size = usual > 0 ? usual : 1; /* never 0: sizes divide each other */
    if (!value && usual > 0) return TW_OK;
    if (!(number >= 1 && number <= INT32_MAX) || number != floor(number))
        return tw_fail(TW_ERROR_FORMAT, "config.json has no %s that is a whole number from 1 to 2^31 - 1", key);
    *size = (size_t)number;
    return TW_OK;
}

static tw_status check_heads(const language_model_config *c)
{
    if (c->heads > c->hidden)
        return tw_fail(TW_ERROR_FORMAT, "config.json has num_attention_heads %zu, more than its hidden_size %zu",
                       c->heads, c->hidden);
    if (c->heads % c->kv_heads == 0) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT,
                   "config.json has num_key_value_heads %zu, which does not divide its num_attention_heads %zu",
                   c->kv_heads, c->heads);
}

static tw_status read_sizes(llama_folder *f)
{
    language_model_config *c = &f->sizes;
    const bool llama = c->family == DECODER_LLAMA; /* Qwen's defaults are those of one network's size */
    double epsilon = 1e-6;                         /* which transformers takes where nothing is said */
    TW_TRY(read_positions(f));
    TW_TRY(read_number(f->config, "rms_norm_eps", 1e-12, 0.1, &epsilon));
    c->epsilon = (float)epsilon;
    TW_TRY(read_size(f, "vocab_size", 0, &f->types));
    TW_TRY(read_size(f, "hidden_size", 0, &c->hidden));
    TW_TRY(read_size(f, "intermediate_size", 0, &c->inner));
    TW_TRY(read_size(f, "num_hidden_layers", 0, &c->layers));
    TW_TRY(read_size(f, "num_attention_heads", 0, &c->heads));
    TW_TRY(read_size(f, "num_key_value_heads", llama ? c->heads : 0, &c->kv_heads));
    TW_TRY(read_size(f, "max_position_embeddings", 2048, &f->context));
    TW_TRY(check_heads(c));
    TW_TRY(read_size(f, "head_dim", c->family == DECODER_QWEN3 ? 0 : c->hidden / c->heads, &c->head));
    c->tied = cJSON_IsTrue(find_value(f->config, "tie_word_embeddings"));
    if (f->context > TRANSFORMER_CONTEXT_MOST) f->context = TRANSFORMER_CONTEXT_MOST;
    return TW_OK;
}

/* ---- the weights ------------------------------------------------------------------------------------------------- */

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float from_half(uint16_t half)
{
    const int exponent = half >> 10 & 31, mantissa = half & 1023;
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * ldexpf((float)mantissa, -24);
    return from_bits(sign | (uint32_t)(exponent == 31 ? 255 : exponent + 112) << 23 | (uint32_t)mantissa << 13);
}

static tw_status put_widened(const tw_state_entry *entry, tw_state *state)
{
    const uint16_t *halves = entry->data;
    const size_t count = entry->bytes / sizeof *halves;
    float *values = malloc(count * sizeof *values + 1);
    if (!values) return tw_fail(TW_ERROR_MEMORY, "no memory for its %s", entry->name);
    for (size_t i = 0; i < count; i++)
        values[i] = entry->dtype == TW_F16 ? from_half(halves[i]) : from_bits((uint32_t)halves[i] << 16);
    tw_status status = tw_state_put(state, entry->name, TW_F32, entry->dims, entry->shape, values);
    free(values);
    return status;
}

/* Old files have waves of the positions; some have the output of tied weights, too. */
static tw_status take_entry(const llama_folder *f, const tw_state_entry *entry)
{
    tw_state *into = f->sizes.tied && strcmp(entry->name, HEAD) == 0 ? f->head : f->state;
    if (strstr(entry->name, "rotary_emb.inv_freq")) return TW_OK;
    if (entry->dtype == TW_F32) return tw_state_put(into, entry->name, TW_F32, entry->dims, entry->shape, entry->data);
    if (entry->dtype == TW_F16 || entry->dtype == TW_BF16) return put_widened(entry, into);
    return tw_fail(TW_ERROR_UNSUPPORTED, "its %s is neither fp32 nor fp16 nor bf16, the types that are read",
                   entry->name);
}

static tw_status take_file(const llama_folder *f, const char *name)
{
    char path[FILE_PATH_MOST];
    tw_state *part;
    tw_status status = TW_OK;
    TW_TRY(tw_state_load(file_path(path, f->path, name), &part));
    for (size_t i = 0; i < tw_state_count(part) && status == TW_OK; i++) {
        tw_state_entry entry;
        status = tw_state_at(part, i, &entry);
        if (status == TW_OK) status = take_entry(f, &entry);
    }
    tw_state_destroy(part);
    return status;
}

/* A file beside the list, wherever a list of somebody's leads. */
static tw_status check_part(const cJSON *part)
{
    const char *name = cJSON_GetStringValue(part);
    if (name && *name && strlen(name) < FILE_NAME_MOST && !strchr(name, '/')) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "model.safetensors.index.json names no file of the folder for %.80s", part->string);
}

static bool comes_before(const cJSON *map, const cJSON *part)
{
    const cJSON *other;
    cJSON_ArrayForEach(other, map)
    {
        if (other == part) return false;
        if (strcmp(other->valuestring, part->valuestring) == 0) return true;
    }
    return false;
}

static tw_status take_listed(const llama_folder *f, const cJSON *map)
{
    const cJSON *part;
    if (!cJSON_IsObject(map))
        return tw_fail(TW_ERROR_FORMAT,
                       "model.safetensors.index.json has no weight_map, an object that names each tensor's file");
    cJSON_ArrayForEach(part, map) TW_TRY(check_part(part));
    cJSON_ArrayForEach(part, map) if (!comes_before(map, part)) TW_TRY(take_file(f, part->valuestring));
    return TW_OK;
}

/* Where there are both, transformers takes the whole one. */
static tw_status take_weights(const llama_folder *f)
{
    static const char whole[] = "model.safetensors", index[] = "model.safetensors.index.json";
    cJSON *list;
    if (file_exists(f->path, whole) || !file_exists(f->path, index)) return take_file(f, whole);
    TW_TRY(read_object(f->path, index, &list));
    tw_status status = take_listed(f, find_value(list, "weight_map"));
    cJSON_Delete(list);
    return status;
}

/* ---- together ---------------------------------------------------------------------------------------------------- */

/* What the shapes of the tensors say is what config.json says. */
static tw_status compare_sizes(const llama_folder *f, const language_model_config *found, size_t types)
{
    const struct {
        const char *name;
        size_t told, found;
    } sizes[] = {{"vocab_size", f->types, types},
                 {"hidden_size", f->sizes.hidden, found->hidden},
                 {"head_dim", f->sizes.head, found->head},
                 {"intermediate_size", f->sizes.inner, found->inner},
                 {"num_hidden_layers", f->sizes.layers, found->layers}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].told != sizes[i].found)
            return tw_fail(TW_ERROR_FORMAT, "config.json has %s %zu, and its tensors %zu", sizes[i].name, sizes[i].told,
                           sizes[i].found);
    if (found->family != f->sizes.family)
        return tw_fail(TW_ERROR_FORMAT, "config.json has model_type %s, and its tensors are those of %s",
                       transformer_families[f->sizes.family], transformer_families[found->family]);
    if (found->tied == f->sizes.tied) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "it has no " HEAD ", though config.json does not say tie_word_embeddings");
}

static bool is_same(const tw_state_entry *one, const tw_state_entry *other)
{
    return one->dims == other->dims && memcmp(one->shape, other->shape, one->dims * sizeof *one->shape) == 0 &&
           memcmp(one->data, other->data, one->bytes) == 0;
}

/* Tied weights that are there twice are the same twice: else transformers does not tie them. */
static tw_status compare_head(const llama_folder *f)
{
    tw_state_entry head, words;
    if (tw_state_count(f->head) == 0) return TW_OK;
    TW_TRY(tw_state_at(f->head, 0, &head));
    if (tw_state_at(f->state, tw_state_index(f->state, EMBEDDING), &words) == TW_OK && is_same(&words, &head))
        return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "config.json has tie_word_embeddings, but its " HEAD " is not its " EMBEDDING
                                    "; tie_word_embeddings false keeps them apart");
}

/* What is missing is told by whoever looks for it. */
static tw_status compare_shape(const llama_folder *f, const tw_tensor *tensor)
{
    tw_state_entry entry;
    char had[SHAPE_TEXT], has[SHAPE_TEXT];
    if (tw_state_at(f->state, tw_state_index(f->state, tensor->name), &entry) != TW_OK) return TW_OK;
    if (shape_fits(tensor, &entry)) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "its %s is %s, but %s in the transformer that config.json describes", entry.name,
                   shape_text(entry.dims, entry.shape, had), shape_text(tensor->dims, tensor->shape, has));
}

static tw_status refuse_unknown(const llama_folder *f, const bool *known)
{
    tw_state_entry entry;
    for (size_t i = 0; tw_state_at(f->state, i, &entry) == TW_OK; i++)
        if (!known[i])
            return tw_fail(TW_ERROR_UNSUPPORTED, "its %s is no tensor of the transformer that config.json describes",
                           entry.name);
    return TW_OK;
}

static tw_status compare_table(const llama_folder *f, const nn_table *table)
{
    bool *known = calloc(tw_state_count(f->state) + 1, sizeof *known);
    if (!known) return tw_fail(TW_ERROR_MEMORY, "no memory for the names of its tensors");
    shape_mark(f->state, table->tensors, table->count, known);
    tw_status status = refuse_unknown(f, known);
    for (size_t i = 0; i < table->count && status == TW_OK; i++) status = compare_shape(f, &table->tensors[i]);
    free(known);
    return status;
}

/* Whoever reads the state afterwards goes by the numbers of elements. */
static tw_status compare_tensors(const llama_folder *f)
{
    language_model_config found;
    nn_table table = {0};
    size_t types, context;
    TW_TRY(transformer_read(f->state, &found, &types, &context));
    TW_TRY(compare_sizes(f, &found, types));
    TW_TRY(compare_head(f));
    tw_status status = language_model_tensors(&found, types, &table);
    if (status == TW_ERROR_ARGUMENT) status = TW_ERROR_FORMAT; /* sizes that cannot be are the file's */
    if (status == TW_OK) status = compare_table(f, &table);
    nn_table_free(&table);
    return status;
}

/* A tokenizer of another kind is none. */
static tw_status put_vocabulary(const llama_folder *f)
{
    vocabulary *v;
    char *text;
    if (!file_exists(f->path, "tokenizer.json") && !file_exists(f->path, TOKENIZER_MODEL)) return TW_OK;
    tw_status status = tokenizer_file_read(f->path, &v);
    if (status == TW_ERROR_UNSUPPORTED && !file_exists(f->path, TOKENIZER_MODEL)) return TW_OK;
    TW_TRY(status);
    status = vocabulary_write(v, &text);
    vocabulary_destroy(v);
    TW_TRY(status);
    status = tw_state_put_text(f->state, "vocabulary.txt", text);
    free(text);
    return status;
}

static tw_status fill_state(llama_folder *f)
{
    char text[TASK_NETWORK_TEXT];
    TW_TRY(check_kind(f));
    TW_TRY(read_sizes(f));
    TW_TRY(tw_state_put_text(f->state, "task", "lm"));
    TW_TRY(tw_state_put_text(f->state, TASK_NETWORK, transformer_text(&f->sizes, f->context, text)));
    TW_TRY(take_weights(f));
    TW_TRY(compare_tensors(f));
    return put_vocabulary(f);
}

tw_status lm_read_folder(const char *path, tw_state **state)
{
    cJSON *config;
    llama_folder f = {.path = path};
    TW_TRY(read_object(path, "config.json", &config));
    f.config = config;
    tw_status status = tw_state_create(&f.state);
    if (status == TW_OK) status = tw_state_create(&f.head);
    if (status == TW_OK) status = fill_state(&f);
    cJSON_Delete(config);
    tw_state_destroy(f.head);
    if (status == TW_OK)
        *state = f.state;
    else
        tw_state_destroy(f.state);
    return status;
}
